package metrics

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
)

var update = flag.Bool("update", false, "write testdata/metrics.txt")

// numbers gives every number in v, a pointer to a struct, a value of its own, made
// of its name so that a new field changes no other. It returns them by name.
func numbers(t *testing.T, v any) map[string]int {
	t.Helper()
	all, used := map[string]int{}, map[int]string{}
	var fill func(path string, v reflect.Value)
	fill = func(path string, v reflect.Value) {
		for i := range v.NumField() {
			f, name := v.Field(i), path+"."+v.Type().Field(i).Name
			h := fnv.New32a()
			h.Write([]byte(name))
			n := 100_000 + int(h.Sum32()%900_000)
			switch {
			case f.Kind() == reflect.Struct:
				fill(name, f)
				continue
			case f.Type() == reflect.TypeFor[time.Duration]():
				f.SetInt(int64(time.Duration(n) * time.Second)) // which is the unit of metrics
			case f.CanInt():
				f.SetInt(int64(n))
			case f.CanUint():
				f.SetUint(uint64(n))
			default:
				continue
			}
			require.Empty(t, used[n], "%s has the same number", name)
			all[name], used[n] = n, name
		}
	}
	e := reflect.ValueOf(v).Elem()
	fill(e.Type().Name(), e)
	return all
}

// scrape is what Prometheus would get.
func scrape(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c))
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems, "names by Prometheus' conventions")
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code)
	b, err := io.ReadAll(w.Result().Body)
	require.NoError(t, err)
	return string(b)
}

// fixed is a collector whose every number is another one.
func fixed(t *testing.T) (c *Collector, all map[string]int) {
	var s rma.Stats
	var p rma.PeerStats
	all = numbers(t, &s)
	maps.Copy(all, numbers(t, &p))
	delete(all, "Stats.Rank") // a label, as the peer's
	delete(all, "PeerStats.Rank")
	s.Rank, p.Rank, p.Link, p.Messaging = 5, 1, "shm", true
	gone := p
	gone.Rank, gone.Link, gone.Messaging, gone.Err = 2, "tcp", false, errors.New("gone")
	return newCollector(s.Rank, func() rma.Stats { return s }, func() []rma.PeerStats { return []rma.PeerStats{p, gone} },
		&Options{PerPeer: true, Labels: prometheus.Labels{"job_name": "test"}}), all
}

func TestOutput(t *testing.T) {
	const golden = "testdata/metrics.txt"
	c, _ := fixed(t)
	have := scrape(t, c)
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(have), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), have, "names are stable; go test -update writes what is added")
}

// Whatever rma counts is a metric.
func TestNothingIsLeftOut(t *testing.T) {
	c, all := fixed(t)
	out := scrape(t, c)
	for name, n := range all {
		if !strings.Contains(out, fmt.Sprintf(" %v\n", float64(n))) {
			t.Errorf("%s is in no metric", name)
		}
	}
}

// A real engine: what it did is what is scraped, before and after it is closed.
func TestEngine(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	eng, err := rma.Open(ctx, &rma.Config{Sampling: "off", Job: &rma.Job{Size: 1}})
	require.NoError(t, err)
	defer eng.Close()
	mem, err := eng.Alloc(4096)
	require.NoError(t, err)
	key := mem.Key()
	for range 3 {
		require.NoError(t, eng.Peer(0).Put(key.At(64), mem.Slice(0, 64)).Wait(ctx))
	}
	c := NewCollector(eng, nil)
	want := `# HELP rma_bytes_total Bytes that operations moved.
# TYPE rma_bytes_total counter
rma_bytes_total{op="get",rank="0"} 0
rma_bytes_total{op="put",rank="0"} 192
rma_bytes_total{op="receive",rank="0"} 0
rma_bytes_total{op="send",rank="0"} 0
# HELP rma_job_ranks Ranks in the job.
# TYPE rma_job_ranks gauge
rma_job_ranks{rank="0"} 1
# HELP rma_regions Memory regions registered and not closed.
# TYPE rma_regions gauge
rma_regions{rank="0"} 1
`
	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(want), "rma_bytes_total", "rma_job_ranks", "rma_regions"))
	require.NotContains(t, scrape(t, c), "rma_peer_")
	require.Contains(t, scrape(t, NewCollector(eng, &Options{PerPeer: true})), `rma_peer_operations_total{link="`+eng.Peer(0).Link()+`",op="put",peer="0",rank="0"} 3`)
	require.NoError(t, eng.Close())
	require.Contains(t, scrape(t, c), `rma_bytes_total{op="put",rank="0"} 192`)
}

// The page that says what to alert on speaks of metrics that there are.
func TestPageNamesMetrics(t *testing.T) {
	page, err := os.ReadFile("../docs/observability.md")
	require.NoError(t, err)
	c, _ := fixed(t)
	out := scrape(t, c)
	names := regexp.MustCompile(`\brma_[a-z_]+[a-z]`).FindAllString(string(page), -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.Contains(t, out, "# TYPE "+name+" ")
	}
}
