package tcp

import (
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
)

func goodHeaders() []header {
	return []header{
		{op: opWrite, flags: wireAck | wireNotify, ack: 0x01020304, seq: 0x11121314, imm: 0x21222324, n: 0x31, rkey: 0x41424344, addr: 0x5152535455565758},
		{op: opWrite, n: maxMessage, addr: ^uint64(0)},
		{op: opRead, seq: 7, n: 1 << 20, rkey: 9, addr: 4096},
		{op: opFetchAdd, seq: 8, n: operandsSize, rkey: 9, addr: 4096},
		{op: opCompareSwap, seq: 9, n: operandsSize, rkey: 9, addr: 4100},
		{op: opReadReply, ack: 8, seq: 7, n: 1 << 20},
		{op: opAtomicReply, ack: 10, seq: 8, n: resultSize},
		{op: opAck, ack: 77},
		{op: opAck, flags: wireAck},
		{op: opNak, ack: 5, seq: 5, status: fabric.StatusRemoteAccess},
		{op: opWrite, flags: wireAck | wireLanes, seq: 4, n: maxMessage, rkey: 9, addr: 4096},
		{op: opReadReply, flags: wireLanes, ack: 8, seq: 7, n: 1 << 20},
		{op: opBulk, seq: 4, n: 1 << 19, addr: 1 << 19},
		{op: opBulk, flags: wireReply, seq: 7, n: 1},
		{op: opRead, flags: wireAgain, seq: 7, n: 1 << 20, rkey: 9, addr: 4096},
		{op: opAck, flags: wireEnd, ack: 77},
	}
}

func TestHeaderGolden(t *testing.T) {
	h := goodHeaders()[0]
	require.Equal(t, "01030000"+"04030201"+"14131211"+"24232221"+"31000000"+"44434241"+"5857565554535251", hex.EncodeToString(h.append(nil)))
	require.Equal(t, uint64(headerSize+0x31), h.size())
	h = header{op: opBulk, flags: wireReply, seq: 0x11121314, n: 0x31, addr: 0x100000}
	require.Equal(t, "09080000"+"00000000"+"14131211"+"00000000"+"31000000"+"00000000"+"0000100000000000", hex.EncodeToString(h.append(nil)))
}

func TestHeaderRoundTrip(t *testing.T) {
	for _, want := range goodHeaders() {
		b := want.append([]byte{1})[1:]
		require.Len(t, b, headerSize)
		var got header
		require.NoError(t, got.parse(b), "%+v", want)
		require.Equal(t, want, got)
		for n := range headerSize {
			require.ErrorIs(t, got.parse(b[:n]), errShortHeader)
		}
	}
	require.Equal(t, uint64(headerSize), (&header{op: opRead, n: 9}).size())
}

