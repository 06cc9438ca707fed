package bulk

// piece bounds one call of a kernel and of the runtime's copy. Larger ones would keep
// a stop of the world waiting (512 KiB are 10 to 100 µs), and the runtime streams from
// 1 MiB on; smaller ones start the string instruction and drain the write-combining
// buffers more often than is lost in the noise.
const piece = 512 << 10

// line is the unit in which Stream stores.
const line = 64

// Copy copies min(len(dst), len(src)) bytes, which it returns, by the plan. The two
// may overlap, as for the builtin copy.
func (p *Plan) Copy(dst, src []byte) int {
	n := min(len(dst), len(src))
	Copy(p.Way(uint64(n)), dst[:n], src[:n])
	return n
}

// Copy copies min(len(dst), len(src)) bytes in the given way, which it leaves for
// Cached where the processor lacks it and where the two overlap.
func Copy(w Way, dst, src []byte) {
	n := min(len(dst), len(src))
	dst, src = dst[:n], src[:n]
	if n < 4*line || overlap(dst, src) {
		copy(dst, src)
		return
	}
	switch {
	case w == Stream && hasStream():
		// Up to the first whole line, whole lines, and the rest.
		head := toLine(dst)
		body := (n - head) &^ (line - 1)
		copy(dst[:head], src)
		for at := head; at < head+body; at += piece {
			k := min(piece, head+body-at)
			stream(dst[at:at+k], src[at:at+k])
		}
		copy(dst[head+body:], src[head+body:])
	case w == String && hasString():
		// Unaligned destinations cost the string instruction a line split at each step.
		head := toLine(dst)
		copy(dst[:head], src)
		for at := head; at < n; at += piece {
			k := min(piece, n-at)
			moveString(dst[at:at+k], src[at:at+k])
		}
	default:
		for at := 0; at < n; at += piece {
			k := min(piece, n-at)
			copy(dst[at:at+k], src[at:at+k])
		}
	}
}
