//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) {
	if asked, err := child(); asked { // the test binary is the program of its ranks
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// interruptor interrupts this process when something is written: after a round. It does so once: a
// signal that comes when the campaign is over would end the process.
type interruptor struct{ once sync.Once }

func (i *interruptor) Write(b []byte) (_ int, err error) {
	i.once.Do(func() { err = syscall.Kill(os.Getpid(), syscall.SIGINT) })
	return len(b), err
}

// A campaign that is interrupted has not shown what it should.
func TestInterruptedCampaign(t *testing.T) {
	require.Equal(t, 130, run([]string{"--parts", "strangers"}, &bytes.Buffer{}, &interruptor{}))
}

// One round of each part runs without faults.
func TestOneRoundOfEachPart(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some twenty processes")
	}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			r := newRound(p, 1, 0)
			r.quick = true
			p.run(t.Context(), r)
			require.Empty(t, r.faults)
			var out bytes.Buffer
			table(&out, []*part{p}, []*round{r})
			require.Contains(t, out.String(), p.name)
		})
	}
}

// Ports of real devices are disturbed, and nothing fails but what a killed rank takes with it.
func TestPorts(t *testing.T) {
	if _, err := findWires(); err != nil {
		testutil.NoRDMA(t, "%v", err)
	}
	p := parts[slices.IndexFunc(parts, func(p *part) bool { return p.name == "ports" })]
	r := newRound(p, 1, 0)
	r.quick = true
	p.run(t.Context(), r)
	var out bytes.Buffer
	table(&out, []*part{p}, []*round{r})
	t.Log(out.String())
	require.Empty(t, r.faults)
	require.Positive(t, r.counts[railsLost])
}

func TestFlags(t *testing.T) {
	var errs bytes.Buffer
	c, err := parse([]string{"--seed", "7", "--parts", "death,limits", "--round", "3"}, &errs)
	require.NoError(t, err)
	require.Equal(t, uint64(7), c.seed)
	require.Equal(t, 3, c.round)
	require.Len(t, c.parts, 2)
	for _, bad := range [][]string{{"--parts", "nothing"}, {"--seed", "x"}, {"more"}, {"--vm", "xen"}, {"--vm", "uml"}} {
		require.Equal(t, 2, run(bad, &errs, &errs), bad)
	}
	require.Contains(t, errs.String(), `unknown part "nothing": want death`)
	require.Contains(t, errs.String(), "--vm uml: User-Mode Linux has one processor and no control groups")
}

// A round's choices depend only on seed, part and number, not on earlier rounds.
func TestRoundsAreRepeatable(t *testing.T) {
	a, b := newRound(parts[0], 7, 3), newRound(parts[0], 7, 3)
	require.Equal(t, some(a, 5, allOps()), some(b, 5, allOps()))
	require.NotEqual(t, a.Uint64(), newRound(parts[0], 7, 4).Uint64())
	require.NotEqual(t, a.Uint64(), newRound(parts[1], 7, 3).Uint64())
}

// The report counts figures beyond their bounds, promises broken and actions that the
// machine refused.
func TestReport(t *testing.T) {
	r := newRound(parts[0], 7, 3)
	r.measure(deathToError, time.Millisecond)
	r.measure(deathToError, deathToError.bound)
	r.measure(deathToError, deathToError.bound+1)
	require.Empty(t, r.faults)
	r.measure(deathToError, deathToError.hard+1)
	require.Len(t, r.faults, 1)
	r.leaveOut(errors.New("no freezer here"))
	p := &proc{rank: 1, events: []event{{Ev: "held", Op: inOrder.String(), N: 12}, {Ev: "bad", Kind: inOrder.String(), Text: "twice"}}}
	r.hear(p, "stopped: ")
	require.Contains(t, r.faults, "stopped: rank 1: twice")
	var out bytes.Buffer
	table(&out, parts[:1], []*round{r})
	promises(&out, []*round{r})
	require.Regexp(t, `death +1 +1 +death to error +4 +.* 50ms +2\n`, out.String())
	require.Regexp(t, `\n1 +12 +no message lost, doubled or reordered\n`, out.String())
	require.Contains(t, out.String(), "1 times death left out: no freezer here\n")
}

