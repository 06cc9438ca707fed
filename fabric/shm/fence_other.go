//go:build !amd64 && !arm64

package shm

import "sync/atomic"

var fenceWord atomic.Uint64

// orderStores orders stores before it ahead of stores after it: on these processors the
// runtime's atomic exchange contains a full fence.
func orderStores() { fenceWord.Swap(0) }

// orderLoads orders loads after it behind an atomic store before it.
func orderLoads() { fenceWord.Swap(0) }

// storesInOrder: see the amd64 version.
const storesInOrder = false
