// Command suites runs the tests of other projects over rmanet: those of packages of the
// standard library, and of modules that package net's connections are under. Nothing
// of them is kept in this repository: they come from GOROOT and the module proxy.
//
//	tests/suites/run                  or: make suites
//	SUITES=yamux,net/rpc tests/suites/run -links loopback,shm -json out/suites.json
//
// GOROOT is copied to .cache/suites. Its package net gets two variables, at the top of
// ListenConfig.Listen and in front of each dial, and testdata/hook.go sets them in
// every test binary: what listens on the loopback address, and who dials it, is
// connected by rmanet between two engines of the process, with addresses that look like
// sockets'. This module and what it imports are copied beside, with other import paths,
// because packages of the standard library cannot import modules. Then every suite runs
// over sockets and over each link. A test that fails over a link, not over sockets, and
// is not named in suites.go with a reason, is run again by itself, twice at most; if it
// fails still the exit code is 1.
//
// (nettest, the suite for net.Conn, is a test of rmanet itself.)
//
//	suites.go  what is run, and what differs for a reason
//	goroot.go  the copy of GOROOT; modules and their edits
//	measure.go running and counting; group_*.go processes that end together
//	main.go    the table
package main
