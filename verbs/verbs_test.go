package verbs

import (
	"errors"
	"math/bits"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// shim_linux.c asserts the same numbers of abi_linux.h, and TestABI compares them with the
// library's header.
func TestLayouts(t *testing.T) {
	require.Equal(t, uintptr(16), unsafe.Sizeof(SGE{}))
	require.Equal(t, uintptr(8), unsafe.Offsetof(SGE{}.Len))
	require.Equal(t, uintptr(12), unsafe.Offsetof(SGE{}.LKey))

	if bits.UintSize != 64 {
		t.Skip("the crossing into C is built for 64-bit processors only")
	}
	var s sendWR
	require.Equal(t, uintptr(128), unsafe.Sizeof(s))
	for _, f := range []struct {
		got, want uintptr
	}{
		{unsafe.Offsetof(s.next), 8}, {unsafe.Offsetof(s.sgl), 16}, {unsafe.Offsetof(s.numSGE), 24},
		{unsafe.Offsetof(s.op), 28}, {unsafe.Offsetof(s.flags), 32}, {unsafe.Offsetof(s.imm), 36},
		{unsafe.Offsetof(s.remote), 40}, {unsafe.Offsetof(s.rkeyOr), 48}, {unsafe.Offsetof(s.swap), 56},
		{unsafe.Offsetof(s.atomKey), 64}, {unsafe.Offsetof(s.mw), 80}, {unsafe.Offsetof(s.mwRKey), 88},
		{unsafe.Offsetof(s.mwMR), 96}, {unsafe.Offsetof(s.mwAddr), 104}, {unsafe.Offsetof(s.mwLen), 112},
		{unsafe.Offsetof(s.mwAccess), 120},
	} {
		require.Equal(t, f.want, f.got)
	}
	var r recvWR
	require.Equal(t, uintptr(32), unsafe.Sizeof(r))
	require.Equal(t, uintptr(16), unsafe.Offsetof(r.sgl))
	require.Equal(t, uintptr(24), unsafe.Offsetof(r.numSGE))

	var w WC
	require.Equal(t, uintptr(48), unsafe.Sizeof(w))
	for _, f := range []struct {
		got, want uintptr
	}{
		{unsafe.Offsetof(w.Status), 8}, {unsafe.Offsetof(w.Op), 12}, {unsafe.Offsetof(w.VendorErr), 16},
		{unsafe.Offsetof(w.ByteLen), 20}, {unsafe.Offsetof(w.rawImm), 24}, {unsafe.Offsetof(w.QPN), 28},
		{unsafe.Offsetof(w.SrcQP), 32}, {unsafe.Offsetof(w.Flags), 36}, {unsafe.Offsetof(w.PKeyIndex), 40},
		{unsafe.Offsetof(w.SLID), 42}, {unsafe.Offsetof(w.SL), 44}, {unsafe.Offsetof(w.PathBits), 45},
	} {
		require.Equal(t, f.want, f.got)
	}
}

func gid(s string) GID { return GID(netip.MustParseAddr(s).As16()) }

func TestChooseGID(t *testing.T) {
	ll := GIDEntry{Index: 0, GID: gid("fe80::1"), Type: GIDRoCEv2}
	v4 := GIDEntry{Index: 1, GID: gid("::ffff:10.9.0.1"), Type: GIDRoCEv2}
	v4b := GIDEntry{Index: 7, GID: gid("::ffff:10.9.1.1"), Type: GIDRoCEv2}
	v4ll := GIDEntry{Index: 2, GID: gid("::ffff:169.254.3.4"), Type: GIDRoCEv2}
	v6 := GIDEntry{Index: 3, GID: gid("2001:db8::7"), Type: GIDRoCEv2}
	v1 := GIDEntry{Index: 4, GID: gid("::ffff:10.9.0.1"), Type: GIDRoCEv1}
	lo := GIDEntry{Index: 5, GID: gid("::ffff:127.0.0.1"), Type: GIDRoCEv2}
	odd := GIDEntry{Index: 6, GID: gid("::ffff:10.9.0.9"), Type: 77}
	ib := GIDEntry{Index: 0, GID: gid("fe80::2:c903:1"), Type: GIDInfiniBand}
	ib1 := GIDEntry{Index: 1, GID: gid("fe80::2:c903:2"), Type: GIDInfiniBand}
	zero := GIDEntry{Index: 8, Type: GIDRoCEv2}
	mcast := GIDEntry{Index: 9, GID: gid("ff02::1"), Type: GIDRoCEv2}
	for _, c := range []struct {
		name  string
		table []GIDEntry
		index int
		want  int // index; -1: ErrNoGID
		why   string
	}{
		{"rxe with an IPv4 address", []GIDEntry{ll, v4}, -1, 1, "IPv4 10.9.0.1, routable"},
		{"IPv4 before IPv6", []GIDEntry{ll, v6, v4}, -1, 1, "RoCE v2"},
		{"IPv6 routable before IPv4 link-local", []GIDEntry{v4ll, v6}, -1, 3, "routable"},
		{"v2 link-local before v1 routable", []GIDEntry{v1, ll}, -1, 0, "link-local"},
		{"v1 if there is nothing else", []GIDEntry{v1}, -1, 4, "RoCE v1"},
		{"loopback if there is nothing else", []GIDEntry{lo}, -1, 5, "this host only"},
		{"a tie goes to the lowest index", []GIDEntry{v4, v4b}, -1, 1, ""},
		{"InfiniBand: the first", []GIDEntry{ib, ib1}, -1, 0, "InfiniBand"},
		{"unusable entries are not taken", []GIDEntry{odd, zero, mcast}, -1, -1, ""},
		{"empty table", nil, -1, -1, ""},
		{"override", []GIDEntry{ll, v4, v1}, 4, 4, "as asked for"},
		{"override 0 is an index, too", []GIDEntry{ll, v4}, 0, 0, "as asked for"},
		{"override of a missing entry", []GIDEntry{ll, v4}, 3, -1, "valid are 0, 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ChooseGID(c.table, c.index)
			require.Len(t, got.Verdicts, len(c.table))
			for i, v := range got.Verdicts {
				require.Equal(t, c.table[i], v.GIDEntry)
				require.NotEmpty(t, v.Reason)
			}
			if c.want < 0 {
				require.ErrorIs(t, err, ErrNoGID)
				require.ErrorContains(t, err, c.why)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got.Chosen.Index)
			require.Contains(t, got.Reason, c.why)
		})
	}
}

