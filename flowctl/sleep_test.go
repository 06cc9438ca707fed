package flowctl

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A reader that sleeps on a link where a plain write does not wake it. The
// model visits every interleaving of
//
//	writer:  send (with notification iff the sleep bit has been seen), see the cell
//	network: deliver the oldest write, deliver the oldest word
//	reader:  set the bit, look once more, sleep, wake (notified or by time-out), clear the bit
//
// and shows what the rule gives: a write lands on a sleeping reader without
// waking it only if it was sent before the bit reached the writer, and a reader
// that also wakes by time-out always gets the message.
type sleepState struct {
	phase  int // 0 awake, 1 bit written and not yet looked again, 2 asleep
	seen   bool
	writes string // on their way, 'n' notified, 'p' plain; upper case: sent after the bit could be seen
	words  string // on their way, '1' bit set, '0' clear
	cell   byte
	unread int
	toSend int
}

func exploreSleep(timeouts bool, obey bool) (states int, err error) {
	first := sleepState{toSend: 3, cell: '0'}
	seenStates := map[sleepState]bool{first: true}
	queue := []sleepState{first}
	for len(queue) > 0 {
		x := queue[0]
		queue = queue[1:]
		var next []sleepState
		if x.toSend > 0 {
			y := x
			y.toSend--
			switch {
			case y.seen && obey:
				y.writes += "n"
			case y.seen:
				y.writes += "P" // a writer that saw the bit and ignores it
			default:
				y.writes += "p"
			}
			next = append(next, y)
		}
		if seen := x.cell == '1'; seen != x.seen {
			y := x
			y.seen = seen
			next = append(next, y)
		}
		if len(x.writes) > 0 {
			y := x
			w := y.writes[0]
			y.writes = y.writes[1:]
			y.unread++
			if y.phase == 2 {
				switch w {
				case 'n':
					y.phase = 0
				case 'P':
					return len(seenStates), fmt.Errorf("a writer that knew did not wake the reader: %+v", x)
				}
			}
			next = append(next, y)
		}
		if len(x.words) > 0 {
			y := x
			y.cell, y.words = y.words[0], y.words[1:]
			next = append(next, y)
		}
		switch x.phase {
		case 0:
			if x.unread > 0 {
				y := x
				y.unread = 0
				next = append(next, y)
			}
			if len(x.words) < 4 {
				y := x
				y.phase = 1
				y.words += "1"
				next = append(next, y)
				z := x
				z.words += "0"
				next = append(next, z)
			}
		case 1:
			y := x
			y.phase = 2
			if x.unread > 0 {
				y.phase = 0 // the look after setting the bit found something
			}
			next = append(next, y)
		case 2:
			if timeouts {
				y := x
				y.phase = 0
				next = append(next, y)
			}
		}
		if len(next) == 0 && (x.unread > 0 || x.toSend > 0) {
			return len(seenStates), fmt.Errorf("lost wake-up: %+v", x)
		}
		for _, y := range next {
			if !seenStates[y] {
				seenStates[y] = true
				queue = append(queue, y)
			}
		}
	}
	return len(seenStates), nil
}

func TestSleepBitEveryInterleaving(t *testing.T) {
	t.Parallel()
	n, err := exploreSleep(true, true)
	require.NoError(t, err)
	t.Logf("%d states", n)

	// Without the time-out the write in flight is lost: the model sees it.
	_, err = exploreSleep(false, true)
	require.ErrorContains(t, err, "lost wake-up")
	// A writer that ignores the bit is noticed.
	_, err = exploreSleep(true, false)
	require.ErrorContains(t, err, "did not wake")
}
