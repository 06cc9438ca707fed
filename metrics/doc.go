// Package metrics offers the counters of an rma engine to Prometheus. It is a
// module of its own, so that programs without Prometheus do not depend on it.
//
// The package is meant to be imported by applications, and is as stable as package rma.
//
//	reg.MustRegister(metrics.NewCollector(eng, nil))
//	http.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
//
// A [Collector] keeps nothing: it asks the engine when it is scraped, which takes
// about 0.1 µs a peer (see rma.Engine.Stats). All metrics have a label "rank".
// Those of single peers are off unless asked for, because a job of n ranks has n²
// of each.
//
// # Names
//
// Counters end in _total, what is measured in bytes in _bytes; testdata/metrics.txt
// is the whole output, and names in it are stable. Renaming one breaks dashboards:
// add, and keep the old one.
//
// # Files
//
//	collector.go   Collector
//	table.go       every metric: name, help, and where its value comes from
//
// Methods may be called from any goroutine, also after the engine was closed.
package metrics
