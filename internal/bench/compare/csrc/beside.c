// Small operations of MPI beside computation, waiting threads or streams, as rmabench reactivity,
// threads and concurrent measure those of this library.
//
//	WHAT OP BESIDE COUNT SIZE MILLISECONDS PROCESSORS
//
// Rank 0 measures OP for about MILLISECONDS, but at least LEAST times or SLOW seconds, while
//
//	reactivity  COUNT threads for each of PROCESSORS of rank 1 compute; OP is get, fetch-add, handler
//	            (a message of 8 bytes and its answer) or rendezvous (the same with 1 MiB); BESIDE is -
//	threads     COUNT threads of each rank wait for messages that never arrive (BESIDE messages) or
//	            send messages of 8 bytes (sends); OP is put or ping
//	concurrent  COUNT threads of rank 0 each have a message, put or get of SIZE bytes under way
//	            (messages, puts, gets); OP is put or ping
//
// Meanwhile the main thread of rank 1 waits in MPI_Recv, which makes progress, and answers: MPI has
// no handlers. Rank 0 prints one line: the first five arguments, the mean, the median, the 99th
// percentile and the maximum in microseconds (of a ping: half a round trip), the number of samples,
// and the bandwidth of all streams in MB/s.
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "work.h"

enum { LEAST = 20, SLOW = 20, WARM = 5, MOST = 1 << 20, LARGE = 1 << 20, MOST_THREADS = 1024 };
enum { ASK = 1, ANSWER, END, DROP, SILENT };

static const char *what, *op, *beside;
static int rank, count, size;
static char *mem; // of the window, on either rank
static MPI_Win win;
static MPI_Comm others; // of all threads but the main ones
static atomic_int over;
static atomic_int flowing; // streams that have completed an operation
static atomic_llong moved;

#define ON(s, name) (!strcmp(s, name))

static void *computes(void *unused) {
	while (!atomic_load(&over))
		work(10000);
	return unused;
}

// waits receives a message that the other rank sends at the end.
static void *waits(void *index) {
	char b[8];
	MPI_Recv(b, sizeof b, MPI_CHAR, 1 - rank, SILENT + (int)(intptr_t)index, others, MPI_STATUS_IGNORE);
	return NULL;
}

static void *sends(void *unused) {
	char b[8] = {0};
	while (!atomic_load(&over))
		MPI_Send(b, sizeof b, MPI_CHAR, 1 - rank, DROP, others);
	return unused;
}

// drops receives the messages of one thread of the other rank, or of all, until an empty one.
static void *drops(void *index) {
	int n = -1, tag = ON(what, "concurrent") ? SILENT + (int)(intptr_t)index : DROP;
	char *b = malloc(size > 8 ? size : 8);
	while (n != 0) {
		MPI_Status s;
		MPI_Recv(b, size > 8 ? size : 8, MPI_CHAR, 1 - rank, tag, others, &s);
		MPI_Get_count(&s, MPI_CHAR, &n);
	}
	free(b);
	return NULL;
}

static void *streams(void *index) {
	char *b = calloc(1, size);
	int tag = SILENT + (int)(intptr_t)index;
	for (int first = 1; first || !atomic_load(&over); first = 0) {
		if (ON(beside, "messages")) {
			MPI_Send(b, size, MPI_CHAR, 1, tag, others);
		} else {
			if (ON(beside, "puts"))
				MPI_Put(b, size, MPI_CHAR, 1, 64, size, MPI_CHAR, win);
			else
				MPI_Get(b, size, MPI_CHAR, 1, 64, size, MPI_CHAR, win);
			MPI_Win_flush(1, win);
		}
		atomic_fetch_add(&moved, size);
		atomic_fetch_add(&flowing, first);
	}
	if (ON(beside, "messages"))
		MPI_Send(b, 0, MPI_CHAR, 1, tag, others);
	free(b);
	return NULL;
}

