package cpu

// NoHome is the home of a rank that shares processors with others, or has one only.
const NoHome = -1

// Home returns a processor of mine for a rank on a host where each rank can have one of its own,
// a different one for each rank with the same set: rank is its number among the ranks of the host,
// ranks is their number. Otherwise it returns NoHome.
func Home(mine Set, rank, ranks int) int {
	n := mine.Len()
	if n < 2 || ranks > n || rank < 0 || rank >= ranks {
		return NoHome
	}
	return mine.CPUs()[rank*n/ranks]
}
