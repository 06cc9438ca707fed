// Package logp is the cost model of the engine: a parameterised LogP description of one
// direction of a link ([Params]), the predicted time of a batch of messages in each mode
// ([Params.Cost]), the choice among the modes ([Params.Choose]), and the fastest partition
// of a batch ([Planner.Plan]). It is pure: it has no clock, no goroutine, no I/O, and
// imports only internal/enum and the standard library.
//
// The engine below package rma uses it to plan. It is independent of the engine, and
// programs may import it to predict the cost of transfers; its names may change in any
// release.
//
// # Units
//
// Times are nanoseconds in float64, sizes are bytes in int64.
//
// # Modes
//
//	eager    one write per message into the next block of the peer's ring
//	gather   one write for many messages: header, then a list of pieces
//	scatter  a descriptor is written; the receiver reads into final places
//
// # Formulas
//
// For messages m1…mn of one part, S = Σ mi; c, h, d and r are the wire sizes in
// [Limits], k the number of contiguous source regions:
//
//	eager    Σ Os(mi) + (n−1)·g + Ls
//	gather   Os(S + h·n + c) + Ls
//	scatter  Os(d·n + c) + k·Os(r) + Σ Os(region) + (k−1)·g + 2·Ls + Lh
//
// These are the costs of R. Prou, "Gestion des communications centrée sur les
// accès mémoire à distance", 2015 (hal-01252752), sections 2.2.2, 2.2.3, 2.3.1
// and 2.3.2; scatter there has one source region. With [Limits.Cursor] each mode
// adds one cursor update Os(0) + g (sections 2.4.1, 2.4.2). The thesis leaves out,
// and [Params.Cost] adds:
//
//	post      a + b·w for w work requests of one posting call; scatter posts its
//	          reads in a separate call: a + b·k
//	receive   Or of every operation that arrives in a ring (write or descriptor)
//	copy out  C(m) at the sender: eager below Limits.EagerInPlace, gather for
//	          staged messages
//	copy in   C(m) from ring to destination: eager and gather, unless InPlace
//	register  R(m) at the end whose buffer is not registered: scatter
//	credit    the expected wait for room in the ring, Batch.Wait, and within a batch
//	          that is larger than it: credit.go
//	memory    Memory(S) once: the cost of a batch beyond the caches, memory.go
//	extra     the other costs of a link, Params.Extra, fitted by measurement
//	learned   (Scale−1) × everything above except credit and the shared terms
//
// A gather beyond [Limits.MaxSGE] or [Limits.GatherMax], and a scatter beyond
// [Limits.ScatterSegs], is divided into several work requests, g apart.
//
// The parts of a plan share one posting call and one link: their occupancies add up, any
// two operations are g apart, and their latencies overlap. Thus
//
//	total = a + Σ occupancy + (operations−1)·g + max latency + max credit
//
// For one part this is the formula of its mode. Cursor updates and Extra.Fixed count once
// for each mode that the plan uses; a negative Extra.Fixed counts as part of the mode's
// latency. docs/model.md explains all terms, with a worked example.
//
// # Concurrency and ownership
//
// [Curve] and [Params] are immutable values, and may be read by any number of goroutines. A
// [Planner], a [Refiner] and an [Observer] belong to one goroutine.
//
// # Errors
//
// Decoded data ([ParseParams], UnmarshalJSON) is not trusted until it is checked. Errors
// wrap ErrCurve, ErrParams, ErrBatch or ErrInfeasible.
//
// # Files
//
//	curve.go    Curve: piecewise-linear size → time; fit.go: monotone fit
//	params.go   Params: the sampled description of a link direction
//	mode.go     Mode, ModeSet
//	batch.go    Message, Limits, Batch; errors
//	cost.go     Term, Cost, and the formulas above; which mode can carry a message
//	plan.go     Plan, Part, PlanCost; Choose: the best single mode, and Switches: the
//	            sizes at which it changes
//	planner.go  Planner: plans, cached by batch shape (shape.go); policy.go
//	table.go    Tables: the text of tables of modes, and which rows decided
//	pieces.go   Pieces: puts and gets of several pieces, as a chain or as a group
//	direct.go   transfers that are no mode: Direct, a message that is written to a
//	            destination known before; SendRecv, two-sided messages, for comparison
//	explain.go  Explain: every candidate, term by term, and why
//	fitextra.go FitExtra: costs beyond the curves, from measured batches
//	fitheld.go  FitExtraHeldOut: the same from few batches, tested on others
//	refine.go   Refiner: corrections learned from measured batches
//	observe.go  Observer: the same from the sender's observations
//	credit.go   waiting for credit; memory.go costs beyond the caches
//	search.go   the search: messages priced (prices.go) and sorted; path.go: where they
//	            are cut, and the shortest path over the cuts; ring.go: parts in order,
//	            batches larger than the ring; emit.go: the plan, mixed or of one mode
package logp
