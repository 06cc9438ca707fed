package offheap

import "github.com/seed33544411/rma/internal/enum"

// Kind is how a mapping of AllocHuge is backed.
type Kind uint8

// Kinds of backing.
const (
	Small   Kind = iota // ordinary pages: the system offers no larger ones
	Advised             // transparent huge pages were requested; the kernel uses them as it can
	HugeTLB             // reserved huge pages, all of it
)

var kindNames = []string{"small pages", "transparent huge pages asked for", "reserved huge pages"}

// String returns the name of the kind.
func (k Kind) String() string { return enum.Name("kind", kindNames, k) }

// HugePage is the size in bytes of the huge pages that AllocHuge asks for: the
// default of x86-64 and of arm64 with 4 KiB pages.
const HugePage = 2 << 20

// AllocHuge is Alloc for large memory that devices and peers use. It uses reserved huge
// pages if size is a multiple of HugePage and the system has enough of them free. Otherwise
// it requests transparent ones before the memory is accessed or registered. It returns the
// kind. Free it with Free.
func AllocHuge(size int, p Purpose) ([]byte, Kind, error) {
	if size > 0 && size <= maxSize && size%HugePage == 0 {
		if b := mapHugeTLB(size); b != nil {
			count(b, p)
			return b, HugeTLB, nil
		}
	}
	b, err := Alloc(size, p)
	if err != nil {
		return nil, Small, err
	}
	return b, AdviseHuge(b), nil
}

// AdviseHuge requests transparent huge pages for b, which starts on a page boundary. It
// returns Advised or Small, by the system's answer.
func AdviseHuge(b []byte) Kind {
	if len(b) < HugePage || !adviseHuge(b) {
		return Small
	}
	return Advised
}