func TestEnumsNameWhatTheyDoNotKnow(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{RC.String(), "RC"}, {QPType(0).String(), "qp-type(0)"}, {QPType(-3).String(), "qp-type(-3)"},
		{StateRTS.String(), "RTS"}, {QPState(7).String(), "qp-state(7)"},
		{MTU4096.String(), "4096"}, {MTU(9).String(), "mtu(9)"},
		{PortActive.String(), "active"}, {PortState(99).String(), "port-state(99)"},
		{LinkEthernet.String(), "ethernet"}, {LinkLayer(9).String(), "link-layer(9)"},
		{NodeType(1).String(), "channel adapter"}, {NodeType(0).String(), "node-type(0)"},
		{TransportUnknown.String(), "unknown"}, {TransportIWARP.String(), "iwarp"}, {Transport(44).String(), "transport(44)"},
		{AtomicGlobal.String(), "global"}, {AtomicCap(5).String(), "atomic-cap(5)"},
		{EventGIDChange.String(), "GID table change"}, {EventWQFatal.String(), "work queue fatal"}, {EventType(200).String(), "event(200)"},
		{WCRecvWithImm.String(), "receive of write with immediate"}, {WCOp(50).String(), "wc-op(50)"}, {WCOp(130).String(), "wc-op(130)"},
		{WCStatus(77).String(), "wc-status(77)"}, {WCStatus(-1).String(), "wc-status(-1)"}, {WCSuccess.String(), "success"},
		{OpSendWithInv.String(), "send with invalidate"}, {SendOp(44).String(), "send-op(44)"},
		{Access(0).String(), "none"}, {(AccessLocalWrite | AccessRelaxedOrdering).String(), "local-write|relaxed-ordering"},
		{(AccessRemoteRead | 1<<29).String(), "remote-read|0x20000000"},
		{(SendFence | SendInline).String(), "fence|inline"}, {(WCWithImm | WCWithInv).String(), "imm|inv"},
		{(AttrState | AttrDestQPN).String(), "state|dest qpn"},
		{MWType2.String(), "2"}, {GIDRoCEv2.String(), "RoCE v2"}, {GIDType(9).String(), "gid-type(9)"},
		{Availability(9).String(), "availability(9)"},
	} {
		require.Equal(t, c.want, c.got)
	}
	require.Equal(t, MTU1024, MTUOf(1024))
	require.Zero(t, MTUOf(1000))
	require.Zero(t, MTU(0).Bytes())
	require.Zero(t, MTU(6).Bytes())
	require.Equal(t, uint32(0x12345600), NextRKey(0x123456ff))
	for e := EventCQErr; e <= EventWQFatal; e++ {
		require.NotContains(t, e.String(), "event(")
	}
}

