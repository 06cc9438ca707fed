package wireup

import (
	"bytes"
	"crypto/cipher"
	"encoding/hex"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

func goldenHandshake() *handshake {
	return &handshake{token: testToken, server: seq32(0), client: seq32(0x20), rank: 1, size: 3}
}

func goldenKeys(t testing.TB) (fromRank, fromServer cipher.AEAD) {
	fromRank, fromServer, err := goldenHandshake().keys()
	require.NoError(t, err)
	return fromRank, fromServer
}

// Proofs, keys and records are these bytes, and no others. The values were made by
// another implementation of HMAC, HKDF and AES-GCM.
func TestGoldenSeal(t *testing.T) {
	t.Parallel()
	h := goldenHandshake()
	join, welcome := h.joinMAC(), h.welcomeMAC()
	require.Equal(t, goldenJoin, hex.EncodeToString(join[:]))
	require.Equal(t, goldenWelcome, hex.EncodeToString(welcome[:]))
	h.binding = []byte("a session")
	join = h.joinMAC()
	require.Equal(t, goldenBound, hex.EncodeToString(join[:]))

	fromRank, fromServer := goldenKeys(t)
	for want, aead := range map[string]cipher.AEAD{goldenFromRank: fromRank, goldenFromServer: fromServer} {
		var b bytes.Buffer
		s := &sealer{to: &b, aead: aead}
		for _, m := range []message{{typ: msgPut, id: 7, key: "k", val: []byte{9, 8}}, {typ: msgLeave}} {
			_, err := s.Write(m.append(nil))
			require.NoError(t, err)
			require.NoError(t, s.Flush())
			require.NoError(t, s.Flush(), "nothing more")
		}
		require.NoError(t, s.Close())
		require.Equal(t, want, hex.EncodeToString(b.Bytes()))
		o := &opener{from: &b, aead: aead}
		m, err := readFrame(o, maxToServer)
		require.NoError(t, err)
		require.Equal(t, message{typ: msgPut, id: 7, key: "k", val: []byte{9, 8}}, m)
		m, err = readFrame(o, maxToServer)
		require.NoError(t, err)
		require.Equal(t, msgLeave, m.typ)
		_, err = readFrame(o, maxToServer)
		require.Equal(t, io.EOF, err)
	}
}

// Everything that a handshake is about goes into proofs and keys.
func TestHandshakeIsBound(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for name, change := range map[string]func(h *handshake){
		"nothing": func(*handshake) {},
		"token":   func(h *handshake) { h.token = []byte("another secret of it") },
		"server":  func(h *handshake) { h.server[31]++ },
		"client":  func(h *handshake) { h.client[0]++ },
		"rank":    func(h *handshake) { h.rank++ },
		"size":    func(h *handshake) { h.size++ },
		"session": func(h *handshake) { h.binding = []byte{1} },
	} {
		h := goldenHandshake()
		change(h)
		join, welcome := h.joinMAC(), h.welcomeMAC()
		a, b, err := h.keys()
		require.NoError(t, err)
		for _, x := range []string{
			string(join[:]), string(welcome[:]),
			string(a.Seal(nil, recordNonce(0), nil, nil)), string(b.Seal(nil, recordNonce(0), nil, nil)),
		} {
			require.Empty(t, seen[x], "%s and %s", name, seen[x])
			seen[x] = name
		}
	}
}

// sealed is a stream of records for some lengths of what is written at a time.
func sealed(t testing.TB, aead cipher.AEAD, lengths ...int) (plain, stream []byte) {
	var b bytes.Buffer
	s := &sealer{to: &b, aead: aead}
	for i, n := range lengths {
		p := testutil.Payload(n, uint64(i), 0)
		k, err := s.Write(p)
		require.NoError(t, err)
		require.Equal(t, n, k)
		plain = append(plain, p...)
		if i%2 == 0 {
			require.NoError(t, s.Flush())
		}
	}
	require.NoError(t, s.Close())
	return plain, b.Bytes()
}

func TestSealedStream(t *testing.T) {
	t.Parallel()
	aead, other := goldenKeys(t)
	plain, stream := sealed(t, aead, 0, 1, 5, maxRecord, maxRecord+1, 3*maxRecord, 7, maxToServer, 2)
	got, err := io.ReadAll(&opener{from: bytes.NewReader(stream), aead: aead})
	require.NoError(t, err)
	require.True(t, bytes.Equal(plain, got))
	require.False(t, bytes.Contains(stream, plain[:16]))
	_, err = io.ReadAll(&opener{from: bytes.NewReader(stream), aead: other})
	require.ErrorIs(t, err, ErrForged, "what one side sent does not come back to it")
	for n := 0; n < len(stream); n += 1 + n/64 {
		got, err := io.ReadAll(&opener{from: bytes.NewReader(stream[:n]), aead: aead})
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut to %d bytes", n)
		require.True(t, bytes.HasPrefix(plain, got))
	}
	_, stream = sealed(t, aead, 3, 1, 4)
	for bit := range 8 * len(stream) {
		stream[bit/8] ^= 1 << (bit % 8)
		_, err := io.ReadAll(&opener{from: bytes.NewReader(stream), aead: aead})
		require.True(t, errors.Is(err, ErrForged) || errors.Is(err, io.ErrUnexpectedEOF), "bit %d: %v", bit, err)
		stream[bit/8] ^= 1 << (bit % 8)
	}
}

// A writer that fails is not written to again with the same number.
func TestSealerPassesErrorsOn(t *testing.T) {
	t.Parallel()
	aead, _ := goldenKeys(t)
	broken := errors.New("broken")
	s := &sealer{to: writerFunc(func([]byte) (int, error) { return 0, broken }), aead: aead}
	_, err := s.Write(make([]byte, 2*maxRecord))
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, s.Close(), broken)
	require.Equal(t, uint64(2), s.seq)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// FuzzOpener reads whatever comes: genuine bytes or an error, in bounded memory.
func FuzzOpener(f *testing.F) {
	aead, other := goldenKeys(f)
	plain, stream := sealed(f, aead, 10, 300, 20, 5)
	f.Add(stream)
	f.Add(stream[:len(stream)-20])
	_, foreign := sealed(f, other, 10)
	f.Add(foreign)
	f.Add([]byte{16, 0, 0, 0x80})
	f.Add([]byte{0xff, 0xff, 0xff, 0x7f, 1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		o := &opener{from: bytes.NewReader(b), aead: aead}
		got, err := io.ReadAll(o)
		if !bytes.HasPrefix(plain, got) {
			t.Fatalf("%d bytes that nobody has sent", len(got))
		}
		if err == nil && !bytes.HasPrefix(b, stream) {
			t.Fatal("an end that nobody has sent")
		}
		if err != nil && !errors.Is(err, ErrForged) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		if cap(o.buf) > maxRecord+tagSize {
			t.Fatalf("%d bytes held", cap(o.buf))
		}
	})
}

const (
	goldenJoin       = "ab44498cbbbb1579502cfe9a971a270d55868cb84877590c45e6b2b818653cfa"
	goldenWelcome    = "391e35d1e6a9ffd798560153905f09ab6a5e7e7fc5307ffec266ec85fdf3995d"
	goldenBound      = "2f4cd078457b7671af7003811199ace590950685d98979677a9dbb57800c200e"
	goldenFromRank   = "2200000050f0c4e3b2c7581192996364e719d4391de42ac41b0527024750328862b980ecd9bd150000003f516b6f050176e0702623aa527381ea6f88d99265100000802705219efd2afc2f2af1876f1cc11034"
	goldenFromServer = "22000000db8627bb888808336db83e2e357a31d7f83b37be294436f8ca377feca6ff486822fd1500000079de57f77537837561ead541b1f5def118ac0bcd8510000080d30b2fcd42f7f2d865d6d80e1c0c85ee"
)
