// Package peers is the root of a module of its own, so that no one who uses rma has
// the libraries that it is compared with:
//
//	play           the two sides of a measurement, and its definitions
//	cmd/rmapeer-*  a program for each library: net, gRPC, shmipc-go
//
// `rmabench compare` runs them.
package peers