func TestEveryFailedStatusSaysWhatToDo(t *testing.T) {
	for s := WCSuccess + 1; s < numWCStatus; s++ {
		w := WC{ID: 0xbeef, Status: s, QPN: 0x11, VendorErr: 0x88}
		err := w.Err()
		var e *WCError
		require.True(t, errors.As(err, &e))
		require.NotNil(t, errors.Unwrap(err))
		require.NotEmpty(t, wcTexts[s].todo)
		for _, want := range []string{"0xbeef", "0x11", "0x88", s.String(), wcTexts[s].todo} {
			require.Contains(t, err.Error(), want)
		}
	}
	require.NoError(t, (&WC{}).Err())
	require.ErrorIs(t, (&WC{Status: WCFlushErr}).Err(), ErrWCFlushed)
	require.ErrorIs(t, (&WC{Status: WCRemAccessErr}).Err(), ErrWCRemoteAccess)
	unknown := (&WC{Status: 99}).Err()
	require.ErrorContains(t, unknown, "wc-status(99)")
	require.NoError(t, errors.Unwrap(unknown))
}

func TestErrors(t *testing.T) {
	err := memFail("register 4096 bytes", syscall.ENOMEM, 4096, "")
	var me *MemlockError
	require.True(t, errors.As(err, &me))
	require.ErrorIs(t, err, ErrMemlock)
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.Equal(t, MemlockLimit(), me.Limit)
	me.Limit = 8 << 20
	require.Contains(t, me.Error(), "RLIMIT_MEMLOCK is 8388608 bytes (8192 KiB)")
	require.Contains(t, me.Error(), "ulimit -l unlimited")
	require.ErrorIs(t, memFail("register", syscall.EPERM, 1, ""), ErrMemlock)
	me.Limit = NoLimit
	require.Contains(t, me.Error(), "unlimited")
	require.NotErrorIs(t, memFail("register", syscall.EFAULT, 1, ""), ErrMemlock)

	require.NoError(t, fail("x", 0, ""))
	require.ErrorIs(t, fail("x", syscall.EOPNOTSUPP, ""), ErrNotSupported)
	require.ErrorIs(t, fail("x", syscall.ENOSYS, ""), ErrNotSupported)
	require.NotErrorIs(t, fail("x", syscall.EINVAL, ""), ErrNotSupported)
	require.EqualError(t, closeFail("close it", syscall.EBUSY), "close it: device or resource busy: close what was made from it first")

	n, err := posted(3, 2<<32|uint64(syscall.ENOMEM))
	require.NoError(t, err, "a full queue is a value")
	require.Equal(t, 5, n)
	n, err = posted(0, 1<<32|uint64(syscall.EINVAL))
	require.Equal(t, 1, n)
	require.ErrorIs(t, err, syscall.EINVAL)
	require.ErrorIs(t, &PostError{}, ErrInvalid)
}

func TestImmediateIsInNetworkOrder(t *testing.T) {
	w := WC{rawImm: ntoh32(0x01020304)}
	b := (*[4]byte)(unsafe.Pointer(&w.rawImm))
	require.Equal(t, [4]byte{1, 2, 3, 4}, *b)
	require.Equal(t, uint32(0x01020304), w.Imm())
}

// On any machine, the availability is one of four, has an explanation and agrees with
// Devices and Open.
func TestSupportExplainsItself(t *testing.T) {
	s := Support()
	require.Equal(t, s, Support())
	require.NotContains(t, s.String(), "availability(")
	t.Log(s)
	ds, err := Devices()
	if s.Availability == Available {
		require.Empty(t, s.Fix)
		require.NoError(t, err)
		for _, d := range ds {
			require.NotEmpty(t, d.Name)
		}
		_, err = Open("no-such-device")
		require.ErrorIs(t, err, ErrNoDevice)
		return
	}
	require.NotEmpty(t, s.Fix)
	require.ErrorIs(t, err, ErrNotSupported)
	require.Contains(t, err.Error(), s.Fix)
	_, err = Open("")
	require.ErrorIs(t, err, ErrNotSupported)
}

func TestUnknownInterfaceHasNoDevice(t *testing.T) {
	_, err := DeviceForNetDev("no-such-if0")
	require.ErrorIs(t, err, ErrNoDevice)
}

