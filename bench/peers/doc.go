// Package peers is the root of a separate module, so that users of rma do not depend on
// the libraries that it is compared with:
//
//	play           the two sides of a measurement, and its definitions
//	cmd/rmapeer-*  a program for each library: net, gRPC, shmipc-go
//	npb            a script: examples/nas against the reference programs under MPI
//
// `rmabench compare` runs the programs.
package peers
