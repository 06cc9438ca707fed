// Package owned asserts the rule of one owner: a link, and everything built on it, belongs
// to one goroutine at a time (docs/architecture.md). The assertions are compiled into
// programs built with the tag rmadebug; without it they cost nothing.
//
// Tests live beside the code; make debug runs those of the engine with the tag.
package owned
