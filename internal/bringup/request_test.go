package bringup

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
)

func TestRequest(t *testing.T) {
	r := Request{
		Link: 2, Number: 5, Address: []byte("there"),
		Heartbeat: Heartbeat{Every: 250 * time.Millisecond, Word: fabric.RemoteKey{Addr: 0x1000, Len: 8, RKey: 7}},
	}
	b := r.Append(nil)
	require.Equal(t, []byte{
		0x12, 5, 0, 0, 0, 250, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 't', 'h', 'e', 'r', 'e',
	}, b)
	got, err := ParseRequest(b)
	require.NoError(t, err)
	require.Equal(t, r, got)
	for n := range requestSize {
		_, err := ParseRequest(b[:n])
		require.ErrorIs(t, err, fabric.ErrBadAddress)
	}
	_, err = ParseRequest(append([]byte{2}, b[1:]...)) // version 0
	require.ErrorIs(t, err, fabric.ErrBadAddress)
	for _, word := range []fabric.RemoteKey{{Addr: 0x1000, Len: 7}, {Addr: 0x1004, Len: 8}, {Addr: ^uint64(0) - 7, Len: 64}} {
		_, err := ParseRequest((&Request{Heartbeat: Heartbeat{time.Second, word}}).Append(nil))
		require.ErrorIs(t, err, fabric.ErrBadAddress)
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add((&Request{Link: 1, Heartbeat: Heartbeat{time.Second, fabric.RemoteKey{Addr: 64, Len: 8, RKey: 3}}, Address: []byte("x")}).Append(nil))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRequest(b)
		if err == nil {
			require.Equal(t, b, r.Append(nil))
		}
	})
}

func TestRefusal(t *testing.T) {
	for name, c := range map[string]struct {
		why       error
		b         string
		resources bool
		says      string
	}{
		"other":    {errors.New("no \x00 luck"), "\x09\x00no \x00 luck", false, `rank 3: "no \x00 luck"`},
		"shortage": {fmt.Errorf("ring: %w", fabric.ErrResources), "\x09\x01ring: " + fabric.ErrResources.Error(), true, `rank 3: ` + fabric.ErrResources.Error() + `: "ring: `},
		"long":     {errors.New(strings.Repeat("x", 2*maxReason)), "\x09\x00" + strings.Repeat("x", maxReason), false, `xxx"`},
	} {
		b := AppendRefusal([]byte{9}, c.why)
		require.Equal(t, c.b, string(b), name)
		err := Refused(3, b[1:])
		require.ErrorIs(t, err, ErrNoConnection)
		require.Equal(t, c.resources, errors.Is(err, fabric.ErrResources), name)
		require.Contains(t, err.Error(), c.says)
	}
	require.ErrorIs(t, Refused(3, nil), ErrNoConnection)
}
