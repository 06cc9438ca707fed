package shm

// orderStores keeps stores before it ahead of stores behind it (DMB ISHST).
//
//go:noescape
func orderStores()
