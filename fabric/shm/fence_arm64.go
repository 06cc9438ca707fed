package shm

// orderStores orders stores before it ahead of stores after it (DMB ISHST).
//
//go:noescape
func orderStores()

// storesInOrder: see the amd64 version.
const storesInOrder = false
