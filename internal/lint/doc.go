// Package lint has no code but tests: the rules of the house that a compiler
// does not check. Imports point down, import "C" stays in verbs, unsafe stays
// in files that say so, tests do not sleep to synchronise nor fail because the
// machine is slow, types are small, uses between files of a package run downward,
// and functions on the hot path are cheap.
//
// Rules that count have their exceptions in testdata, with numbers that may only
// fall: go test ./internal/lint -update lowers them to what is true.
package lint
