// Package metrics exports the counters of an rma engine to Prometheus. It is a separate
// module, so that programs without Prometheus do not depend on it.
//
// The package is meant to be imported by applications, and is as stable as package rma.
//
//	reg.MustRegister(metrics.NewCollector(eng, nil))
//	http.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
//
// A [Collector] stores nothing: each scrape reads the counters of the engine, which takes
// about 0.1 µs per peer (see rma.Engine.Stats). All metrics have a label "rank". Metrics of
// single peers are off by default, because a job of n ranks has n² of each.
//
// # Names
//
// Counters end in _total, quantities in bytes in _bytes; testdata/metrics.txt is the
// complete output. The names are stable, because renaming one breaks dashboards: add a new
// one, and keep the old one.
//
// # Files
//
//	collector.go   Collector
//	table.go       every metric: name, help, and where its value comes from
//
// Methods may be called from any goroutine, also after the engine was closed.
package metrics
