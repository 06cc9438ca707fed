// Package softlink holds the common code of the software links (shm, tcp, sim) for tasks
// that a device does in hardware: the table of registered regions with its keys, the checks
// of a work request before it is taken, copies between scatter/gather lists and contiguous
// memory, and the queue of completions.
//
// Nothing here allocates after set-up. See fabric for the contract.
package softlink
