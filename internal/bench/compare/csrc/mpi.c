// Streams and one-sided writes between two MPI ranks: measurements that no packaged
// program offers.
//
//	bw SIZE ITERS     ITERS messages in windows of 64 MPI_Isend, received by as many
//	                  MPI_Irecv; the time ends with the answer of rank 1 that it has
//	                  received all (the loop of osu_bw, with one answer at the end)
//	put SIZE ITERS    ping-pong of MPI_Put and MPI_Win_flush into windows whose last
//	                  byte the target polls; half the mean round trip
//	putbw SIZE ITERS  ITERS MPI_Put, with MPI_Win_flush after every 64 and at the end
//
// Rank 0 prints one line: test, size, operations, seconds. A warm-up of a tenth of the
// operations precedes and is not timed.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64 };

static int rank, size;
static char *in, *out;
static MPI_Request reqs[WINDOW];
static MPI_Status sts[WINDOW];

static void stream(long n) {
	char ack = 0;
	if (rank == 1) { // the first receives are posted before the sender starts
		for (long i = 0; i < n; i += WINDOW) {
			int k = n - i < WINDOW ? (int)(n - i) : WINDOW;
			for (int j = 0; j < k; j++)
				MPI_Irecv(in, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &reqs[j]);
			if (i == 0)
				MPI_Send(&ack, 1, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
			MPI_Waitall(k, reqs, sts);
		}
		MPI_Send(&ack, 1, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
		return;
	}
	MPI_Recv(&ack, 1, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (long i = 0; i < n; i += WINDOW) {
		int k = n - i < WINDOW ? (int)(n - i) : WINDOW;
		for (int j = 0; j < k; j++)
			MPI_Isend(out, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &reqs[j]);
		MPI_Waitall(k, reqs, sts);
	}
	MPI_Recv(&ack, 1, MPI_CHAR, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static MPI_Win win;
static unsigned char turn;

static void await(unsigned char want) {
	volatile unsigned char *last = (volatile unsigned char *)in + size - 1;
	for (int flag, i = 0; *last != want; i++) {
		if ((i & 15) != 15)
			continue;
		MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE); // progress
		MPI_Win_sync(win);
	}
}

static void toss(unsigned char value) {
	out[size - 1] = (char)value;
	MPI_Put(out, size, MPI_CHAR, 1 - rank, 0, size, MPI_CHAR, win);
	MPI_Win_flush(1 - rank, win);
}

static void pingpong(long n) {
	for (long i = 0; i < n; i++) {
		turn = turn % 200 + 1;
		if (rank == 0)
			toss(turn);
		await(turn);
		if (rank == 1)
			toss(turn);
	}
}

static void puts_(long n) {
	if (rank == 0) {
		for (long i = 0; i < n; i++) {
			MPI_Put(out, size, MPI_CHAR, 1, 0, size, MPI_CHAR, win);
			if (i % WINDOW == WINDOW - 1)
				MPI_Win_flush(1, win);
		}
		MPI_Win_flush(1, win);
	}
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	int ranks;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 4 || ranks != 2 || (size = atoi(argv[2])) < 1 || atol(argv[3]) < 1) {
		fprintf(stderr, "want two ranks, and bw|put|putbw SIZE ITERS\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	long n = atol(argv[3]);
	void (*play)(long) = !strcmp(argv[1], "bw") ? stream : !strcmp(argv[1], "put") ? pingpong : puts_;
	out = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
	memset(out, 1, size);
	if (play == stream) {
		in = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
		memset(in, 0, size);
	} else {
		MPI_Win_allocate((size + 4095) / 4096 * 4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &in, &win);
		MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
		memset(in, 0, size);
		MPI_Win_sync(win);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	play(n / 10 + 1);
	MPI_Barrier(MPI_COMM_WORLD);
	double t = MPI_Wtime();
	play(n);
	t = MPI_Wtime() - t;
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("%s %d %ld %.9f\n", argv[1], size, n, play == pingpong ? t / 2 : t);
	if (play != stream) {
		MPI_Win_unlock_all(win);
		MPI_Win_free(&win);
	}
	MPI_Finalize();
	return 0;
}
