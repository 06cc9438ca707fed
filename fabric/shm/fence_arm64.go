package shm

// orderStores keeps stores before it ahead of stores behind it (DMB ISHST).
//
//go:noescape
func orderStores()

// storesInOrder: see the amd64 version.
const storesInOrder = false