static void once(char *buf) {
	if (ON(op, "get") || ON(op, "put") || ON(op, "fetch-add")) {
		static int64_t one = 1;
		if (ON(op, "get"))
			MPI_Get(buf, 8, MPI_CHAR, 1, 0, 8, MPI_CHAR, win);
		else if (ON(op, "put"))
			MPI_Put(buf, 8, MPI_CHAR, 1, 0, 8, MPI_CHAR, win);
		else
			MPI_Fetch_and_op(&one, buf, MPI_INT64_T, 1, 8, MPI_SUM, win);
		MPI_Win_flush(1, win);
		return;
	}
	MPI_Send(buf, ON(op, "rendezvous") ? LARGE : 8, MPI_CHAR, 1, ASK, MPI_COMM_WORLD);
	MPI_Recv(buf, 8, MPI_CHAR, 1, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// serve answers until rank 0 has ended.
static void serve(char *buf) {
	MPI_Status s;
	for (s.MPI_TAG = ASK; s.MPI_TAG != END;) {
		MPI_Recv(buf, LARGE, MPI_CHAR, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &s);
		if (s.MPI_TAG == ASK)
			MPI_Send(buf, 8, MPI_CHAR, 0, ANSWER, MPI_COMM_WORLD);
	}
}

static int ascending(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void measure(char *buf, double seconds) {
	static double took[MOST];
	for (int i = 0; i < WARM; i++)
		once(buf);
	int n = 0;
	long long before = atomic_load(&moved);
	double begun = MPI_Wtime(), last = begun;
	while (n < MOST && (n < LEAST || last - begun < seconds) && (n == 0 || last - begun < seconds + SLOW)) {
		once(buf);
		double now = MPI_Wtime();
		took[n++] = (now - last) * 1e6;
		last = now;
	}
	double mbs = (atomic_load(&moved) - before) / (last - begun) / 1e6, half = ON(op, "ping") ? 0.5 : 1;
	qsort(took, n, sizeof *took, ascending);
	printf("%s %s %s %d %d %.3f %.3f %.3f %.3f %d %.3f\n", what, op, beside, count, size, half * (last - begun) * 1e6 / n,
	       half * took[n / 2], half * took[n * 99LL / 100], half * took[n - 1], n, mbs);
}

static int begin(pthread_t *t, int n, void *(*f)(void *)) {
	for (int i = 0; i < n; i++)
		if (pthread_create(&t[i], NULL, f, (void *)(intptr_t)i) != 0) {
			fprintf(stderr, "cannot start %d threads\n", n);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	return n;
}

static void join(pthread_t *t, int n) {
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

int main(int argc, char **argv) {
	int threads, ranks, procs, most = MOST_THREADS;
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 8 || ranks != 2 || (count = atoi(argv[4])) < 0 || count > most || (size = atoi(argv[5])) < 0 || atof(argv[6]) <= 0 || (procs = atoi(argv[7])) < 1) {
		fprintf(stderr, "want two ranks, and reactivity|threads|concurrent OP BESIDE COUNT SIZE MILLISECONDS PROCESSORS\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	if (threads != MPI_THREAD_MULTIPLE) {
		fprintf(stderr, "this library does not let several threads communicate\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	what = argv[1], op = argv[2], beside = argv[3];
	MPI_Comm_dup(MPI_COMM_WORLD, &others);
	MPI_Win_allocate(64 + size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win);
	memset(mem, 0, 64 + size);
	MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
	char *buf = calloc(1, LARGE);
	int n = 0, drain = 0;
	pthread_t *t = calloc((size_t)most * procs, sizeof *t), dropper[MOST_THREADS];
	if (ON(what, "reactivity") && rank == 1)
		n = begin(t, count * procs, computes);
	if (ON(what, "threads"))
		n = begin(t, count, ON(beside, "sends") ? sends : waits);
	if (ON(what, "threads") && ON(beside, "sends"))
		drain = begin(dropper, 1, drops);
	if (ON(what, "concurrent") && rank == 0)
		n = begin(t, count, streams);
	if (ON(what, "concurrent") && rank == 1 && ON(beside, "messages"))
		drain = begin(dropper, count, drops);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		while (ON(what, "concurrent") && atomic_load(&flowing) < count)
			sched_yield();
		measure(buf, atof(argv[6]) / 1e3);
		MPI_Send(buf, 0, MPI_CHAR, 1, END, MPI_COMM_WORLD);
	} else {
		serve(buf);
	}
	atomic_store(&over, 1);
	for (int i = 0; ON(what, "threads") && ON(beside, "messages") && i < count; i++)
		MPI_Send(buf, 8, MPI_CHAR, 1 - rank, SILENT + i, others);
	join(t, n);
	if (ON(what, "threads") && drain)
		MPI_Send(buf, 0, MPI_CHAR, 1 - rank, DROP, others);
	join(dropper, drain);
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
	MPI_Finalize();
	return 0;
}
