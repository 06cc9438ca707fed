package bench

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

func samples() []Result {
	m := Machine{CPU: "Example CPU @ 2.00GHz", CPUs: 2, OS: "linux", Arch: "amd64", Kernel: "6.1.0", Go: "go1.26.0", TimerNS: 9.5}
	return []Result{
		{Test: Lat, Fabric: "shm", Op: Put, Size: 8, Iters: 123456, LatUS: Latency{0.14, 0.1512, 0.16, 0.2, 0.9, 33.25, 0.155}, MBs: 51.6, Mmsgs: 6.45, Seconds: 1, Machine: m},
		{Test: Lat, Fabric: "tcp", Op: Put, Size: 4096, Iters: 4321, LatUS: Latency{7, 7.5, 8, 12.345, 40, 1234.5, 7.7}, MBs: 532, Mmsgs: 0.13, Seconds: 1, Machine: m},
		{Test: BW, Fabric: "verbs", Op: Get, Size: 1 << 20, Iters: 640, LatUS: Latency{900, 1000, 1100, 1200, 1300, 1400, 1001}, MBs: 14950.5, Mmsgs: 0.0142, Seconds: 1, Window: 64, Round: 1, Validated: true, Label: "in a/VM", Machine: m},
		{Test: Rate, Fabric: "shm", Op: FAdd, Size: 8, Iters: 1e7, LatUS: Latency{1, 2, 3, 4, 5, 6, 2}, MBs: 80, Mmsgs: 10, Seconds: 1, Window: 128, Machine: m},
	}
}

func TestFormatsGolden(t *testing.T) {
	t.Parallel()
	for _, f := range Formats {
		var b bytes.Buffer
		w, err := NewWriter(&b, f)
		require.NoError(t, err)
		for _, r := range samples() {
			require.NoError(t, w.Write(r))
		}
		name := filepath.Join("testdata", f+".golden")
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(name, b.Bytes(), 0o644))
		}
		want, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, string(want), b.String(), "%s; go test -update rewrites", f)
	}
	_, err := NewWriter(nil, "xml")
	require.ErrorIs(t, err, ErrFormat)
}

// The contract of --format json: names and places of the fields that other programs
// read.
func TestJSONContract(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w, err := NewWriter(&b, "json")
	require.NoError(t, err)
	for _, r := range samples() {
		require.NoError(t, w.Write(r))
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	require.Len(t, lines, len(samples()))
	for _, l := range lines {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(l), &m))
		for _, k := range []string{"size", "iters", "mb_s", "mmsg_s"} {
			require.IsType(t, 0.0, m[k], k)
		}
		for _, k := range []string{"test", "fabric", "op"} {
			require.IsType(t, "", m[k], k)
		}
		lat, _ := m["lat_us"].(map[string]any)
		for _, k := range []string{"min", "p50", "p99", "max"} {
			require.IsType(t, 0.0, lat[k], k)
		}
	}
	back, err := ReadJSON(&b)
	require.NoError(t, err)
	require.Equal(t, samples(), back)
}

func TestCSVHasAsManyFieldsAsItsHeader(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w, err := NewWriter(&b, "csv")
	require.NoError(t, err)
	for _, r := range samples() {
		require.NoError(t, w.Write(r))
	}
	rows, err := csv.NewReader(&b).ReadAll() // it fails if a row's length differs
	require.NoError(t, err)
	require.Equal(t, csvColumns, rows[0])
	require.Len(t, rows, 1+len(samples()))
}

func TestReadJSONRefuses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "{", "[]", `{"test":"lat"}`, `{"test":"lat","op":"put","size":8}`, `{"test":"lat","op":"put","size":-8,"fabric":"shm"}`,
		`{"test":"lat","op":"put","size":8,"fabric":"shm","mb_s":-1}`, `{"test":"no","op":"put","size":8,"fabric":"shm"}`,
		`{"test":"lat","op":"put","size":8,"fabric":"` + strings.Repeat("x", maxLine) + `"}`,
	} {
		_, err := ReadJSON(strings.NewReader("\n" + s + "\n"))
		require.ErrorIs(t, err, ErrFormat, s[:min(len(s), 80)])
	}
}

func FuzzReadJSON(f *testing.F) {
	b, _ := json.Marshal(samples()[0])
	f.Add(b)
	f.Add([]byte("{}\n{}"))
	f.Add([]byte(`{"test":"bw","op":"get","size":1,"fabric":"x","lat_us":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		rs, err := ReadJSON(bytes.NewReader(b))
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		Sort(rs)
		for _, f := range Formats {
			w, err := NewWriter(&bytes.Buffer{}, f)
			require.NoError(t, err)
			for _, r := range rs {
				require.NoError(t, w.Write(r))
			}
		}
	})
}

func TestSort(t *testing.T) {
	t.Parallel()
	rs := samples()
	rs[0], rs[3] = rs[3], rs[0]
	Sort(rs)
	require.Equal(t, samples(), rs)
}
