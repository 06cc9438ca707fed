// A TCP socket used directly: the lower bound of what the host can do.
//
//	lat SIZE ITERS   ping-pong; both sides read without blocking, and spin
//	bw SIZE ITERS    ITERS writes of SIZE bytes in one direction, both sides blocking;
//	                 the time ends with the answer of the reader that it has read all
//
// raw PORT serves one client; raw ADDR PORT TEST SIZE ITERS is the client, which
// prints one line: test, size, operations, seconds. A warm-up of
// a tenth of the operations precedes and is not timed. TCP_NODELAY is set; the kernel
// chooses the sizes of buffers.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what) {
	perror(what);
	exit(1);
}

static void put(int fd, const char *b, size_t n) {
	while (n > 0) {
		ssize_t k = send(fd, b, n, MSG_NOSIGNAL);
		if (k < 0)
			die("send");
		b += k, n -= (size_t)k;
	}
}

static void get(int fd, char *b, size_t n, int flags) {
	while (n > 0) {
		ssize_t k = recv(fd, b, n, flags);
		if (k == 0) {
			fprintf(stderr, "the other side has gone\n");
			exit(1);
		}
		if (k < 0 && errno != EAGAIN)
			die("recv");
		if (k > 0)
			b += k, n -= (size_t)k;
	}
}

// play is one side of n operations; odd is the server.
static void play(int fd, int lat, int odd, char *b, size_t size, long n) {
	char ack = 0;
	for (long i = 0; i < n; i++) {
		if (!odd)
			put(fd, b, size);
		if (odd || lat)
			get(fd, b, size, lat ? MSG_DONTWAIT : 0);
		if (odd && lat)
			put(fd, b, size);
	}
	if (!lat && odd)
		put(fd, &ack, 1);
	if (!lat && !odd)
		get(fd, &ack, 1, 0);
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	long head[3] = {0}; // latency or not, size, operations
	int server = argc == 2, one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0)
		die("socket");
	if (!server && argc != 6) {
		fprintf(stderr, "want PORT, or ADDR PORT lat|bw SIZE ITERS\n");
		return 2;
	}
	a.sin_port = htons((unsigned short)atoi(argv[server ? 1 : 2]));
	if (server) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		if (bind(fd, (void *)&a, sizeof a) || listen(fd, 1))
			die("listen");
		int l = fd;
		if ((fd = accept(l, NULL, NULL)) < 0)
			die("accept");
		close(l);
	} else {
		if (inet_pton(AF_INET, argv[1], &a.sin_addr) != 1 || connect(fd, (void *)&a, sizeof a))
			die("connect");
		head[0] = !strcmp(argv[3], "lat"), head[1] = atol(argv[4]), head[2] = atol(argv[5]);
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (server)
		get(fd, (char *)head, sizeof head, 0);
	else
		put(fd, (char *)head, sizeof head);
	if (head[1] < 1 || head[1] > 1L << 30 || head[2] < 1) {
		fprintf(stderr, "SIZE or ITERS out of range\n");
		return 2;
	}
	size_t size = (size_t)head[1];
	char *b = malloc(size);
	if (!b)
		die("malloc");
	memset(b, 1, size);
	play(fd, (int)head[0], server, b, size, head[2] / 10 + 1);
	double t = now();
	play(fd, (int)head[0], server, b, size, head[2]);
	t = now() - t;
	if (!server)
		printf("%s %ld %ld %.9f\n", argv[3], head[1], head[2], head[0] ? t / 2 : t);
	return 0;
}
