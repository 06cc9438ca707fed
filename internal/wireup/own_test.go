package wireup

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
)

// ownJob joins n ranks of which rank 0 serves, over a loopback port.
func ownJob(t *testing.T, n int, change func(c *Config)) []*Job {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	js := make([]*Job, n)
	var g errgroup.Group
	for r := range js {
		g.Go(func() (err error) {
			c := Config{Rank: r, Size: n, Token: testToken, Root: ln.Addr().String(), Timeout: testutil.Limit}
			if r == 0 {
				c.Prepare = func(_ context.Context, c *Config) error { c.Listener = ln; return nil }
			}
			if change != nil {
				change(&c)
			}
			js[r], err = Join(t.Context(), c)
			return err
		})
	}
	require.NoError(t, g.Wait())
	return js
}

// The rank that serves stays until the others have left: they may still need it.
func TestServingRankLeavesLast(t *testing.T) {
	t.Parallel()
	js := ownJob(t, 3, nil)
	require.True(t, js[0].Serves())
	require.False(t, js[1].Serves())
	require.NoError(t, each(js, func(j *Job) error { return j.Barrier(t.Context(), "b") }))
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		js[0].Close()
	}()
	<-js[1].Gone(0)
	require.NoError(t, js[1].Put(t.Context(), "k", []byte("v")))
	v, err := js[2].Get(t.Context(), 1, "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(v))
	require.NoError(t, js[1].Close())
	select {
	case <-closed:
		require.Fail(t, "closed before rank 2 left")
	default:
	}
	require.NoError(t, js[2].Close())
	<-closed
}

// It does not stay for ever.
func TestServingRankLingersForItsTimeout(t *testing.T) {
	t.Parallel()
	js := ownJob(t, 2, func(c *Config) { c.Timeout = 300 * time.Millisecond })
	start := time.Now()
	require.NoError(t, js[0].Close())
	require.GreaterOrEqual(t, time.Since(start), 250*time.Millisecond)
	<-js[1].Done()
	require.ErrorIs(t, js[1].Err(), ErrServerGone)
	require.NoError(t, js[1].Close())
}

func TestServingRankAborts(t *testing.T) {
	t.Parallel()
	js := ownJob(t, 2, func(c *Config) { c.Timeout = time.Hour })
	js[0].Abort("no link")
	<-js[1].Done()
	var a *AbortError
	require.ErrorAs(t, js[1].Err(), &a)
	require.Equal(t, AbortError{Rank: 0, Reason: "no link"}, *a)
	require.NoError(t, js[0].Close()) // after failedLinger, not an hour
	require.NoError(t, js[1].Close())
}

// When the job has failed, the rank that serves stays for those that joined, and for
// nobody else.
func TestServingRankOfAFailedJobWaitsForNobody(t *testing.T) {
	t.Parallel()
	for _, joined := range []int{1, 2} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		j, err := Join(t.Context(), Config{Size: 3, Listener: ln, Token: testToken, Timeout: time.Hour})
		require.NoError(t, err)
		j.linger = time.Hour
		var other *Job
		if joined == 2 {
			other, err = Join(t.Context(), Config{Rank: 1, Size: 3, Root: ln.Addr().String(), Token: testToken})
			require.NoError(t, err)
		}
		j.Abort("rank 2 has not joined")
		if other != nil {
			<-other.Done()
			require.NoError(t, other.Close())
		}
		require.NoError(t, j.Close())
	}
}

// One of several addresses is the server's.
func TestSeveralRoots(t *testing.T) {
	t.Parallel()
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, dead.Close())
	js := ownJob(t, 2, func(c *Config) {
		if c.Rank > 0 {
			c.Root = "unix:" + t.TempDir() + "/none," + dead.Addr().String() + "," + c.Root
		}
	})
	for _, j := range js[1:] {
		require.NoError(t, j.Close())
	}
	require.NoError(t, js[0].Close())
}

