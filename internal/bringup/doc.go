// Package bringup prepares the links of a job: it opens them, chooses one for each pair of
// ranks, measures them for the cost model, and connects ranks at their first operation, and
// again after a connection was lost. It is internal to rma.
//
//	links.go            links that the ranks of a job have in common: Links
//	hosts.go            what depends on the hosts of ranks: how long waits spin, Ps, Place
//	calibrate.go        one pair of ranks measures each kind of link; figures.go: the figures that it publishes
//	batches.go          whole batches played by that pair
//	paths.go            the parameters of each path, by class of peers: Path
//	survey.go           paths of further classes are measured in the background
//	copy_thresholds.go  sizes from which the processor copies by each method
//	drift.go            a link whose times differ from its measurement
//	dialer.go           the connections of an engine: Dialer, and with one peer: Connector
//	connection.go       one connection, from the first operation to its end
//	rails.go            further connections with a peer
//	rail_value.go       what two ranks send each other about one: RailValue
//	request.go          connection requests and refusals
//	tasks.go            the goroutines of an engine
//
// Every step of Open and Calibrate that exchanges data is taken by all ranks or by none: the
// data that decides it is known to all alike. Data of other ranks is not trusted: it
// concerns only the links and the connection with them.
//
// A Connector belongs to a peer of the engine, which it notifies of events of the
// connection: see Peer. Links and endpoints have one owner at a time (package progress); all
// code here that uses them runs in progress.Engine.Do.
package bringup
