// Package migrating has the code of docs/migrating.md: what programs written for
// MPI, UCX or gRPC do, with rma. Its test runs all of it on jobs of two ranks.
package migrating
