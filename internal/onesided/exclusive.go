package onesided

// chunk is how many elements are combined at a time: those of the source are copied, because
// they may be unaligned, and stay in the first level of the cache.
const chunk = 128

// reduceExclusive is Reduce of memory that nothing else accesses.
func reduceExclusive(r Reduction, t Type, dst, src []byte) {
	switch {
	case r == Replace:
		copy(dst, src)
	case r >= BitAnd && t.Size() == 8:
		combineBitsOf(r, viewOf[uint64](dst), src)
	case r >= BitAnd:
		combineBitsOf(r, viewOf[uint32](dst), src)
	case t == Int32:
		combineAll(r, viewOf[int32](dst), src)
	case t == Int64:
		combineAll(r, viewOf[int64](dst), src)
	case t == Uint32:
		combineAll(r, viewOf[uint32](dst), src)
	case t == Uint64:
		combineAll(r, viewOf[uint64](dst), src)
	case t == Float32:
		combineAll(r, viewOf[float32](dst), src)
	case t == Float64:
		combineAll(r, viewOf[float64](dst), src)
	}
}

// combineAll combines the elements of dst with those of src. The reduction is evaluated once
// for each chunk.
func combineAll[T number](r Reduction, dst []T, src []byte) {
	for part, mine := range chunks(dst, src) {
		switch r {
		case Sum:
			for i, v := range mine {
				part[i] += v
			}
		case Min:
			for i, v := range mine {
				part[i] = min(part[i], v)
			}
		case Max:
			for i, v := range mine {
				part[i] = max(part[i], v)
			}
		case Prod:
			for i, v := range mine {
				part[i] *= v
			}
		}
	}
}

// combineBitsOf is combineAll for the bitwise reductions.
func combineBitsOf[T uint32 | uint64](r Reduction, dst []T, src []byte) {
	for part, mine := range chunks(dst, src) {
		switch r {
		case BitAnd:
			for i, v := range mine {
				part[i] &= v
			}
		case BitOr:
			for i, v := range mine {
				part[i] |= v
			}
		case BitXor:
			for i, v := range mine {
				part[i] ^= v
			}
		}
	}
}

// chunks iterates over dst in chunks, each with a copy of the elements of src for it.
func chunks[T number](dst []T, src []byte) func(func(part, mine []T) bool) {
	return func(yield func(part, mine []T) bool) {
		var buf [chunk]T
		for len(dst) > 0 {
			n := min(chunk, len(dst))
			src = src[copy(memoryOf(buf[:n]), src):]
			if !yield(dst[:n:n], buf[:n:n]) {
				return
			}
			dst = dst[n:]
		}
	}
}
