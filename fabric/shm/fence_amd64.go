package shm

// orderStores keeps stores before it ahead of stores behind it. x86 does so by
// itself; the runtime's large copies end with the fence their streaming stores
// need.
func orderStores() {}

// storesInOrder says that stores of one processor are seen in the order of the program.
const storesInOrder = true
