package ibv

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
)

func TestResumeLetterBytes(t *testing.T) {
	x := resumeLetter{kind: kindReady, attempt: 5, more: true, round: 0x01020304, expected: 0xabcdef, names: []name{{0x11121314, 0x21222324}}}
	for i := range x.address {
		x.address[i] = byte(i)
	}
	b := x.append(nil)
	require.Equal(t, "524d417203010501"+"04030201"+"efcdab00"+
		"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021222324252627"+"1413121124232221", hex.EncodeToString(b))
	y, err := parseResumeLetter(b)
	require.NoError(t, err)
	require.Equal(t, x, y)
	for n := range b {
		if n == resumeSize {
			continue
		}
		_, err := parseResumeLetter(b[:n])
		require.ErrorIs(t, err, errBadLetter)
	}
	_, err = parseResumeLetter(append(b, 0))
	require.ErrorIs(t, err, errBadLetter)
	for at, v := range map[int]byte{0: 'r', 4: 1, 5: kindTrial, 6: lastAttempt + 1, 7: 2, 15: 1} {
		c := slices.Clone(b)
		c[at] = v
		_, err := parseResumeLetter(c)
		require.ErrorIs(t, err, errBadLetter, "byte %d", at)
	}
	for _, kind := range []uint8{kindTrial, kindWorks} {
		y := resumeLetter{kind: kind, round: 1, expected: 2, address: x.address}
		z, err := parseResumeLetter(y.append(nil))
		require.NoError(t, err)
		require.Equal(t, y.append(nil), z.append(nil))
	}
	_, err = parseResumeLetter((&resumeLetter{kind: kindWorks + 1, round: 1}).append(nil))
	require.ErrorIs(t, err, errBadLetter)
	x.round = 0
	_, err = parseResumeLetter(x.append(nil))
	require.ErrorIs(t, err, errBadLetter)
}

// The last attempt is about a carrier, which no queue pair is.
func TestCarrierLetterBytes(t *testing.T) {
	x := resumeLetter{kind: kindReady, attempt: lastAttempt, round: 1, expected: 2, carrier: []byte("carrier")}
	b := x.append(nil)
	require.Equal(t, "524d41720301fb000100000002000000"+strings.Repeat("00", addrSize)+hex.EncodeToString(x.carrier), hex.EncodeToString(b))
	y, err := parseResumeLetter(b)
	require.NoError(t, err)
	require.Equal(t, x, y)
	for at, v := range map[int]byte{5: kindNames, 7: 1, 16: 1, 17: 1, 55: 1} {
		c := slices.Clone(b)
		c[at] = v
		_, err := parseResumeLetter(c)
		require.ErrorIs(t, err, errBadLetter, "byte %d", at)
	}
	x.answers = []letter{{kind: letterAnswer, key: 1, addr: 0x0102030405060708}, {kind: letterAnswer}}
	told := x.append(nil)
	require.Equal(t, "02"+strings.Repeat("00", addrSize-1)+"01000000"+"0807060504030201"+strings.Repeat("00", answerSize)+hex.EncodeToString(x.carrier), hex.EncodeToString(told[16:]))
	y, err = parseResumeLetter(told)
	require.NoError(t, err)
	require.Equal(t, x, y)
	for at, v := range map[int]byte{5: kindStopped, 16: maxAsks + 1, 17: 1} {
		c := slices.Clone(told)
		c[at] = v
		_, err := parseResumeLetter(c)
		require.ErrorIs(t, err, errBadLetter, "byte %d", at)
	}
	_, err = parseResumeLetter(told[:resumeSize+2*answerSize])
	require.ErrorIs(t, err, errBadLetter)
	for _, c := range [][]byte{b[:resumeSize], append(b[:resumeSize:resumeSize], make([]byte, fabric.MaxAddress+1)...)} {
		_, err := parseResumeLetter(c)
		require.ErrorIs(t, err, errBadLetter)
	}
}

func FuzzParseResumeLetter(f *testing.F) {
	x := resumeLetter{round: 1}
	f.Add(x.append(nil))
	x.names = []name{{1, 2}, {3, 4}}
	f.Add(x.append(nil))
	f.Add((&resumeLetter{attempt: lastAttempt, round: 1, carrier: []byte{1}}).append(nil))
	f.Add((&resumeLetter{kind: kindReady, attempt: lastAttempt, round: 1, answers: make([]letter, maxAsks), carrier: []byte{1}}).append(nil))
	f.Add([]byte(letterMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parseResumeLetter(b)
		if err != nil {
			require.ErrorIs(t, err, errBadLetter)
			return
		}
		require.Equal(t, b, x.append(nil))
		require.LessOrEqual(t, x.expected, uint32(psnMask))
	})
}
