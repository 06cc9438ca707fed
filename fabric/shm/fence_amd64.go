package shm

// orderStores orders stores before it ahead of stores after it. x86 does so without an
// instruction; the runtime's large copies end with the fence that their streaming stores
// need.
func orderStores() {}

// orderLoads orders loads after it behind an atomic store before it, which is an exchange here, and
// orders all by itself.
func orderLoads() {}

// storesInOrder: other processors see the stores of one processor in program order.
const storesInOrder = true
