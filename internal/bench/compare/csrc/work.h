// A computation of known duration, for programs that also include mpi.h.
#include <stdint.h>

static volatile uint64_t sink;

// work is the loop of internal/bench/overlap. The barrier keeps the compiler from solving it.
static void work(int64_t turns) {
	uint64_t x = (uint64_t)turns | 1;
	for (int64_t i = 0; i < turns; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		__asm__ volatile("" : "+r"(x));
	}
	sink = x;
}

// turns_per_second is the rate of work on an idle processor: the best of 50 ms and ten tries, most
// of which a busy machine interrupts.
static inline double turns_per_second(void) {
	const int64_t turns = 100000;
	double best = 0, end = MPI_Wtime() + 0.05;
	for (int i = 0; i < 10 || MPI_Wtime() < end; i++) {
		double t = MPI_Wtime();
		work(turns);
		t = MPI_Wtime() - t;
		if (t > 0 && turns / t > best)
			best = turns / t;
	}
	return best;
}
