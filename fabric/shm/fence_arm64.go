package shm

// orderStores orders stores before it ahead of stores after it (DMB ISHST).
//
//go:noescape
func orderStores()

// orderLoads orders loads after it behind an atomic store before it (DMB ISH): the store alone (STLR)
// is ordered before atomic loads (LDAR) only.
//
//go:noescape
func orderLoads()

// storesInOrder: see the amd64 version.
const storesInOrder = false