// Methods of objects that are closed, or were never open, return an error.
func TestClosedObjects(t *testing.T) {
	c := &Context{name: "x"}
	_, err := c.QueryDevice()
	require.ErrorIs(t, err, ErrClosed)
	_, err = c.QueryPort(1)
	require.ErrorIs(t, err, ErrClosed)
	_, err = c.GIDs(1)
	require.ErrorIs(t, err, ErrClosed)
	_, _, err = c.AsyncEvent()
	require.ErrorIs(t, err, ErrClosed)
	_, err = c.AllocPD()
	require.ErrorIs(t, err, ErrClosed)
	_, err = c.CreateCQ(1, nil)
	require.ErrorIs(t, err, ErrClosed)
	_, err = c.CreateCompChannel()
	require.ErrorIs(t, err, ErrClosed)
	p := &PD{ctx: c}
	_, err = p.Register(make([]byte, 8), 0)
	require.ErrorIs(t, err, ErrClosed)
	_, err = p.CreateQP(QPOptions{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = p.CreateSRQ(SRQAttr{MaxWR: 1})
	require.ErrorIs(t, err, ErrClosed)
	_, err = p.CreateAH(AHAttr{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = p.AllocMW(MWType1)
	require.ErrorIs(t, err, ErrClosed)
	q := &QP{}
	_, err = q.PostSend([]SendWR{{}})
	require.ErrorIs(t, err, ErrClosed)
	_, err = q.PostRecv([]RecvWR{{}})
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, q.ToErr(), ErrClosed)
	_, err = q.State()
	require.ErrorIs(t, err, ErrClosed)
	cq := &CQ{}
	_, err = cq.Poll(make([]WC, 1))
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, cq.ReqNotify(false), ErrClosed)
	_, err = (&CompChannel{}).Event()
	require.ErrorIs(t, err, ErrClosed)
	for _, f := range []func() error{c.Close, p.Close, q.Close, cq.Close, (&CompChannel{}).Close, (&MR{}).Close, (&SRQ{}).Close, (&AH{}).Close, (&MW{}).Close} {
		require.NoError(t, f(), "closing twice")
	}
}

// Measures the least cost of a call into C; see raw_cgo.go.
func BenchmarkCrossing(b *testing.B) {
	if Support().Availability == NoCgo {
		b.Skip("no cgo: nothing to cross into")
	}
	p := uintptr(0)
	for b.Loop() {
		p = uintptr(rawNop(p))
	}
	runtime.KeepAlive(p)
}

func TestVersionOfTheStringsIsForPeople(t *testing.T) {
	s := SupportInfo{Availability: NoLibrary, Detail: "d", Fix: "f"}
	require.Equal(t, "libibverbs not found: d (f)", s.String())
	require.True(t, strings.HasPrefix(SupportInfo{}.String(), "built without cgo"))
}

// Every request of a chain holds the address of the next, and the pieces lie behind all
// requests, with room for at least one request's pieces.
func TestChains(t *testing.T) {
	checkChain(t, (*sendWR).behind)
	checkChain(t, (*recvWR).behind)
}

func checkChain[WR sendWR | recvWR](t *testing.T, behind func(*WR) *uintptr) {
	var wr WR
	size := unsafe.Sizeof(wr)
	for _, x := range []struct{ n, maxSGE, wrs, sges int }{
		{1, 1, 1, 1}, {3, 2, 3, 6}, {1000, 1, chainMax, chainMax}, {1000, 30, chainMax, chainSGEs}, {2, 400, 2, 400},
	} {
		var c chain[WR]
		if !c.init(x.n, x.maxSGE, behind) {
			require.Equal(t, NoCgo, Support().Availability, "only without cgo there is no C memory")
			return
		}
		require.Len(t, c.wrs, x.wrs)
		require.Len(t, c.sges, x.sges)
		for i := range c.wrs {
			require.Equal(t, c.mem+uintptr(i)*size, uintptr(unsafe.Pointer(&c.wrs[i])))
			require.Equal(t, c.mem+uintptr(i+1)*size, *behind(&c.wrs[i]))
		}
		require.Equal(t, c.mem+uintptr(x.wrs)*size, c.sgeMem)
		require.Equal(t, c.sgeMem, uintptr(unsafe.Pointer(&c.sges[0])))
		c.free()
		require.Zero(t, c.mem)
		require.Empty(t, c.wrs)
	}
	var none chain[WR]
	require.True(t, none.init(0, 1, behind), "a queue pair without a queue of its own")
	require.Empty(t, none.wrs)
}
