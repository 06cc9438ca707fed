// Package lint has no code but tests: the rules of the house that a compiler
// does not check. Imports point down, import "C" stays in verbs, unsafe stays
// in files that say so, nobody sleeps to synchronise.
package lint
