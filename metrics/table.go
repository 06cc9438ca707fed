package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed33544411/rma"
)

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// metric is a family: its values, one for each value of its label, or one.
type metric[S any] struct {
	name, help string
	kind       prometheus.ValueType
	label      string
	values     []value[S]
}

// value is where a number comes from.
type value[S any] struct {
	label string
	of    func(*S) float64
}

func (m *metric[S]) names() []string {
	if m.label == "" {
		return nil
	}
	return []string{m.label}
}

func (v *value[S]) labels() []string {
	if v.label == "" {
		return nil
	}
	return []string{v.label}
}

// one is the value of a family without label.
func one[S any](of func(*S) float64) []value[S] { return []value[S]{{of: of}} }

// totals are the metrics of an engine.
var totals = append(common("rma_", func(s *rma.Stats) (*rma.Counts, *rma.MessageStats) { return &s.Counts, &s.Messages }), []metric[rma.Stats]{
	{"rma_operations_queued", "Operations that wait to be posted to a link.", gauge, "", one(func(s *rma.Stats) float64 { return float64(s.Queued) })},
	{"rma_operations_in_flight", "Operations posted and not complete.", gauge, "", one(func(s *rma.Stats) float64 { return float64(s.InFlight) })},
	{"rma_operations_outstanding", "Operations posted by the application and not complete, without receives.", gauge, "", one(func(s *rma.Stats) float64 { return float64(s.Outstanding) })},
	{"rma_job_ranks", "Ranks in the job.", gauge, "", one(func(s *rma.Stats) float64 { return float64(s.Size) })},
	{"rma_peers_connected", "Peers with a connection, which is made at the first operation.", gauge, "", one(func(s *rma.Stats) float64 { return float64(s.PeersConnected) })},
	{"rma_peers_talking", "Peers with an open message channel.", gauge, "", one(func(s *rma.Stats) float64 { return float64(s.PeersMessaging) })},
	{"rma_peers_down", "Peers whose connection was lost.", gauge, "", one(func(s *rma.Stats) float64 { return float64(s.PeersDown) })},
	{"rma_pinned_bytes", "Memory kept registered for messages that the application did not register.", gauge, "", one(func(s *rma.Stats) float64 { return float64(s.Pinned) })},
	{"rma_pins_total", "Messages from or to memory that was pinned for them.", counter, "found", []value[rma.Stats]{
		{"registered", func(s *rma.Stats) float64 { return float64(s.PinHits) }}, {"unregistered", func(s *rma.Stats) float64 { return float64(s.PinMisses) }},
	}},
	{"rma_rings_bytes", "Memory of rings after the first ones.", gauge, "", one(func(s *rma.Stats) float64 { return float64(s.Rings.Memory) })},
	{"rma_rings_limit_bytes", "Bound of that memory.", gauge, "", one(func(s *rma.Stats) float64 { return float64(s.Rings.Limit) })},
	{"rma_rings_total", "Rings replaced by larger and by smaller ones, or not for lack of memory.", counter, "change", []value[rma.Stats]{
		{"grown", func(s *rma.Stats) float64 { return float64(s.Rings.Grown) }}, {"shrunk", func(s *rma.Stats) float64 { return float64(s.Rings.Shrunk) }},
		{"refused", func(s *rma.Stats) float64 { return float64(s.Rings.Refused) }},
	}},
	{"rma_paths_measured_total", "Classes of paths measured in the background.", counter, "", one(func(s *rma.Stats) float64 { return float64(s.PathsMeasured) })},
	{"rma_paths_seconds_total", "Time spent measuring paths.", counter, "", one(func(s *rma.Stats) float64 { return s.PathsTime.Seconds() })},
	{"rma_paths_bytes_total", "Bytes moved to measure paths.", counter, "", one(func(s *rma.Stats) float64 { return float64(s.PathsBytes) })},
	{"rma_regions", "Memory regions registered and not closed.", gauge, "", one(func(s *rma.Stats) float64 { return float64(s.Regions) })},
}...)

// eachPeer are the metrics of single peers.
var eachPeer = append(common("rma_peer_", func(s *rma.PeerStats) (*rma.Counts, *rma.MessageStats) { return &s.Counts, &s.Messages }), []metric[rma.PeerStats]{
	{"rma_peer_operations_queued", "Operations that wait to be posted to a link.", gauge, "", one(func(s *rma.PeerStats) float64 { return float64(s.Queued) })},
	{"rma_peer_operations_in_flight", "Operations posted and not complete.", gauge, "", one(func(s *rma.PeerStats) float64 { return float64(s.InFlight) })},
	{"rma_peer_operations_outstanding", "Operations posted by the application and not complete, without receives.", gauge, "", one(func(s *rma.PeerStats) float64 { return float64(s.Outstanding) })},
	{"rma_peer_connected", "Whether there is a connection.", gauge, "", one(func(s *rma.PeerStats) float64 { return truth(s.Connected) })},
	{"rma_peer_talking", "Whether a message channel is open.", gauge, "", one(func(s *rma.PeerStats) float64 { return truth(s.Messaging) })},
	{"rma_peer_up", "Whether the connection works.", gauge, "", one(func(s *rma.PeerStats) float64 { return truth(s.Err == nil) })},
}...)

