//go:build linux

package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

const writeLatOut = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 8       2000          8.74           7243.37      9.10     	       15.39       	187.96 		17.88   		6728.06
`

const writeBWOut = ` #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      500              567.52             400.00 		   0.006276
`

func TestParsePerftest(t *testing.T) {
	t.Parallel()
	v, err := parsePerftest(writeLatOut, comparison{tool: "ib_write_lat", test: "lat", size: 8})
	require.NoError(t, err)
	require.Equal(t, 9.10, v)
	v, err = parsePerftest(writeBWOut, comparison{tool: "ib_write_bw", test: "bw", size: 65536})
	require.NoError(t, err)
	require.InDelta(t, 419.43, v, 0.01, "2^20 bytes to 10^6")
	v, err = parsePerftest(" 8  5000  0.88  0.50  0.065970\n", comparison{tool: "ib_write_bw", test: "bw", size: 8})
	require.NoError(t, err)
	require.InDelta(t, 0.52776, v, 1e-6, "two digits of MB/s are too few for small messages")
	_, err = parsePerftest(writeBWOut, comparison{tool: "ib_write_bw", test: "bw", size: 8})
	require.ErrorContains(t, err, "no result for 8 bytes")
	for _, bad := range []string{"inf", "0.00", "-nan"} { // perftest's output without a clock
		_, err = parsePerftest(" 8 2000 1 2 "+bad+" 3 4 5 6", comparison{tool: "ib_write_lat", test: "lat", size: 8})
		require.ErrorContains(t, err, "clock", bad)
	}
}

func TestParseRmabench(t *testing.T) {
	t.Parallel()
	out := `note
{"test":"lat","fabric":"verbs","op":"put","size":8,"iters":9,"lat_us":{"min":1,"p50":9.5,"p99":3,"max":4},"mb_s":1.5,"mmsg_s":0.1}
`
	v, err := parseRmabench(out, comparison{test: "lat", op: "put", size: 8})
	require.NoError(t, err)
	require.Equal(t, 9.5, v)
	for _, c := range []comparison{{test: "lat", op: "get", size: 8}, {test: "lat", op: "put", size: 64}, {test: "bw", op: "put", size: 8}} {
		_, err = parseRmabench(out, c)
		require.Error(t, err)
	}
	_, err = parseRmabench(`{"test":"lat","fabric":"tcp","op":"put","size":8,"lat_us":{"p50":1}}`, comparison{test: "lat", op: "put", size: 8})
	require.ErrorContains(t, err, "not verbs")
}

func TestSummarise(t *testing.T) {
	t.Parallel()
	// the host was busy in the second round: both times are longer, the ratio is not
	s := summarise(comparisons[0], []sample{{11, 10}, {33, 30}, {12, 10}})
	require.InDelta(t, 1.1, s.Ratio, 1e-9)
	require.InDelta(t, 1.2, s.RatioMax, 1e-9)
	require.Equal(t, 12.0, s.Ours)
	require.InDelta(t, 2.0, s.TheirsSpread, 1e-9)
	require.True(t, s.Met)
	require.False(t, summarise(comparisons[0], []sample{{13, 10}}).Met)
	require.True(t, summarise(comparisons[5], []sample{{95, 100}}).Met)
	require.False(t, summarise(comparisons[5], []sample{{85, 100}}).Met)
	alone := summarise(comparisons[0], []sample{{0, 10}})
	require.False(t, alone.Met)
	var b bytes.Buffer
	require.NoError(t, printTable(&b, []summary{s, alone}))
	require.Contains(t, b.String(), "1.10–1.20")
	require.Contains(t, b.String(), "not measured")
}

func TestListens(t *testing.T) {
	t.Parallel()
	const table = `  sl  local_address rem_address   st
   0: 00000000:4E21 00000000:0000 0A 00000000:00000000
   1: 0100007F:4E22 0100007F:9999 01 00000000:00000000
`
	require.True(t, listens(table, 20001))
	require.False(t, listens(table, 20002), "connected, not listening")
	require.False(t, listens(table, 0x9999))
}

func TestParsePerf(t *testing.T) {
	t.Parallel()
	o, err := parsePerf([]string{"-vm", "uml", "-rounds", "2"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 2, o.Rounds)
	for _, bad := range [][]string{{"-rounds", "0"}, {"x"}, {"-vm", "y"}, {"-nosuch"}} {
		_, err := parsePerf(bad, io.Discard)
		require.ErrorIs(t, err, errUsage)
	}
}
