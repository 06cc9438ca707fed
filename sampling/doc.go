// Package sampling measures the parameters of package logp for a link: over one connected
// pair of endpoints, in both directions, within a budget. Both peers end with the same
// tables.
//
// The package is a part of the engine below package rma. Applications use rma; the exported
// names may change in any release.
//
// A [Session] runs at either end of the connection. The two measure in turns while the other
// serves: on a machine with fewer processors than processes, simultaneous measurements would
// disturb each other. The result is kept in a [Store], so that the next start only checks
// whether it is still plausible.
//
//	s, err := sampling.Open(link, ep, sampling.Options{First: rank < peer, EP: id, Store: store})
//	blob := s.Setup().Append(nil)        // to the peer, out of band
//	err = s.Connect(theirs)              // the peer's set-up, parsed
//	res, err := s.Run(ctx)               // on both sides
//	out, in := res.Out(), res.In()
//
// A session polls the link itself. It runs before the progress engine starts,
// or as the link's owner instead of it.
//
// # A turn
//
//	the budget    starts when the peer has answered for the first time
//	hush          from here on the peer sleeps, unless its link needs its polls
//	reads         8 bytes                                                     Lh
//	chains of 8   one write compared with many posted by one call             g, Ocpu
//	ball          8 bytes there and back, with the peer polling               Ls
//	hush          it sleeps again
//	locally       idle polls, copies, registrations and reads of private memory  Or, C, R
//	grid          one write compared with a chain, powers of two              Os
//	refine        points where the curve bends, then those of low confidence
//
// half.go has the formulas. Each part has a share of the turn, so that a slow first part
// cannot use up the budget of the others; an operation that would not fit is not started.
// Parameters for which no time was left come from [Defaults], with confidence 0. Samples are
// medians without outliers, fitted curves never fall, and every parameter has a confidence
// (stat.go).
//
// # Agreement
//
// Each side sends its half to the other; both merge the same two halves in the same order,
// so that the tables are identical. A saved profile is used only if both sides have one
// with the same digest, and the first side finds it plausible.
//
// # Hostile peers
//
// Set-ups, messages and files are checked before use: sizes, numbers, ranges, sequence. A
// peer can falsify this side's parameters, as it could by being slow; it cannot make this
// side access memory outside the session's region, allocate without bound, or hang: every
// wait has a deadline.
//
// # Units, concurrency, ownership
//
// Times are ns in float64 except where the type is time.Duration; sizes are bytes. A Session
// belongs to one goroutine, and owns the link during Run. A Store may be shared. The link
// and the endpoint remain the caller's; close the endpoint before the Session if Run failed.
//
// # Imports and files
//
// Imports fabric, logp, internal/bulk, internal/cpu, internal/offheap, internal/poller, internal/topo.
//
//	options.go   Options, Mode, sentinel errors
//	setup.go     the region's layout, Setup
//	session.go   Open, Connect, Run: the steps of both sides
//	mailbox.go   messages and the ball between the sides, serving
//	wait.go      posting, naps (internal/poller polls and waits); cell_unsafe.go words that the peer writes
//	turn.go      one side's measurement: its parts, shares and samples
//	trips.go     balls, reads, posting; grid.go chains over the sizes, and where to
//	             sample more; local.go measurements without the peer
//	stat.go      medians, outliers, confidence
//	half.go      from samples to parameters
//	merge.go     Tables, Result, agreement
//	recheck.go   plausibility of a profile
//	near.go      classes of peers; copies.go how large blocks are copied to them
//	profile.go   Key, Profile and its codec; disk.go the tables in it; store.go files, nonblock_*.go
//	drift.go     comparing two measurements
//
// Learning from completed transfers is in logp.Observer.
//
// Tests: model_test.go recovers known parameters from a link with a virtual
// clock (world_test.go); links_test.go and ibv_test.go run over real ones.
package sampling