// common are the metrics that an engine and a peer both have.
func common[S any](prefix string, of func(*S) (*rma.Counts, *rma.MessageStats)) []metric[S] {
	c := func(label string, f func(*rma.Counts) uint64) value[S] {
		return value[S]{label, func(s *S) float64 { c, _ := of(s); return float64(f(c)) }}
	}
	m := func(label string, f func(*rma.MessageStats) uint64) value[S] {
		return value[S]{label, func(s *S) float64 { _, m := of(s); return float64(f(m)) }}
	}
	return []metric[S]{
		{prefix + "operations_total", "Operations completed successfully.", counter, "op", []value[S]{
			c("put", func(c *rma.Counts) uint64 { return c.Puts }), c("get", func(c *rma.Counts) uint64 { return c.Gets }),
			c("atomic", func(c *rma.Counts) uint64 { return c.Atomics }), c("send", func(c *rma.Counts) uint64 { return c.Sends }),
			c("receive", func(c *rma.Counts) uint64 { return c.Receives }), c("signal", func(c *rma.Counts) uint64 { return c.Signals }),
			c("accumulate", func(c *rma.Counts) uint64 { return c.Accumulates }), c("served", func(c *rma.Counts) uint64 { return c.Served }),
		}},
		{prefix + "bytes_total", "Bytes that operations moved.", counter, "op", []value[S]{
			c("put", func(c *rma.Counts) uint64 { return c.PutBytes }), c("get", func(c *rma.Counts) uint64 { return c.GetBytes }),
			c("send", func(c *rma.Counts) uint64 { return c.SentBytes }), c("receive", func(c *rma.Counts) uint64 { return c.RecvBytes }),
		}},
		{prefix + "operations_failed_total", "Operations that failed.", counter, "", []value[S]{c("", func(c *rma.Counts) uint64 { return c.Failed })}},
		{prefix + "batches_total", "Batches sent; their messages count as sends.", counter, "", []value[S]{c("", func(c *rma.Counts) uint64 { return c.Batches })}},
		{prefix + "messages_total", "Messages sent in each mode.", counter, "mode", []value[S]{
			m("eager", func(m *rma.MessageStats) uint64 { return m.Eager }), m("gather", func(m *rma.MessageStats) uint64 { return m.Gathered }),
			m("scatter", func(m *rma.MessageStats) uint64 { return m.Fetched }), m("written", func(m *rma.MessageStats) uint64 { return m.Written }),
		}},
		{prefix + "gathered_writes_total", "Writes that carried several messages.", counter, "", []value[S]{m("", func(m *rma.MessageStats) uint64 { return m.Writes })}},
		{prefix + "descriptors_total", "Announcements of messages that the receiver fetches.", counter, "", []value[S]{m("", func(m *rma.MessageStats) uint64 { return m.Descriptors })}},
		{prefix + "adverts_total", "Receives advertised to peers before their message; late ones were declined.", counter, "when", []value[S]{
			m("all", func(m *rma.MessageStats) uint64 { return m.Adverts }), m("late", func(m *rma.MessageStats) uint64 { return m.LateAdverts }),
		}},
		{prefix + "plans_total", "Backlogs planned by the cost model.", counter, "", []value[S]{m("", func(m *rma.MessageStats) uint64 { return m.Plans })}},
		{prefix + "unexpected_messages_total", "Messages that arrived before their receive and were copied.", counter, "", []value[S]{m("", func(m *rma.MessageStats) uint64 { return m.Unexpected })}},
		{prefix + "credit_waits_total", "Times that a sender waited for credit of the receiver.", counter, "", []value[S]{m("", func(m *rma.MessageStats) uint64 { return m.CreditWaits })}},
		{prefix + "retries_total", "Times that the link's queue was full.", counter, "path", []value[S]{
			c("onesided", func(c *rma.Counts) uint64 { return c.Retries }), m("messages", func(m *rma.MessageStats) uint64 { return m.Retries }),
		}},
		{prefix + "atomic_retries_total", "Compare-and-swaps repeated by emulated atomics.", counter, "", []value[S]{c("", func(c *rma.Counts) uint64 { return c.AtomicRetries })}},
		{prefix + "backlogs_timed_total", "Backlogs timed to compare a link with its measurement.", counter, "", []value[S]{m("", func(m *rma.MessageStats) uint64 { return m.Timed })}},
		{prefix + "replans_total", "Times that timings changed the choice of modes.", counter, "", []value[S]{m("", func(m *rma.MessageStats) uint64 { return m.Replans })}},
		{prefix + "ways_drifting", "Modes of messages, of three per peer, whose times differ from the measurement of the link.", gauge, "", []value[S]{m("", func(m *rma.MessageStats) uint64 { return uint64(m.Drifting) })}},
		{prefix + "messages_backlog", "Messages waiting to be sent.", gauge, "", []value[S]{m("", func(m *rma.MessageStats) uint64 { return uint64(m.Backlog) })}},
		{prefix + "message_rings_bytes", "Rings of messages.", gauge, "at", []value[S]{
			m("self", func(m *rma.MessageStats) uint64 { return uint64(m.Ring) }), m("peer", func(m *rma.MessageStats) uint64 { return uint64(m.PeerRing) }),
		}},
		{prefix + "message_memory_bytes", "Memory of rings and staging on this side.", gauge, "", []value[S]{m("", func(m *rma.MessageStats) uint64 { return uint64(m.Memory) })}},
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
