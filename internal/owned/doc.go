// Package owned asserts the rule of one owner: a link, and what is built on it,
// belongs to one goroutine at a time (docs/architecture.md). It does so in programs
// built with the tag rmadebug; without it the assertions compile to nothing.
//
// Tests live beside the code; make debug runs those of the engine with the tag.
package owned