// A segment is parsed as it was written, and the end forged from it is one that its
// receiver's peer accepts.
func TestSegments(t *testing.T) {
	frame := func(from, to string, seq, ack uint32, flags byte, payload string) []byte {
		a, b := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
		f := make([]byte, etherLen+ipLen+tcpLen, etherLen+ipLen+tcpLen+len(payload))
		f[5], f[11], f[12] = 1, 2, 8 // to, from, IPv4
		ip, tcp := f[etherLen:], f[etherLen+ipLen:]
		ip[0], ip[9] = 0x45, protoTCP
		binary.BigEndian.PutUint16(ip[2:], uint16(ipLen+tcpLen+len(payload)))
		copy(ip[12:], a.Addr().AsSlice())
		copy(ip[16:], b.Addr().AsSlice())
		binary.BigEndian.PutUint16(tcp, a.Port())
		binary.BigEndian.PutUint16(tcp[2:], b.Port())
		binary.BigEndian.PutUint32(tcp[4:], seq)
		binary.BigEndian.PutUint32(tcp[8:], ack)
		tcp[12], tcp[atFlags] = tcpLen/4<<4, flags
		return append(f, payload...)
	}
	parse := func(b []byte) segment {
		s, ok := parseSegment(b)
		require.True(t, ok)
		return s
	}
	const a, b = "10.0.0.1:1000", "10.0.0.2:2000"
	s := parse(frame(a, b, 70, 500, flagACK, "hello"))
	require.Equal(t, "hello", string(s.payload))
	end := parse(s.reset())
	require.True(t, end.rst)
	require.Equal(t, flow{s.to, s.from}, end.flow)
	require.Equal(t, []uint32{500, 75}, []uint32{end.seq, end.ack})
	require.Equal(t, []byte{0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1}, end.frame[:12])
	require.Zero(t, checksum(end.frame[etherLen:etherLen+ipLen]))
	for n := range len(s.frame) {
		parseSegment(s.frame[:n]) // does not fail
	}

	c := &record{streams: map[flow]*stream{}}
	early := c.seek("a secret", []byte("secret"), "")
	elsewhere := c.seek("a secret", []byte("secret"), "10.0.0.3:1")
	c.hear(nil, parse(frame(a, b, 99, 0, flagSYN, "")))
	c.hear(nil, parse(frame(a, b, 100, 0, flagACK, "my sec")))
	c.hear(nil, parse(frame(a, b, 103, 0, flagACK, "sec"))) // again
	require.False(t, c.saw(early))
	c.hear(nil, parse(frame(a, b, 103, 0, flagACK, "secret")))
	require.True(t, c.saw(early))
	require.False(t, c.saw(elsewhere))
	require.True(t, c.saw(c.seek("the same, asked late", []byte("secret"), b)))
	require.Equal(t, "my secret", string(c.streams[s.flow].begin))
	c.hear(nil, parse(frame(a, b, 200, 0, flagACK, "later")))
	require.True(t, c.streams[s.flow].holes)
}

// The intrusion succeeds as the same user: it would find accessible resources.
func TestIntrusionFindsWhatIsOpen(t *testing.T) {
	uid := uint32(os.Getuid())
	if uid == 0 {
		uid = nobody
	}
	victim := exec.Command("sleep", "60")
	victim.SysProcAttr = asUser(uid)
	require.NoError(t, victim.Start())
	defer func() { _ = victim.Process.Kill(); _ = victim.Wait() }()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/profiles", []byte("x"), 0o644))
	for d := dir; d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		require.NoError(t, os.Chmod(d, 0o755))
	}
	got, tried, err := intrusion{Pids: []int{victim.Process.Pid}, Dir: dir}.as(t.Context(), uid)
	require.NoError(t, err)
	require.Positive(t, tried)
	text := strings.Join(got, "\n")
	require.Contains(t, text, fmt.Sprintf("read /proc/%d/environ", victim.Process.Pid))
	require.Contains(t, text, "was allowed signal to process")
	require.Contains(t, text, "opened "+dir+"/profiles")
}

// An expected event that does not occur is a fault that names the rank's activity.
func TestFaultsAreFound(t *testing.T) {
	r := newRound(parts[0], 1, 0)
	j, err := startJob(jobSpec{Ranks: 2, Fabric: "shm", Work: work{Ops: []string{"add"}, Max: 1 << 12}})
	require.NoError(t, err)
	defer j.kill()
	require.NoError(t, j.ready(startLimit))
	told(r, j.procs[0], 1, now(), "gone", figure{name: "x", hard: -tellLimit}) // no rank was killed
	require.Len(t, r.faults, 1)
	require.Contains(t, r.faults[0], "rank 0: 0 of 1")
	_ = j.procs[1].cmd.Process.Kill()
	told(r, j.procs[0], 1, now(), "hung", deathToError) // but it is gone
	require.Len(t, r.faults, 2)
	require.Contains(t, r.faults[1], `which is hung: error is "gone"`)
}

// A crash is found wherever in a long standard error it is told, or by the exit code alone; what the
// system refused to Go's runtime is none, nor is an error.
func TestCrashesAreFound(t *testing.T) {
	long := strings.Repeat("a line of the log\n", 200)
	for _, c := range []struct {
		script, stderr string
		crashed        bool
	}{
		{"exit 2", long + "panic: nil\n" + long, true},
		{"exit 2", long, true},
		{"kill -SEGV $$", "", true},
		{"exit 2", long + "fatal error: out of memory\n" + long, false},
		{"exit 1", long, false},
		{"kill -KILL $$", long, false},
		{"exit 0", "", false},
	} {
		p := &proc{job: &job{}, err: exec.Command("sh", "-c", c.script).Run()}
		p.stderr.WriteString(c.stderr)
		require.Equal(t, c.crashed, p.crashed(), "%s, %d bytes", c.script, len(c.stderr))
	}
}

// Where the results are to go is known before the campaign.
func TestResultsCannotBeWritten(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, 2, run([]string{"--time", "1h", "--json", filepath.Join(t.TempDir(), "no", "such")}, &out, &errs))
	require.Contains(t, errs.String(), "no such file")
}
