//go:build rma_zoo

package verbs

// The build tag rma_zoo compiles zoo_linux.h into the shim: a device that behaves like
// another one, as the variable RMA_ZOO says. It is for tests.

// #cgo CFLAGS: -DRMA_ZOO -pthread
import "C"
