// Package softlink holds what the links made of software (shm, tcp, sim) have
// in common and a device does in hardware: the table of registered regions with
// its keys, the checks of a work request before it is taken, moving bytes
// between scatter/gather lists and contiguous memory, and the queue of
// completions.
//
// Nothing here allocates after set-up. See fabric for the contract.
package softlink
