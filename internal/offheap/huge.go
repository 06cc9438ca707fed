package offheap

// HugePage is the size in bytes of the huge pages that AllocHuge asks for: the
// default of x86-64 and of arm64 with 4 KiB pages.
const HugePage = 2 << 20

// AllocHuge is Alloc for large memory that devices and peers use. It uses reserved huge
// pages, provided before it returns, if size is a multiple of HugePage, the system has enough
// of them free, and this process may use them. Otherwise it requests transparent ones before
// the memory is accessed or registered. Free it with Free.
func AllocHuge(size int, p Purpose) ([]byte, error) {
	if size > 0 && size <= maxSize && size%HugePage == 0 {
		if b := mapHugeTLB(size); b != nil {
			count(b, p)
			return b, nil
		}
	}
	b, err := Alloc(size, p)
	if len(b) >= HugePage {
		adviseHuge(b)
	}
	return b, err
}
