// Package lint has no code but tests: the rules of the house that a compiler
// does not check. Imports point down, import "C" stays in verbs, unsafe stays
// in files that say so, nobody sleeps to synchronise, types are small, and uses
// between files of a package run downward.
//
// Rules that count have their exceptions in testdata, with numbers that may only
// fall: go test ./internal/lint -update lowers them to what is true.
package lint
