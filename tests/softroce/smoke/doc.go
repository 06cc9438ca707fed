// Package smoke tests the softroce harness from inside: its tests run in a guest (or
// natively) beside independent programs, Debian's ibverbs-utils, and check that the devices
// exist, that packets really cross the wire and that the promises of the documentation hold
// for a program.
//
// It may import internal/testutil. It contains only tests, which `make softroce` runs
// before those of the project; elsewhere they skip.
package smoke
