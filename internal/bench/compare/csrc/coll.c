// Collective operations of MPI, as rmabench coll and rmabench nbc measure those of this library.
//
//	coll|nbc OP,OP,… SIZE,SIZE,… MILLISECONDS
//
// SIZE is the bytes of the smaller of the two buffers of a rank, a multiple of 8; a barrier has the
// size 0. Elements are doubles, reductions are sums; the blocks of the v forms have equal lengths.
// Each result is checked. Rank 0 prints a line for each operation and size:
//
//	coll OP SIZE, the mean time of a call over the ranks and that of the slowest in
//	microseconds, and the number of calls, between which there is a barrier
//	nbc OP SIZE, the times of the operation, of a computation of that length, and of both at
//	once on the rank that hides the least, in microseconds, and the number of calls
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "work.h"

enum { LEAST = 3, WARM = 5, MOST = 100000000 };

static MPI_Comm world;
static int p, me, n; // ranks, this rank, elements of a block
static double *one, *all, *one2, *all2;
static int *counts, *displs;
static MPI_Request req;
static const char *op;

#define ON(name) (!strcmp(op, name))

static void call(void) {
	if (ON("barrier"))
		MPI_Barrier(world);
	else if (ON("bcast"))
		MPI_Bcast(one2, n, MPI_DOUBLE, 0, world);
	else if (ON("reduce"))
		MPI_Reduce(one, one2, n, MPI_DOUBLE, MPI_SUM, 0, world);
	else if (ON("allreduce"))
		MPI_Allreduce(one, one2, n, MPI_DOUBLE, MPI_SUM, world);
	else if (ON("reducescatter"))
		MPI_Reduce_scatter_block(all, one2, n, MPI_DOUBLE, MPI_SUM, world);
	else if (ON("gather"))
		MPI_Gather(one, n, MPI_DOUBLE, all2, n, MPI_DOUBLE, 0, world);
	else if (ON("gatherv"))
		MPI_Gatherv(one, n, MPI_DOUBLE, all2, counts, displs, MPI_DOUBLE, 0, world);
	else if (ON("scatter"))
		MPI_Scatter(all, n, MPI_DOUBLE, one2, n, MPI_DOUBLE, 0, world);
	else if (ON("scatterv"))
		MPI_Scatterv(all, counts, displs, MPI_DOUBLE, one2, n, MPI_DOUBLE, 0, world);
	else if (ON("allgather"))
		MPI_Allgather(one, n, MPI_DOUBLE, all2, n, MPI_DOUBLE, world);
	else if (ON("allgatherv"))
		MPI_Allgatherv(one, n, MPI_DOUBLE, all2, counts, displs, MPI_DOUBLE, world);
	else if (ON("alltoall"))
		MPI_Alltoall(all, n, MPI_DOUBLE, all2, n, MPI_DOUBLE, world);
	else if (ON("alltoallv"))
		MPI_Alltoallv(all, counts, displs, MPI_DOUBLE, all2, counts, displs, MPI_DOUBLE, world);
	else if (ON("scan"))
		MPI_Scan(one, one2, n, MPI_DOUBLE, MPI_SUM, world);
	else if (ON("exscan"))
		MPI_Exscan(one, one2, n, MPI_DOUBLE, MPI_SUM, world);
	else {
		fprintf(stderr, "no operation %s\n", op);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
}

static void start(void) {
	if (ON("barrier"))
		MPI_Ibarrier(world, &req);
	else if (ON("bcast"))
		MPI_Ibcast(one2, n, MPI_DOUBLE, 0, world, &req);
	else if (ON("reduce"))
		MPI_Ireduce(one, one2, n, MPI_DOUBLE, MPI_SUM, 0, world, &req);
	else if (ON("allreduce"))
		MPI_Iallreduce(one, one2, n, MPI_DOUBLE, MPI_SUM, world, &req);
	else if (ON("reducescatter"))
		MPI_Ireduce_scatter_block(all, one2, n, MPI_DOUBLE, MPI_SUM, world, &req);
	else if (ON("gather"))
		MPI_Igather(one, n, MPI_DOUBLE, all2, n, MPI_DOUBLE, 0, world, &req);
	else if (ON("gatherv"))
		MPI_Igatherv(one, n, MPI_DOUBLE, all2, counts, displs, MPI_DOUBLE, 0, world, &req);
	else if (ON("scatter"))
		MPI_Iscatter(all, n, MPI_DOUBLE, one2, n, MPI_DOUBLE, 0, world, &req);
	else if (ON("scatterv"))
		MPI_Iscatterv(all, counts, displs, MPI_DOUBLE, one2, n, MPI_DOUBLE, 0, world, &req);
	else if (ON("allgather"))
		MPI_Iallgather(one, n, MPI_DOUBLE, all2, n, MPI_DOUBLE, world, &req);
	else if (ON("allgatherv"))
		MPI_Iallgatherv(one, n, MPI_DOUBLE, all2, counts, displs, MPI_DOUBLE, world, &req);
	else if (ON("alltoall"))
		MPI_Ialltoall(all, n, MPI_DOUBLE, all2, n, MPI_DOUBLE, world, &req);
	else if (ON("alltoallv"))
		MPI_Ialltoallv(all, counts, displs, MPI_DOUBLE, all2, counts, displs, MPI_DOUBLE, world, &req);
	else if (ON("scan"))
		MPI_Iscan(one, one2, n, MPI_DOUBLE, MPI_SUM, world, &req);
	else
		MPI_Iexscan(one, one2, n, MPI_DOUBLE, MPI_SUM, world, &req);
}

// element is element i of block s of rank r.
static double element(int r, int s, int i) { return 1 + r + 257 * s + i % 4096; }

// sources returns the ranks of whose block *b block s of the result is the sum.
static void sources(int s, int *from, int *to, int *b) {
	*from = *to = *b = 0;
	if (ON("bcast") || ON("scatter") || ON("scatterv")) {
		*to = 1, *b = ON("bcast") ? 0 : me;
	} else if (ON("allreduce") || ON("reducescatter") || (ON("reduce") && me == 0)) {
		*to = p, *b = ON("reducescatter") ? me : 0;
	} else if (ON("scan") || ON("exscan")) {
		*to = me + ON("scan");
	} else if (strstr(op, "alltoall") || strstr(op, "allgather") || (strstr(op, "gather") && me == 0)) {
		*from = s, *to = s + 1, *b = strstr(op, "alltoall") ? me : 0;
	}
}

// check calls the operation, and ends the program if the result is wrong.
static void check(void) {
	int blocked = strstr(op, "gather") || strstr(op, "alltoall"), from, to, b;
	double *got = blocked ? all2 : one2;
	size_t total = (size_t)n * (blocked ? p : 1);
	for (size_t i = 0; i < total; i++)
		got[i] = ON("bcast") && me == 0 ? one[i] : 0;
	call();
	for (size_t i = 0; i < total; i++) {
		sources(i / n, &from, &to, &b);
		double want = 0;
		for (int r = from; r < to; r++)
			want += element(r, b, i % n);
		if (from < to && got[i] != want) {
			fprintf(stderr, "%s: element %zu at rank %d is %g, want %g\n", op, i, me, got[i], want);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
}

// part is what is timed: a call, or a start, a computation and a wait.
enum part { CALL, PURE, CPU, BOTH };

// timed returns the mean time in seconds of part on this rank, with a barrier between calls.
static double timed(enum part part, int calls, int64_t turns, double *everything) {
	double in = 0;
	MPI_Barrier(world);
	double began = MPI_Wtime();
	for (int i = 0; i < calls; i++) {
		double at = MPI_Wtime();
		if (part == CALL)
			call();
		if (part == PURE || part == BOTH)
			start();
		if (part == CPU || part == BOTH)
			work(turns);
		if (part == PURE || part == BOTH)
			MPI_Wait(&req, MPI_STATUS_IGNORE);
		in += MPI_Wtime() - at;
		if (part != CALL || !ON("barrier"))
			MPI_Barrier(world);
	}
	if (everything)
		*everything = MPI_Wtime() - began;
	return in / calls;
}

// calls_in returns how many calls take about the given time: as callsIn of package collective, by
// the time on rank 0 of so many that they take at least a tenth of it. It warms the operation up.
static int calls_in(enum part part, double seconds) {
	timed(part, WARM, 0, NULL);
	for (int n = WARM, found[2];;) {
		double took, calls;
		timed(part, n, 0, &took);
		calls = n * seconds / (took > 1e-9 ? took : 1e-9);
		found[1] = took >= seconds / 10 || n == MOST;
		if (!found[1])
			calls = calls / 4 < 10.0 * n ? calls / 4 : 10.0 * n; // at least 2.5 n
		found[0] = calls < LEAST ? LEAST : calls > MOST ? MOST : calls;
		MPI_Bcast(found, 2, MPI_INT, 0, world);
		n = found[0];
		if (found[1])
			return n;
	}
}

static void latency(double seconds) {
	int calls = calls_in(CALL, seconds);
	double took = timed(CALL, calls, 0, NULL), sum, most;
	MPI_Reduce(&took, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, world);
	MPI_Reduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, 0, world);
	if (me == 0)
		printf("coll %s %zu %.4f %.4f %d\n", op, n * sizeof(double), sum / p * 1e6, most * 1e6, calls);
}

static double overlap(const double t[3]) {
	double hidden = t[0] + t[1] - t[2], shorter = t[0] < t[1] ? t[0] : t[1];
	return shorter > 0 ? hidden / shorter : 0;
}

static void hiding(double seconds, double rate) {
	int calls = calls_in(PURE, seconds);
	double t[3], longest, *of = malloc(3 * p * sizeof *of);
	t[0] = timed(PURE, calls, 0, NULL);
	MPI_Allreduce(&t[0], &longest, 1, MPI_DOUBLE, MPI_MAX, world);
	int64_t turns = longest * rate;
	t[1] = timed(CPU, calls, turns, NULL);
	t[2] = timed(BOTH, calls, turns, NULL);
	MPI_Gather(t, 3, MPI_DOUBLE, of, 3, MPI_DOUBLE, 0, world);
	double *worst = of;
	for (int r = 1; me == 0 && r < p; r++)
		if (overlap(of + 3 * r) < overlap(worst))
			worst = of + 3 * r;
	if (me == 0)
		printf("nbc %s %zu %.4f %.4f %.4f %d\n", op, n * sizeof(double), worst[0] * 1e6, worst[1] * 1e6, worst[2] * 1e6, calls);
	free(of);
}

// block returns memory for k blocks of n elements.
static double *block(size_t k) {
	size_t bytes = (k * n * sizeof(double) + 4095) / 4096 * 4096 + 4096;
	double *m = aligned_alloc(4096, bytes);
	if (!m)
		MPI_Abort(MPI_COMM_WORLD, 1);
	memset(m, 0, bytes);
	return m;
}

static void point(int nbc, double seconds, double rate) {
	one = block(1), one2 = block(1), all = block(p), all2 = block(p);
	for (int s = 0; s < p; s++) {
		counts[s] = n, displs[s] = s * n;
		for (int i = 0; i < n; i++)
			all[(size_t)s * n + i] = element(me, s, i);
	}
	memcpy(one, all, n * sizeof(double));
	check();
	nbc ? hiding(seconds, rate) : latency(seconds);
	fflush(stdout);
	free(one), free(one2), free(all), free(all2);
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	world = MPI_COMM_WORLD;
	MPI_Comm_rank(world, &me);
	MPI_Comm_size(world, &p);
	if (argc != 5 || atof(argv[4]) <= 0) {
		fprintf(stderr, "want coll|nbc OP,OP,... SIZE,SIZE,... MILLISECONDS\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	int nbc = !strcmp(argv[1], "nbc");
	double seconds = atof(argv[4]) / 1e3, rate = nbc ? turns_per_second() : 0;
	counts = malloc(p * sizeof *counts), displs = malloc(p * sizeof *displs);
	char *ops, *sizes;
	for (op = strtok_r(argv[2], ",", &ops); op; op = strtok_r(NULL, ",", &ops)) {
		char *list = strdup(ON("barrier") ? "0" : argv[3]);
		for (char *s = strtok_r(list, ",", &sizes); s; s = strtok_r(NULL, ",", &sizes)) {
			n = atoi(s) / sizeof(double);
			point(nbc, seconds, rate);
		}
		free(list);
	}
	MPI_Finalize();
	return 0;
}
