// Package choice evaluates the choices of the cost model: it plays batches between two ranks
// in every forced mode and by the automatic choice, in alternation, and compares the times
// with each other and with the model's prediction.
//
// # Definitions
//
//   - A time is half a round trip of a whole batch (package pingpong): the lower quartile of
//     the rounds, each the lower quartile of its trips. Other work on a machine only adds
//     time, and on a busy machine the median reflects that work, not the link.
//   - regret = auto / least forced − 1. Negative if a mixed plan beats every single mode. It
//     includes the cost of a wrong choice and the cost of choosing.
//   - choosing = auto / forced mode of the same plan − 1: the cost of choosing.
//   - noise: the difference between two series of one forced mode, which is the contribution
//     of the machine.
//   - intervals are of 95 %, by a bootstrap of the rounds (Interval).
//   - prediction error = predicted/measured − 1.
//
// Over verbs, batches are also transferred by send and receive queues, as the reference
// (logp.Params.SendRecv); the engine never does that. Their time is a whole one, from the posting
// of the receives to the last completion.
//
// Puts and gets of several pieces are compared in the same way, with ways (logp.Way) in the
// place of modes; their time is from the call to the placement of the pieces.
//
// The link is sampled (package sampling) and the channel calibrated
// (pingpong.Side.Calibrate) when a run begins; the model is not updated afterwards, so that
// all cells are predicted with the same parameters. The batches of the calibration are
// independent of the cells, though some may coincide.
//
// # Files
//
//	grid.go     Cell, Grid, the mixes of sizes; batches on the command line
//	request.go  Request and its checks on both sides
//	rank.go     Run: set-up and schedule
//	result.go   Result, Summary
//	interval.go the rounds of a cell's series; confidence intervals
//	pieces.go   puts and gets of several pieces: chain, group, automatic choice
//	mover.go    the one-sided operations of two ranks, moving pieces
//	sendrecv.go two-sided messages over verbs, the reference
//	format.go   table and JSON lines
//	explain.go  one batch, term by term
//	curve.go    bandwidth over size, step by step around every switch
//	mixing.go   the planner beside single modes and fixed thresholds
//	ablate.go   single design choices, each with all else equal
package choice
