// Package settings declares everything that can be configured, each setting with its name,
// variable, field of rma.Config, type, bounds, default and the reason for it, and converts
// text to values.
//
// A [Setting] is declared once, in registry_*.go. The declarations determine the parsing of
// the environment and of settings files, the errors, the page docs/configuration.md and the
// output of `rmabench info --settings`. A new RMA_* variable needs a line there;
// internal/lint fails without it.
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
// The author of a program knows least about the machine that it runs on, the user who starts
// it knows most. An operator can therefore change any setting without a new binary, and for
// one run without editing a file.
//
// [Load] resolves all settings at once and reports all errors, not only the first. An
// unknown variable that begins with RMA_ is probably misspelt: it is listed in
// Values.Unknown with the nearest name, and is an error under RMA_STRICT=1. In a file it is
// always an error.
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
//	page_test.go    docs/configuration.md
//
// It imports nothing of this module and keeps no state. All functions may be called from any
// goroutine; a Values is read-only.
package settings

//go:generate go test -count=1 -run ^TestPageIsFresh$ . -update
