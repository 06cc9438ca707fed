package jobenv

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed33544411/rma/internal/wireup"
)

// maxList bounds the length of a list of hosts in bytes.
const maxList = 1 << 20

// firstHost returns the first host of a list in Slurm's notation: names separated by
// commas, with numbers and ranges of numbers in brackets, whose leading zeros count:
// "node[01-03,7],gpu2", "r[1-2]c[0-7]".
func firstHost(list string) (string, error) {
	fail := func() (string, error) {
		return "", fmt.Errorf("%w: %.100q is not a list of hosts", wireup.ErrEnvironment, list)
	}
	if len(list) > maxList {
		return fail()
	}
	var name strings.Builder
	for i := 0; i < len(list); i++ {
		switch c := list[i]; c {
		case ',':
			i = len(list)
		case '[':
			end := strings.IndexByte(list[i:], ']')
			if end < 0 {
				return fail()
			}
			first, _, _ := strings.Cut(list[i+1:i+end], ",")
			first, last, isRange := strings.Cut(first, "-")
			a, err := strconv.ParseUint(first, 10, 32)
			if err != nil {
				return fail()
			}
			if isRange {
				if b, err := strconv.ParseUint(last, 10, 32); err != nil || b < a {
					return fail()
				}
			}
			name.WriteString(first)
			i += end
		case ']', ' ', '/', ':':
			return fail()
		default:
			name.WriteByte(c)
		}
	}
	if name.Len() == 0 {
		return fail()
	}
	return name.String(), nil
}
