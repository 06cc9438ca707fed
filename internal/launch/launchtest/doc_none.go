//go:build !unix

// Package launchtest runs jobs for tests of programs, on systems that can start
// them.
package launchtest