func TestHeaderRefusesWhatItDoesNotMean(t *testing.T) {
	for _, c := range []struct {
		h    header
		want error
	}{
		{header{}, errBadOp},
		{header{op: numOps}, errBadOp},
		{header{op: opWrite, flags: wireReply}, errBadFlags},
		{header{op: opWrite, flags: wireLanes}, errBadLength},
		{header{op: opReadReply, flags: wireLanes}, errBadLength},
		{header{op: opBulk}, errBadLength},
		{header{op: opBulk, n: maxMessage + 1}, errBadLength},
		{header{op: opBulk, n: 1, flags: wireLanes}, errBadFlags},
		{header{op: opBulk, n: 1, ack: 1}, errBadField},
		{header{op: opBulk, n: 1, rkey: 1}, errBadField},
		{header{op: opBulk, n: 1, imm: 1}, errBadField},
		{header{op: opBulk, n: 1, addr: maxMessage}, errBadField},
		{header{op: opWrite, n: maxMessage + 1}, errBadLength},
		{header{op: opWrite, imm: 1}, errBadField},
		{header{op: opWrite, status: 1}, errBadField},
		{header{op: opRead, flags: wireAck}, errBadFlags},
		{header{op: opWrite, flags: wireAgain}, errBadFlags},
		{header{op: opFetchAdd, flags: wireAgain, n: operandsSize}, errBadFlags},
		{header{op: opRead, flags: wireEnd}, errBadFlags},
		{header{op: opRead, n: maxMessage + 1}, errBadLength},
		{header{op: opFetchAdd, n: 8}, errBadLength},
		{header{op: opCompareSwap, n: operandsSize, imm: 1}, errBadField},
		{header{op: opReadReply, addr: 1}, errBadField},
		{header{op: opReadReply, rkey: 1}, errBadField},
		{header{op: opAtomicReply, n: 4}, errBadLength},
		{header{op: opAck, n: 1}, errBadLength},
		{header{op: opAck, seq: 1}, errBadField},
		{header{op: opAck, flags: wireNotify}, errBadFlags},
		{header{op: opNak}, errBadStatus},
		{header{op: opNak, status: fabric.StatusPeerGone}, errBadStatus},
		{header{op: opNak, status: fabric.StatusRemoteOp, n: 1}, errBadLength},
	} {
		var got header
		require.ErrorIs(t, got.parse(c.h.append(nil)), c.want, "%+v", c.h)
	}
	b := goodHeaders()[0].append(nil)
	b[3] = 1
	require.ErrorIs(t, new(header).parse(b), errBadField)
}

func TestHeaderAllocatesNothing(t *testing.T) {
	var b [headerSize]byte
	h := goodHeaders()[0]
	require.Zero(t, testing.AllocsPerRun(100, func() {
		h.put(b[:])
		if h.parse(b[:]) != nil {
			t.Fatal("unexpected")
		}
	}))
}

func (h header) clone() *header { return &h }

func FuzzHeader(f *testing.F) {
	for _, h := range goodHeaders() {
		f.Add(h.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h header
		if h.parse(b) != nil {
			return
		}
		require.Equal(t, b[:headerSize], h.clone().append(nil))
		require.LessOrEqual(t, h.n, uint32(maxMessage))
	})
}

func goodToken() (k token) {
	for i := range k {
		k[i] = byte(0xa0 + i)
	}
	return k
}

func goodHello() hello {
	h := hello{to: 0x0102030405060708, from: 0x1112131415161718, reads: 128, lane: 2, lanes: 3, crypt: CryptFull, attempt: 1}
	for i := range h.challenge {
		h.challenge[i] = byte(0xb0 + i)
	}
	return h
}

func TestHello(t *testing.T) {
	want := goodHello()
	b := want.append(nil)
	require.Equal(t, "726d6154"+"0400"+"0203"+"0807060504030201"+"1817161514131211"+"80000000"+"03000000"+"b0b1b2b3b4b5b6b7b8b9babbbcbdbebf"+"01000000"+"000000000000000000000000", hex.EncodeToString(b))
	var got hello
	require.NoError(t, got.parse(b))
	require.Equal(t, want, got)
	for n := range helloSize {
		require.ErrorIs(t, got.parse(b[:n]), errNotHello)
	}
	for at, want := range map[int]error{0: errNotHello, 4: errVersion, 6: errNotHello, 7: errNotHello, 26: errNotHello, 28: errNotHello, 29: errNotHello, 31: errNotHello, 52: errNotHello, 63: errNotHello} {
		bad := append([]byte(nil), b...)
		bad[at] ^= 0xff
		require.ErrorIs(t, got.parse(bad), want, "byte %d", at)
	}
	want.attempt = 0x31323334
	require.NoError(t, got.parse(want.append(nil)), "a lane in place of a lost one")
	want.tally = goodTally
	require.ErrorIs(t, got.parse(want.append(nil)), errNotHello, "a tally belongs to the first connection")
	want.lane = 0
	b = want.append(nil)
	require.Equal(t, "34333231"+"44434241"+"54535251"+"64636261", hex.EncodeToString(b[48:]))
	require.NoError(t, got.parse(b))
	require.Equal(t, want, got)
	want.attempt = firstAttempt
	require.ErrorIs(t, got.parse(want.append(nil)), errNotHello, "nothing was done before the first attempt")
}

