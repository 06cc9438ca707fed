package compare

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Recorded output: ucx_perftest 1.13, fi_pingpong 1.17, NetPIPE 3.7.2,
// perftest 4.5, and those in csrc.
var outputs = []struct {
	file string
	peer *Peer
	job  Job
	want float64
}{
	{"ucx_bw64_final.txt", ucx, Job{Test: Test{Rate, 64}}, 0.399146},
	{"ucx_bw64_final.txt", ucx, Job{Test: Test{BW, 64}}, 399146 * 64 / 1e6},
	{"ucx_bw64_final.txt", ucx, Job{Test: Test{PutBW, 64}}, 399146 * 64 / 1e6},
	{"ucx_bw64.txt", ucx, Job{Test: Test{Rate, 64}}, 0.635582},
	{"ucx_lat8_final.txt", ucx, Job{Test: Test{Lat, 8}}, 4.897},
	{"ucx_lat8_final.txt", ucx, Job{Test: Test{Put, 8}}, 4.897},
	{"ucx_bw1m_final.txt", ucx, Job{Test: Test{BW, 1 << 20}}, 1048576 / 1538.861},
	{"fi_lat8.txt", libfabric, Job{Test: Test{Lat, 8}}, 106.61},
	{"fi_lat1000.txt", libfabric, Job{Test: Test{Lat, 1000}}, 0.67},
	{"fi_lat65536.txt", libfabric, Job{Test: Test{Lat, 64 << 10}}, 220.55},
	{"fi_lat1048576.txt", libfabric, Job{Test: Test{Lat, 1 << 20}}, 2849.35},
	{"nptcp_lat8.txt", netpipe, Job{Test: Test{Lat, 8}, Iters: 5000}, 187.83},
	{"npopenmpi_lat8.txt", openmpi, Job{Test: Test{Lat, 8}, Iters: 20000}, 0.12907},
	{"npmpich2_lat8.txt", mpich, Job{Test: Test{Lat, 8}, Iters: 20000}, 0.25265},
	{"mpi_bw8.txt", openmpi, Job{Test: Test{Rate, 8}, Iters: 20000}, 17.8766},
	{"mpi_bw8.txt", mpich, Job{Test: Test{BW, 8}, Iters: 20000}, 143.013},
	{"perftest_write_lat8.txt", perftest, Job{Test: Test{Put, 8}}, 9.10},
	{"perftest_write_bw64k.txt", perftest, Job{Test: Test{PutBW, 64 << 10}}, 419.4304},
	{"perftest_write_bw64k.txt", perftest, Job{Test: Test{Rate, 64 << 10}}, 0.006276},
}

func TestParseSavedOutputs(t *testing.T) {
	t.Parallel()
	for _, c := range outputs {
		b, err := os.ReadFile(filepath.Join("testdata", c.file))
		require.NoError(t, err)
		x, err := c.peer.Parse(b, c.job)
		require.NoError(t, err, "%s as %v", c.file, c.job.Test)
		require.InEpsilon(t, c.want, x, 1e-4, "%s as %v", c.file, c.job.Test)
		// It is an error if the output names another size.
		if c.peer != ucx {
			other := c.job
			other.Test.Size += 16
			_, err = c.peer.Parse(b, other)
			require.ErrorIs(t, err, ErrOutput, c.file)
		}
	}
}

// Errors quote the wrong line.
func TestParseErrorsQuoteTheLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		peer *Peer
		kind Kind
		out  string
		line string
	}{
		{ucx, Lat, "x\nFinal: 1 2 3 4 5 6 7 inf\n", "Final: 1 2 3 4 5 6 7 inf"},
		{ucx, Rate, "1 2 3 4 5 6 0 0\n", "1 2 3 4 5 6 0 0"},
		{ucx, Rate, "1 2 3 4 5 6 7 -8", "1 2 3 4 5 6 7 -8"},
		{ucx, Rate, "1 2 3", "1 2 3"},
		{ucx, Rate, "", ""},
		{libfabric, Lat, "8 5 =5 1k 0.1s 1 nan 1", "8 5 =5 1k 0.1s 1 nan 1"},
		{libfabric, Lat, "8 5 =5 1k 0.1s 1 -1 1\nmore", "8 5 =5 1k 0.1s 1 -1 1"},
		{libfabric, Lat, "no such provider", "no such provider"},
		{netpipe, Lat, "8 0.0 1\n", "8 0.0 1"},
		{netpipe, BW, "8 x 1", "8 x 1"},
		{openmpi, Lat, "Using no perturbations\n8 1", "8 1"},
		{openmpi, Rate, "bw 8 7 0.1", "bw 8 7 0.1"}, // another number of operations than requested
		{mpich, Put, "put 8 9 0", "put 8 9 0"},
		{mpich, Put, "bw 8 9 1", "bw 8 9 1"},
		{raw, BW, "bw 8 9 1 1", "bw 8 9 1 1"},
		{perftest, Put, " 8 2000 1 2 inf 3 4 5 6", "8 2000 1 2 inf 3 4 5 6"},
		{perftest, BW, "8 2000 0.00 0.00 0.000", "8 2000 0.00 0.00 0.000"},
	} {
		x, err := c.peer.Parse([]byte(c.out), Job{Test: Test{c.kind, 8}, Iters: 9})
		var bad *OutputError
		require.ErrorAs(t, err, &bad, "%s: %q", c.peer.Name, c.out)
		require.Equal(t, c.line, bad.Line)
		require.NotEmpty(t, bad.Program)
		require.NotEmpty(t, bad.Want)
		require.ErrorIs(t, err, ErrOutput)
		require.Zero(t, x)
	}
}

// Any output of a program gives a plausible figure or an error with the reason.
func FuzzParsers(f *testing.F) {
	for _, c := range outputs {
		b, err := os.ReadFile(filepath.Join("testdata", c.file))
		require.NoError(f, err)
		for k, kind := range Kinds {
			if kind == c.job.Test.Kind {
				f.Add(b, uint8(k), c.job.Test.Size, max(c.job.Iters, 1))
			}
		}
	}
	f.Fuzz(func(t *testing.T, out []byte, kind uint8, size, iters int) {
		if size < 1 || size > MaxSize || iters < 1 || iters > maxIters {
			return
		}
		j := Job{Test: Test{Kinds[int(kind)%len(Kinds)], size}, Iters: iters}
		for _, p := range Peers {
			x, err := p.Parse(out, j)
			switch {
			case err == nil && (!(x > 0) || math.IsInf(x, 0)):
				t.Fatalf("%s: figure %v", p.Name, x)
			case err != nil && !errors.Is(err, ErrOutput):
				t.Fatalf("%s: %v", p.Name, err)
			case err != nil && x != 0:
				t.Fatalf("%s: figure %v beside %v", p.Name, x, err)
			case err != nil && strings.ContainsRune(err.Error(), '\n'):
				t.Fatalf("%s: %q is more than a line", p.Name, err)
			}
		}
	})
}
