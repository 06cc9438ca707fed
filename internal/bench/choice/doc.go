// Package choice proves the choices of the cost model: it plays batches between
// two ranks in every forced mode and by the automatic choice, taking turns, and
// compares the times with each other and with what the model predicts.
//
// # Definitions
//
//   - A time is half a round trip of a whole batch (package pingpong): the
//     lower quartile of the rounds, each the lower quartile of its trips. What else runs
//     on a machine only adds, and on a busy one the median is its share, not the link's.
//   - regret = auto / least forced − 1. Negative where a mixed plan beats every
//     single mode. It holds what a wrong choice costs, and what choosing costs.
//   - choosing = auto / forced mode of the same plan − 1: what choosing costs.
//   - noise: how far two series of one forced mode differ, which is what the machine
//     adds by itself.
//   - intervals are of 95 %, by a bootstrap of the rounds (Interval).
//   - prediction error = predicted/measured − 1.
//
// The link is sampled (package sampling) and the channel calibrated
// (pingpong.Side.Calibrate) when a run begins; nothing is learned afterwards, so
// that all cells are predicted by the same parameters. Cells are no part of what
// is calibrated with, though some may coincide.
//
// # Files
//
//	grid.go     Cell, Grid, the mixes of sizes; batches on the command line
//	request.go  Request and its checks on both sides
//	rank.go     Run: set-up and schedule
//	result.go   Result, Summary
//	interval.go the rounds of a cell's series; confidence intervals
//	format.go   table and JSON lines
//	explain.go  one batch, term by term
//	curve.go    bandwidth over size, step by step around every switch
//	mixing.go   the planner beside single modes and fixed thresholds
//	ablate.go   single design choices, each with all else equal
package choice
