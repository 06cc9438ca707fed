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
	goldenJoin       = "ada14f35f607065a45d0142eef9f9bf821c1005f6072dc56b8488c9b40f27653"
	goldenWelcome    = "beaa5f9d579e307bf4dc15e4bed664e87e141047f964bc1667aea39e16ad0ec2"
	goldenBound      = "d6d1cf649e2b99b958a059b3f6ef7e85506e305e247e3c75383cd53dc12c5bc6"
	goldenFromRank   = "22000000cba417bcfeefb2819659dfc23e696cccf8719d89797ea4b7fc985eb8fc4c4a27f413150000000954a7b2be3641f1b83945204ce1d45f67e5b50a3e100000803a460b7fc804428fc67dbf56e5a9e0b0"
	goldenFromServer = "22000000c87f0d7b3d3f6c7b3b739501052f06016d647e86c1072d15d8d935c5e2b304ad59b415000000ac0ce8df9c6b55d054e2eb6957177d910b0f21d2f51000008020567c258099aefe109645d2318e4b40"
)