// authority makes the certificates of a job.
func authority(t *testing.T, dir, name string) (ca *x509.Certificate, key *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca = &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	require.NoError(t, err)
	writePEM(t, filepath.Join(dir, name+"-ca.pem"), "CERTIFICATE", der)
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err = x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, DNSNames: []string{"a.host.nobody.asks.for"},
	}, ca, &leaf.PublicKey, key)
	require.NoError(t, err)
	writePEM(t, filepath.Join(dir, name+".pem"), "CERTIFICATE", der)
	der, err = x509.MarshalECPrivateKey(leaf)
	require.NoError(t, err)
	writePEM(t, filepath.Join(dir, name+"-key.pem"), "EC PRIVATE KEY", der)
	return ca, key
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority(t, dir, "ours")
	authority(t, dir, "theirs")
	vars := func(name, ca string) func(string) string {
		m := map[string]string{
			EnvTLSCert: filepath.Join(dir, name+".pem"), EnvTLSKey: filepath.Join(dir, name+"-key.pem"), EnvTLSCA: filepath.Join(dir, ca+"-ca.pem"),
		}
		return func(k string) string { return m[k] }
	}
	good, err := TLSFrom(vars("ours", "ours"))
	require.NoError(t, err)
	js := ownJob(t, 3, func(c *Config) { c.TLS = good })
	root := js[0].cfg.Root
	require.NoError(t, each(js, func(j *Job) error { return j.Barrier(t.Context(), "b") }))

	// Nobody without a certificate of the authority, and nobody without TLS.
	foreign, err := TLSFrom(vars("theirs", "ours"))
	require.NoError(t, err)
	_, err = Join(t.Context(), Config{Rank: 1, Size: 3, Token: testToken, Root: root, TLS: foreign, Timeout: testutil.Limit})
	require.ErrorContains(t, err, "certificate")
	// The server waits for it to begin TLS: its time ends with a hint, unless it is too
	// short for a busy machine to connect.
	for d := 200 * time.Millisecond; d < testutil.Limit; d *= 4 {
		_, err = Join(t.Context(), Config{Rank: 1, Size: 3, Token: testToken, Root: root, Timeout: d})
		if require.Error(t, err); strings.Contains(err.Error(), EnvTLSCert) {
			break
		}
	}
	require.ErrorContains(t, err, EnvTLSCert)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	// A rank does not join a server of another authority, or without TLS.
	other, err := TLSFrom(vars("ours", "theirs"))
	require.NoError(t, err)
	_, err = Join(t.Context(), Config{Rank: 1, Size: 3, Token: testToken, Root: root, TLS: other, Timeout: testutil.Limit})
	require.ErrorIs(t, err, ErrTLS)
	_, plain := serve(t, "tcp", 3)
	_, err = Join(t.Context(), Config{Rank: 1, Size: 3, Token: testToken, Root: plain, TLS: good, Timeout: testutil.Limit})
	require.Error(t, err)
	require.NoError(t, each(js, func(j *Job) error { return j.Close() }))

	_, err = TLSFrom(func(k string) string { return map[string]string{EnvTLSCert: "x"}[k] })
	require.ErrorIs(t, err, ErrEnvironment)
	_, err = LoadTLS(filepath.Join(dir, "ours.pem"), filepath.Join(dir, "theirs-key.pem"), filepath.Join(dir, "ours-ca.pem"))
	require.ErrorIs(t, err, ErrTLS)
	_, err = LoadTLS(filepath.Join(dir, "ours.pem"), filepath.Join(dir, "ours-key.pem"), filepath.Join(dir, "ours-key.pem"))
	require.ErrorIs(t, err, ErrTLS)
}

// Who holds another certificate of the authority cannot sit in between: what one TLS
// session proves is worth nothing in another.
func TestProofIsOfTheTLSSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority(t, dir, "site")
	conf, err := LoadTLS(filepath.Join(dir, "site.pem"), filepath.Join(dir, "site-key.pem"), filepath.Join(dir, "site-ca.pem"))
	require.NoError(t, err)
	js := ownJob(t, 1, func(c *Config) { c.Size, c.TLS = 2, conf })
	ln, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			rank, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := tls.Dial("tcp", js[0].cfg.Root, conf)
			if err != nil {
				rank.Close()
				continue
			}
			pass := func(to, from net.Conn) {
				io.Copy(to, from)
				to.Close()
			}
			wg.Go(func() { pass(server, rank) })
			wg.Go(func() { pass(rank, server) })
		}
	})
	_, err = Join(t.Context(), Config{Rank: 1, Size: 2, Root: ln.Addr().String(), Token: testToken, TLS: conf, Timeout: testutil.Limit})
	require.ErrorIs(t, err, ErrToken)
	j, err := Join(t.Context(), Config{Rank: 1, Size: 2, Root: js[0].cfg.Root, Token: testToken, TLS: conf, Timeout: testutil.Limit})
	require.NoError(t, err)
	require.NoError(t, j.Close())
	require.NoError(t, js[0].Close())
	ln.Close()
	wg.Wait()
}

func TestTokenFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	from := func(token string) ([]byte, error) {
		return TokenFrom(func(k string) string { return map[string]string{EnvToken: token, EnvTokenFile: path}[k] })
	}
	_, err := from("")
	require.ErrorIs(t, err, os.ErrNotExist)
	for text, want := range map[string]string{"0a0b\n": "\n\v", " 4142": "AB"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		b, err := from("")
		require.NoError(t, err)
		require.Equal(t, want, string(b))
	}
	b, err := from("43")
	require.NoError(t, err)
	require.Equal(t, "C", string(b), "the variable comes before the file")
	for _, text := range []string{"", "\n", "secret"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := from("")
		require.ErrorIs(t, err, ErrEnvironment)
		require.NotContains(t, err.Error(), "secret")
	}
}

// hostAddr is an address of this host that others reach.
func hostAddr(t *testing.T) netip.Addr {
	as, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range as {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			ip, _ := netip.AddrFromSlice(n.IP.To4())
			return ip
		}
	}
	t.Skip("this host has no address but loopback")
	return netip.Addr{}
}

// Ranks know the address by which the server is reached, where it is one for others.
func TestLocalAddr(t *testing.T) {
	t.Parallel()
	js := ownJob(t, 2, nil)
	for _, j := range js {
		require.False(t, j.LocalAddr().IsValid(), "loopback")
	}
	require.NoError(t, each(js, (*Job).Close))
	want := hostAddr(t)
	ln, err := net.Listen("tcp", netip.AddrPortFrom(want, 0).String())
	require.NoError(t, err)
	js = ownJob(t, 2, func(c *Config) {
		c.Root = ln.Addr().String()
		if c.Rank == 0 {
			c.Prepare = func(_ context.Context, c *Config) error { c.Listener = ln; return nil }
		}
	})
	for _, j := range js {
		require.Equal(t, want, j.LocalAddr())
	}
	require.NoError(t, each(js, (*Job).Close))
}
