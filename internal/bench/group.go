package bench

import (
	"iter"
	"slices"
)

// GroupBy returns the elements of xs by a key, in the order of its first element.
func GroupBy[K comparable, T any](xs []T, key func(*T) K) iter.Seq2[K, []T] {
	var order []K
	of := map[K][]T{}
	for i := range xs {
		k := key(&xs[i])
		if _, known := of[k]; !known {
			order = append(order, k)
		}
		of[k] = append(of[k], xs[i])
	}
	return func(yield func(K, []T) bool) {
		for _, k := range order {
			if !yield(k, of[k]) {
				return
			}
		}
	}
}

// Range returns the median, the least and the greatest of a figure of xs, which are not empty.
func Range[T any](xs []T, figure func(*T) float64) (median, least, most float64) {
	v := make([]float64, len(xs))
	for i := range xs {
		v[i] = figure(&xs[i])
	}
	return Median(v), slices.Min(v), slices.Max(v)
}
