//go:build linux && rma_portable

package tcp

const piecesAllocate = "package unix builds the system's list of several pieces on the heap"
