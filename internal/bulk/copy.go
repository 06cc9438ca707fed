package bulk

// piece bounds one call of a kernel and of the runtime's copy. Larger pieces would delay a
// stop of the world (512 KiB are 10 to 100 µs), and the runtime streams from 1 MiB on;
// smaller ones would start the string instruction and drain the write-combining buffers
// often enough to be measurable.
const piece = 512 << 10

// line is the number of bytes that Stream stores at once.
const line = 64

// Copy copies min(len(dst), len(src)) bytes by the plan and returns their number. The two
// may overlap, as for the builtin copy.
func (p *Plan) Copy(dst, src []byte) int {
	n := min(len(dst), len(src))
	Copy(p.Way(uint64(n)), dst[:n], src[:n])
	return n
}

// Copy copies min(len(dst), len(src)) bytes by the given method, or by Cached if the
// processor lacks that method or the two overlap.
func Copy(w Way, dst, src []byte) {
	n := min(len(dst), len(src))
	dst, src = dst[:n], src[:n]
	if n < 4*line || overlap(dst, src) {
		copy(dst, src)
		return
	}
	switch {
	case w == Stream && hasStream():
		// The bytes before the first whole line, whole lines, and the rest.
		head := toLine(dst)
		body := (n - head) &^ (line - 1)
		copy(dst[:head], src)
		for at := head; at < head+body; at += piece {
			k := min(piece, head+body-at)
			stream(dst[at:at+k], src[at:at+k])
		}
		copy(dst[head+body:], src[head+body:])
	case w == String && hasString():
		// With an unaligned destination, the string instruction splits a line at each step.
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
