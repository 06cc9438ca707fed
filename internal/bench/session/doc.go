// Package session starts or finds the two measuring ranks of internal/bench: as processes of
// this host ([Local]), in the job of a launcher ([InJob]), or on two hosts ([Serve],
// [Connect]).
//
// # Files
//
//	session.go  measuring in a job; opening and connecting a fabric's link
//	local.go    Local, and Children, the processes that are started
//	plogp.go    the same for sampling; rails.go for several links; sockets.go, overlap.go and
//	collective.go  for what these measure
//	startup.go  the same for starts of engines
//	engine.go   the same through package rma, for pairs of ranks
//	choice.go   the same for comparing modes
//	remote.go   Serve and Connect
//
// It may import the same packages as the commands. Tests run real processes.
package session