var goodTally = tally{executed: 0x41424344, answered: 0x51525354, accepted: 0x61626364}

func TestAnswer(t *testing.T) {
	h := hello{lanes: 3, crypt: CryptAuth, attempt: 0x31323334}
	want := answer{reads: 128, lanes: 3, crypt: CryptFull, attempt: h.attempt, tally: goodTally}
	b := want.append(nil)
	require.Equal(t, "80000000"+"03030000"+"34333231"+"44434241"+"54535251"+"64636261", hex.EncodeToString(b))
	var got answer
	require.NoError(t, got.parse(b, &h))
	require.Equal(t, want, got)
	for what, bad := range map[string]answer{
		"more lanes than wanted": {lanes: 4, crypt: CryptAuth}, "too many reads": {reads: maxPeerReads + 1, crypt: CryptAuth},
		"less than wanted": {crypt: CryptOff}, "unknown": {crypt: numCrypts},
	} {
		require.ErrorIs(t, got.parse(bad.append(nil), &h), errNotHello, what)
	}
	require.ErrorIs(t, got.parse(append(append(b[:7:7], 1), b[8:]...), &h), errNotHello)
	for n := range b {
		require.ErrorIs(t, got.parse(b[:n], &h), errNotHello)
	}
	for _, e := range []end{endClosed, end(fabric.StatusRemoteAccess), endLate | end(fabric.StatusRemoteAccess)} {
		want.end = e
		require.NoError(t, got.parse(want.append(nil), &h))
		require.Equal(t, want, got)
		require.Equal(t, byte(e), want.append(nil)[6])
	}
	for what, bad := range map[string]answer{
		"unknown": {end: 2}, "no refusal": {end: end(fabric.StatusPeerGone)}, "late": {end: endLate}, "closed late": {end: endLate | endClosed},
	} {
		bad.crypt, bad.attempt = CryptAuth, h.attempt
		require.ErrorIs(t, got.parse(bad.append(nil), &h), errNotHello, what)
	}
	for what, bad := range map[string]answer{"another attempt": {attempt: 5}, "does not resume": {}} {
		bad.crypt = CryptAuth
		require.ErrorIs(t, got.parse(bad.append(nil), &h), errNotHello, what)
	}
	h.attempt = firstAttempt
	require.NoError(t, got.parse((&answer{crypt: CryptAuth}).append(nil), &h), "it does not resume")
	require.ErrorIs(t, got.parse((&answer{crypt: CryptAuth, attempt: 1, tally: goodTally}).append(nil), &h), errNotHello)
	require.ErrorIs(t, got.parse((&answer{crypt: CryptAuth, attempt: 1, end: endClosed}).append(nil), &h), errNotHello, "an end before the first connection")
	h.attempt, h.lane = 2, 1
	require.ErrorIs(t, got.parse((&answer{crypt: CryptAuth, attempt: 2, tally: goodTally}).append(nil), &h), errNotHello, "of a lane")
}

