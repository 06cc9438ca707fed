// Package settings is the one list of everything that can be configured: each
// setting with its name, variable, field of rma.Config, type, bounds, default and
// the reason for it; and the one way from text to values.
//
// A [Setting] is declared once, in registry_*.go. From the declarations come the
// parsing of the environment and of settings files, the errors, the page
// docs/configuration.md and what `rmabench info --settings` prints. Whoever adds
// an RMA_* variable adds a line there; internal/lint fails the build of who does
// not.
//
// # Where a value comes from
//
// The later one wins:
//
//	default   the registry's, or what the setting says in Else
//	code      a field of rma.Config, or Config.Settings
//	file      the file named by RMA_CONFIG, else by Config.File
//	env       the variable
//
// The program's author knows least about the machine that it runs on, who starts
// it knows most: so an operator can change anything without a new binary, and a
// single run without editing a file.
//
// [Load] resolves all settings at once and reports everything that is wrong, not
// the first. A variable that begins with RMA_ and is not known is a slip of the
// pen more often than not: it is listed in Values.Unknown with the nearest name,
// and is an error under RMA_STRICT=1. In a file it is always an error.
//
// # Files
//
//	setting.go      Setting, Group; registry_*.go the declarations
//	foreign.go      variables of launchers
//	kind.go         types: how values are written, and their bounds
//	file.go         the file
//	load.go         Load: which source wins; values.go what it gives
//	nearest.go      what an unknown name was meant to be
//	errors.go       Error, Errors
//	page.go         docs/configuration.md
//
// It imports nothing of this module and keeps no state. All functions may be called from any
// goroutine; a Values is read-only.
package settings

//go:generate go test -count=1 -run ^TestPageIsFresh$ . -update
