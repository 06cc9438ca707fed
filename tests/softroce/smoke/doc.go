// Package smoke proves the softroce harness from inside: its tests run in a
// guest (or natively) beside programs nobody here wrote, Debian's ibverbs-utils,
// and check that the devices are there, that packets really cross the wire and
// that a program sees what the documentation promises.
//
// It may import internal/testutil. It has no code but tests, which
// `make softroce` runs before those of the project; elsewhere they skip.
package smoke