// The authentication of a handshake whose every byte is known.
func TestHandshakeGolden(t *testing.T) {
	h, k, l := goodHello(), goodToken(), token{1}
	var s transcript
	s.add(h.append(nil))
	s.add(h.challenge[:])
	require.Equal(t, "d585787c7bbb823612c6a6f32f7ffb70db8c68401d206ea1c6df47eea16d449c", hex.EncodeToString(s.sign(&k, purposeProof)))
	s.add((&answer{reads: 128, lanes: 3, crypt: CryptFull}).append(nil))
	require.Equal(t, "3ef9976eae896d7e3b9e79728df3327bcd4d11d60c5ecd0445ad45906f8e74c9", hex.EncodeToString(s.sign(&l, purposeAnswer)))
	require.Len(t, s.said, s.n)
	require.True(t, s.signed(&l, purposeAnswer))
	require.False(t, s.signed(&k, purposeAnswer))
	require.False(t, s.signed(&l, purposeProof))
	for i := range s.said { // whatever was changed on the way
		s.said[i] ^= 1
		require.False(t, s.signed(&l, purposeAnswer), "byte %d", i)
		s.said[i] ^= 1
	}
	require.NotContains(t, string(s.said[:]), string(k[:]))

	mine, err := s.keys(k, l, CryptFull, true)
	require.NoError(t, err)
	theirs, err := s.keys(k, l, CryptFull, false)
	require.NoError(t, err)
	require.Equal(t, "e5a3dab2be8d69cdaccb60e38a85dee8", hex.EncodeToString(mine.send[:]))
	require.Equal(t, "40bda9b652ff4c9cc299839f44da7228", hex.EncodeToString(theirs.send[:]))
	require.Equal(t, mine.send, theirs.recv)
	require.Equal(t, mine.recv, theirs.send)
	s.said[helloSize]++ // another challenge
	other, err := s.keys(k, l, CryptFull, true)
	require.NoError(t, err)
	require.NotEqual(t, mine.send, other.send)
	require.NotEqual(t, mine.recv, other.recv)
}

func FuzzHello(f *testing.F) {
	h := goodHello()
	f.Add(h.append(nil))
	h.lane, h.attempt, h.tally = 0, 2, goodTally
	f.Add(h.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h hello
		if h.parse(b) == nil {
			require.Equal(t, b[:helloSize], h.append(nil))
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add((&answer{reads: 128, lanes: 3, crypt: CryptFull, attempt: 2, tally: goodTally}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a answer
		if a.parse(b, &hello{lanes: 3, crypt: CryptOff, attempt: 2}) == nil {
			require.Equal(t, b[:answerFields], a.append(nil))
			require.LessOrEqual(t, a.lanes, uint8(3))
		}
	})
}

func goodAddress() address {
	return address{token: goodToken(), nonce: 5, port: 0x1234, hosts: []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("2001:db8::1")}}
}

func TestAddress(t *testing.T) {
	want := goodAddress()
	b := want.append(nil)
	require.Equal(t, "5404"+"a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"+"0500000000000000"+"3412"+"02"+"040a010203"+"1020010db8000000000000000000000001", hex.EncodeToString(b))
	var got address
	require.NoError(t, got.parse(b))
	require.Equal(t, want, got)
	for n := range b {
		require.ErrorIs(t, got.parse(b[:n]), fabric.ErrBadAddress)
	}
	require.ErrorIs(t, got.parse(append(b, 0)), fabric.ErrBadAddress)
	require.ErrorIs(t, got.parse(make([]byte, 600)), fabric.ErrBadAddress)
	for at, v := range map[int]byte{0: 'x', 1: 9, 28: 0, 29: 5, 30: 0xe0} {
		bad := append([]byte(nil), b...)
		bad[at] = v
		require.ErrorIs(t, got.parse(bad), fabric.ErrBadAddress, "byte %d", at)
	}
	full := goodAddress()
	for len(full.hosts) < maxAddrs {
		full.hosts = append(full.hosts, netip.MustParseAddr("2001:db8::1"))
	}
	require.LessOrEqual(t, len(full.append(nil)), fabric.MaxAddress)
	require.NoError(t, got.parse(full.append(nil)))
	full.hosts = append(full.hosts, full.hosts[0])
	require.ErrorIs(t, got.parse(full.append(nil)), fabric.ErrBadAddress)
}

func FuzzAddress(f *testing.F) {
	a := goodAddress()
	f.Add(a.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a address
		if a.parse(b) == nil {
			require.Equal(t, b, a.append(nil))
		}
	})
}
