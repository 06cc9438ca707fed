package rdv

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/scatter"
)

func TestControlGolden(t *testing.T) {
	t.Parallel()
	require.Equal(t, ID(0x00070003), makeID(3, 7))
	require.Equal(t, uint64(0x0000000900070003), meta(makeID(3, 7), 9))
	require.Equal(t, "3.7", makeID(3, 7).String())

	require.Equal(t, []Kind{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, []Kind{
		KindRTS, KindFIN, KindAdvert, KindDone, KindDecline, KindRevoke, KindOffer, KindReady, KindChunk, KindAck, KindCTS, KindPlaced, KindShare, KindFilled,
	})
	require.Equal(t, []uint32{0, 1, 2}, []uint32{statusOK, statusRefused, statusWaited})

	key := fabric.RemoteKey{Addr: 0x1122334455667788, Len: 0x99aabbcc, RKey: 0xddeeff01}
	word := claimRef{0x2122232425262728, 0x31323334}
	advert := appendAdvert(nil, Want{Pos: 0x0102030405060708, Note: 0x11121314}, key, word)
	require.Equal(t, []byte{
		8, 7, 6, 5, 4, 3, 2, 1, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
		0xcc, 0xbb, 0xaa, 0x99, 0, 0, 0, 0, 1, 0xff, 0xee, 0xdd, 0x14, 0x13, 0x12, 0x11,
		0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31,
	}, advert)
	w, k, ref, why := parseAdvert(advert)
	require.NoError(t, why)
	require.Equal(t, Want{Pos: 0x0102030405060708, Note: 0x11121314}, w)
	require.Equal(t, key, k)
	require.Equal(t, word, ref)
	_, _, _, why = parseAdvert(appendAdvert(nil, Want{}, key, claimRef{4, 1}))
	require.ErrorIs(t, why, ErrMessage, "a word that is not aligned")

	cts := appendCTS(nil, key, word)
	require.Equal(t, []byte{
		0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xcc, 0xbb, 0xaa, 0x99, 0, 0, 0, 0, 1, 0xff, 0xee, 0xdd,
		0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31,
	}, cts)
	at, ref, why := parseCTS(cts)
	require.NoError(t, why)
	require.Equal(t, key, at)
	require.Equal(t, word, ref)
	for n := range ctsSize {
		_, _, why := parseCTS(cts[:n])
		require.ErrorIs(t, why, ErrMessage)
	}
	_, _, why = parseCTS(appendCTS(nil, key, claimRef{4, 1}))
	require.ErrorIs(t, why, ErrMessage, "a word that is not aligned")
	_, _, why = parseCTS(appendCTS(nil, fabric.RemoteKey{Addr: 8, RKey: 1}, word))
	require.ErrorIs(t, why, ErrMessage, "an empty destination")
	_, _, why = parseCTS(appendCTS(nil, key, claimRef{8, 0}))
	require.ErrorIs(t, why, ErrMessage, "no word")

	x := sharing{doneNote{0x0102030405060708, 0x11121314}, 0x2122232425262728, 0x31323334}
	share := appendShare(nil, x)
	require.Equal(t, []byte{
		8, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11,
		0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31,
	}, share)
	y, why := parseShare(share, 1<<20)
	require.NoError(t, why)
	require.Equal(t, x, y)
	for n := range shareSize {
		_, why := parseShare(share[:n], 1<<20)
		require.ErrorIs(t, why, ErrMessage)
	}
	_, why = parseShare(appendShare(nil, sharing{addr: 8}), 1)
	require.ErrorIs(t, why, ErrMessage, "no key")
	_, why = parseShare(appendShare(nil, sharing{addr: 1<<64 - 8, rkey: 1}), 9)
	require.ErrorIs(t, why, ErrMessage, "a source that wraps")

	done := appendDone(nil, doneNote{0x0102030405060708, 0x11121314})
	require.Equal(t, []byte{8, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11}, done)
	note, why := parseDone(done)
	require.NoError(t, why)
	require.Equal(t, doneNote{0x0102030405060708, 0x11121314}, note)
	for n := range doneSize {
		_, why := parseDone(done[:n])
		require.ErrorIs(t, why, ErrMessage)
	}

	m := scatter.Message{Pos: 0x0102030405060708, Size: 0x11223344}
	offer := appendOffer(nil, m)
	require.Equal(t, []byte{1, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 8, 7, 6, 5, 4, 3, 2, 1}, offer)
	got, why := parseOffer(offer)
	require.NoError(t, why)
	require.Equal(t, m, got)

	r := scatter.Region{Addr: 0x1122334455667788, Len: 0x01020304, RKey: 0xa0b0c0d0}
	chunk := appendChunk(nil, r)
	require.Equal(t, []byte{0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 4, 3, 2, 1, 0xd0, 0xc0, 0xb0, 0xa0}, chunk)
	region, why := parseChunk(chunk)
	require.NoError(t, why)
	require.Equal(t, r, region)

	for n := range advertSize {
		_, _, _, why := parseAdvert(advert[:n])
		require.ErrorIs(t, why, ErrMessage)
	}
	for n := range offerSize {
		_, why := parseOffer(offer[:n])
		require.ErrorIs(t, why, ErrMessage)
		_, why = parseChunk(chunk[:n])
		require.ErrorIs(t, why, ErrMessage)
	}
	for i := range 4 {
		bad := append([]byte(nil), offer...)
		bad[i]++
		_, why := parseOffer(bad)
		require.ErrorIs(t, why, ErrMessage, "form, reserved: byte %d", i)
	}
}
