package ibv

import (
	"encoding/hex"
	"hash/crc32"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/verbs"
)

var golden = address{
	mtu: verbs.MTU4096, reads: 16, layer: verbs.LinkEthernet, lid: 0x0102,
	lacks: lacksAtomics,
	gid:   verbs.GID(netip.MustParseAddr("::ffff:10.9.0.1").As16()), qpn: 0x123456, psn: 0xabcdef,
}

const goldenHex = "524d4169" + "04051002" + "02010200" + "00000000000000000000ffff0a090001" + "56341200" + "efcdab00"

func TestAddressGoldenBytes(t *testing.T) {
	b := golden.append([]byte{9})[1:]
	require.Equal(t, goldenHex, hex.EncodeToString(b[:36]))
	require.Len(t, b, addrSize)
	require.LessOrEqual(t, addrSize, fabric.MaxAddress)
	got, err := parseAddress(b)
	require.NoError(t, err)
	require.Equal(t, golden, got)
}

func TestEveryPrefixAndEveryDamageFails(t *testing.T) {
	b := golden.append(nil)
	for n := range len(b) {
		_, err := parseAddress(b[:n])
		require.ErrorIs(t, err, fabric.ErrBadAddress, "%d bytes", n)
	}
	_, err := parseAddress(append(golden.append(nil), 0))
	require.ErrorIs(t, err, fabric.ErrBadAddress)
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			_, err := parseAddress(b)
			require.ErrorIs(t, err, fabric.ErrBadAddress, "byte %d bit %d", i, bit)
			b[i] ^= 1 << bit
		}
	}
}

// Wrong fields are rejected even if the checksum is right.
func TestFieldsAreChecked(t *testing.T) {
	for name, change := range map[string]func(a *address){
		"mtu 0":            func(a *address) { a.mtu = 0 },
		"mtu 6":            func(a *address) { a.mtu = 6 },
		"many ports":       func(a *address) { a.ports = maxPorts + 1 },
		"carrier alone":    func(a *address) { a.ports, a.carries = 0, true },
		"lacks more":       func(a *address) { a.lacks = 4 },
		"no reads":         func(a *address) { a.reads = 0 },
		"management pair":  func(a *address) { a.qpn = 1 },
		"wide queue pair":  func(a *address) { a.qpn = 1 << 24 },
		"wide psn":         func(a *address) { a.psn = 1 << 24 },
		"link layer":       func(a *address) { a.layer = 9 },
		"ethernet, no gid": func(a *address) { a.gid = verbs.GID{} },
		"ib, no lid, gid":  func(a *address) { a.layer, a.lid, a.gid = verbs.LinkInfiniBand, 0, verbs.GID{} },
	} {
		a := golden
		change(&a)
		_, err := parseAddress(a.append(nil))
		require.ErrorIs(t, err, fabric.ErrBadAddress, name)
	}
	a := golden
	a.layer, a.gid = verbs.LinkInfiniBand, verbs.GID{} // the LID suffices
	_, err := parseAddress(a.append(nil))
	require.NoError(t, err)
	a.ports, a.carries = 2, true
	again, err := parseAddress(a.append(nil))
	require.NoError(t, err)
	require.Equal(t, uint8(2), again.ports)
	require.True(t, again.carries)
	future := golden.append(nil)
	future[4] = addrVersion + 1
	_, err = parseAddress(future)
	require.ErrorContains(t, err, "same release")
}

func FuzzParseAddress(f *testing.F) {
	f.Add(golden.append(nil), false)
	f.Add([]byte("RMAi"), true)
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, b []byte, sum bool) {
		if sum && len(b) == addrSize { // correct the checksum
			b = append([]byte(nil), b...)
			c := crc32.Checksum(b[:36], castagnoli)
			b[36], b[37], b[38], b[39] = byte(c), byte(c>>8), byte(c>>16), byte(c>>24)
		}
		a, err := parseAddress(b)
		if err != nil {
			require.ErrorIs(t, err, fabric.ErrBadAddress)
			return
		}
		require.Equal(t, b, a.append(nil))
		require.True(t, a.mtu.Valid())
		require.NotZero(t, a.reads)
		require.Less(t, a.qpn, uint32(1<<24))
	})
}

func TestRetries(t *testing.T) {
	total := func(code uint8) time.Duration { return 7 * (4096 << code) * time.Nanosecond }
	for _, c := range []struct {
		d    time.Duration
		code uint8
	}{{0, 8}, {time.Millisecond, 8}, {300 * time.Millisecond, 13}, {2 * time.Second, 16}, {time.Minute, 20}, {1 << 62, 31}} {
		require.Equal(t, c.code, retries(c.d), "%v", c.d)
	}
	for d := 20 * time.Millisecond; d < time.Hour; d += d / 7 {
		require.LessOrEqual(t, total(retries(d)), d)
		require.Greater(t, 2*total(retries(d)), d)
	}
}

func TestRNRTimer(t *testing.T) {
	wait := func(code uint8) time.Duration { return 7 * time.Duration(rnrTicks[code]) * 10 * time.Microsecond }
	require.Equal(t, uint8(20), rnrTimer(0))
	require.Equal(t, uint8(28), rnrTimer(2*time.Second))
	require.Equal(t, uint8(31), rnrTimer(time.Hour))
	for d := 150 * time.Millisecond; d < 6*time.Second; d += d / 5 {
		require.GreaterOrEqual(t, wait(rnrTimer(d)), d/2)
		require.LessOrEqual(t, wait(rnrTimer(d)), d)
	}
}

func TestEveryStatusIsTranslated(t *testing.T) {
	for s := verbs.WCStatus(-1); s < 40; s++ {
		st, vendor := statusOf(s, 0)
		require.Equal(t, s == verbs.WCSuccess, st == fabric.StatusOK)
		if st == fabric.StatusUnknown {
			require.Equal(t, uint32(s), vendor, "the code is kept")
		}
	}
	st, vendor := statusOf(verbs.WCRetryExcErr, 0x81)
	require.Equal(t, fabric.StatusPeerGone, st)
	require.Equal(t, uint32(0x81), vendor)
}

func TestOptions(t *testing.T) {
	no := false
	require.False(t, (&Options{LastByteLast: &no}).lastByteLast(1))
	require.False(t, (&Options{}).lastByteLast(amazon), "EFA")
	require.True(t, (&Options{}).lastByteLast(1))
	t.Setenv("RMA_IBV_LAST_BYTE", "0")
	require.True(t, (&Options{}).lastByteLast(1), "internal/links reads the environment, nobody else")
	for _, o := range []Options{{MTU: 1500}, {MaxReads: 256}, {MaxReads: -1}} {
		_, err := Open(o)
		require.ErrorContains(t, err, "want")
	}
	if ds, _ := verbs.Devices(); len(ds) == 0 && os.Getenv("RMA_REQUIRE_RDMA") != "1" {
		_, err := Open(Options{})
		require.ErrorIs(t, err, fabric.ErrNotSupported)
	}
}
