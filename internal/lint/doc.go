// Package lint consists of tests, for the rules of the project that a compiler does not
// check: imports point down, import "C" stays in verbs, unsafe stays in files named for it,
// tests neither sleep to synchronise nor fail because the machine is slow, types are small,
// uses between files of a package run downward, functions on the hot path are cheap,
// fuzz targets have a saved corpus, and terms are those of the field.
//
// Rules that count have their exceptions in testdata, with numbers that may only fall: go
// test ./internal/lint -update lowers them to the present counts.
package lint
