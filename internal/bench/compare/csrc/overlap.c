// Communication during computation between two MPI ranks, as rmabench overlap measures it.
//
//	OP SIZE WHO FACTOR MILLISECONDS
//
// OP is message (MPI_Isend, MPI_Irecv), put or get (MPI_Put or MPI_Get by rank 0, and
// MPI_Win_flush); WHO, the ranks that compute between the start and the wait, is sender
// (rank 0), receiver (rank 1) or both; FACTOR is the length of the computation as a multiple
// of the communication; each of the three series takes about MILLISECONDS.
//
// Rank 0 prints one line: overlap, the first four arguments, the times of the communication,
// the computation and both at once in microseconds (medians over iterations of the slower
// rank's time), and the number of iterations.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "work.h"

enum { MOST = 2000, WARM = 5 };

static int rank, size;
static char *mem;
static MPI_Win win = MPI_WIN_NULL;
static MPI_Request req;
static enum { MESSAGE, PUT, GET } op;

static void begin(void) {
	if (op == MESSAGE && rank == 0)
		MPI_Isend(mem, size, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &req);
	else if (op == MESSAGE)
		MPI_Irecv(mem, size, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &req);
	else if (rank == 0 && op == PUT)
		MPI_Put(mem, size, MPI_CHAR, 1, 0, size, MPI_CHAR, win);
	else if (rank == 0)
		MPI_Get(mem, size, MPI_CHAR, 1, 0, size, MPI_CHAR, win);
}

static void end(void) {
	if (op == MESSAGE)
		MPI_Wait(&req, MPI_STATUS_IGNORE);
	else if (rank == 0)
		MPI_Win_flush(1, win);
}

static int ascending(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double mine[MOST], slower[MOST];

// series returns the median of n iterations on both ranks.
static double series(int n, int communicates, int64_t turns) {
	for (int i = 0; i < n; i++) {
		MPI_Barrier(MPI_COMM_WORLD);
		double t = MPI_Wtime();
		if (communicates)
			begin();
		if (turns > 0)
			work(turns);
		if (communicates)
			end();
		mine[i] = MPI_Wtime() - t;
	}
	MPI_Allreduce(mine, slower, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	qsort(slower, n, sizeof *slower, ascending);
	return slower[n / 2];
}

static int fit(double seconds, double each) {
	double n = each > 0 ? seconds / each : MOST;
	return n < 5 ? 5 : n > MOST ? MOST : (int)n;
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	int ranks;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 6 || ranks != 2 || (size = atoi(argv[2])) < 1 || atof(argv[4]) <= 0 || atof(argv[5]) <= 0) {
		fprintf(stderr, "want two ranks, and message|put|get SIZE sender|receiver|both FACTOR MILLISECONDS\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	op = !strcmp(argv[1], "put") ? PUT : !strcmp(argv[1], "get") ? GET : MESSAGE;
	int computes = !strcmp(argv[3], "both") || !strcmp(argv[3], "sender") == (rank == 0);
	double factor = atof(argv[4]), seconds = atof(argv[5]) / 1e3;
	if (op == MESSAGE) {
		mem = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
	} else {
		MPI_Win_allocate(size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win);
		MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
		char *own = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
		memset(mem, 1, size);
		mem = own;
	}
	memset(mem, 1, size);
	double rate = turns_per_second(); // of this rank
	int n = fit(seconds, series(WARM, 1, 0));
	double comm = series(n, 1, 0);
	int m = fit(seconds, comm * (1 + factor));
	int64_t turns = computes ? (int64_t)(factor * comm * rate) : 0;
	double compute = series(m, 0, turns), both = series(m, 1, turns);
	if (rank == 0)
		printf("overlap %s %d %s %s %.3f %.3f %.3f %d\n", argv[1], size, argv[3], argv[4], comm * 1e6, compute * 1e6, both * 1e6, m);
	if (win != MPI_WIN_NULL) {
		MPI_Win_unlock_all(win);
		MPI_Win_free(&win);
	}
	MPI_Finalize();
	return 0;
}
