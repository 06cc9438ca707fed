package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed33544411/rma"
)

// Options configures a Collector. The zero value, and nil, are usable.
type Options struct {
	// Labels are put on every metric, for processes with several engines, or to
	// name the job. "rank" is taken, and so are the labels of the metrics themselves:
	// a registry refuses a collector that has one twice.
	Labels prometheus.Labels

	// PerPeer adds metrics for each peer, with labels "peer" and "link". A job of
	// n ranks then has n² of each: for small jobs. Default: none.
	PerPeer bool
}

// Collector implements prometheus.Collector for one engine.
type Collector struct {
	stats func() rma.Stats
	peers func() []rma.PeerStats // nil: none

	total []*prometheus.Desc // by index in totals
	each  []*prometheus.Desc // by index in eachPeer
}

// NewCollector returns a collector for eng, which the caller registers. o may be
// nil. It does not keep the engine open.
func NewCollector(eng *rma.Engine, o *Options) *Collector {
	return newCollector(eng.Rank(), eng.Stats, func() []rma.PeerStats {
		all := make([]rma.PeerStats, eng.Size())
		for r := range all {
			all[r] = eng.Peer(r).Stats()
		}
		return all
	}, o)
}

func newCollector(rank int, stats func() rma.Stats, peers func() []rma.PeerStats, o *Options) *Collector {
	if o == nil {
		o = new(Options)
	}
	labels := prometheus.Labels{}
	for k, v := range o.Labels {
		labels[k] = v
	}
	labels["rank"] = strconv.Itoa(rank)
	c := &Collector{stats: stats}
	for _, m := range totals {
		c.total = append(c.total, prometheus.NewDesc(m.name, m.help, m.names(), labels))
	}
	if o.PerPeer {
		c.peers = peers
		for _, m := range eachPeer {
			c.each = append(c.each, prometheus.NewDesc(m.name, m.help, append([]string{"peer", "link"}, m.names()...), labels))
		}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range append(c.total, c.each...) {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.stats()
	for i, m := range totals {
		for _, x := range m.values {
			ch <- prometheus.MustNewConstMetric(c.total[i], m.kind, x.of(&s), x.labels()...)
		}
	}
	if c.peers == nil {
		return
	}
	for _, p := range c.peers() {
		peer := []string{strconv.Itoa(p.Rank), p.Link}
		for i, m := range eachPeer {
			for _, x := range m.values {
				ch <- prometheus.MustNewConstMetric(c.each[i], m.kind, x.of(&p), append(peer, x.labels()...)...)
			}
		}
	}
}
