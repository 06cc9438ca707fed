package rmanet

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// pipes creates connected pairs: over rmanet between two engines of this process, and, for
// comparison, over TCP through the loopback interface.
var pipes = []struct {
	name string
	make func(b *testing.B) (client, server net.Conn)
}{
	{"rmanet-shm", func(b *testing.B) (net.Conn, net.Conn) { return conns(b, "shm") }},
	{"rmanet-tcp", func(b *testing.B) (net.Conn, net.Conn) { return conns(b, "tcp") }},
	{"loopback", func(b *testing.B) (net.Conn, net.Conn) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(b, err)
		d, err := l.Accept()
		require.NoError(b, err)
		return c, d
	}},
}

func conns(b *testing.B, fabric string) (net.Conn, net.Conn) {
	return connect(b, job(b, 2, fabric), 0, 1)
}

// A round trip of one message.
func BenchmarkPing(b *testing.B) {
	for _, size := range []int{1, 1000, 64 << 10} {
		for _, p := range pipes {
			b.Run(fmt.Sprintf("%d/%s", size, p.name), func(b *testing.B) {
				c, d := p.make(b)
				defer c.Close()
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer d.Close()
					buf := make([]byte, size)
					for {
						if _, err := io.ReadFull(d, buf); err != nil {
							return
						}
						if _, err := d.Write(buf); err != nil {
							return
						}
					}
				}()
				buf := make([]byte, size)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.Write(buf); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(c, buf); err != nil {
						b.Fatal(err)
					}
				}
				c.Close()
				<-done
			})
		}
	}
}

// One way, as fast as the reader takes it.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{100, 4 << 10, 64 << 10, 1 << 20} {
		for _, p := range pipes {
			b.Run(fmt.Sprintf("%d/%s", size, p.name), func(b *testing.B) {
				c, d := p.make(b)
				done := make(chan int64)
				go func() {
					defer d.Close()
					buf := make([]byte, max(size, 32<<10))
					var n int64
					for {
						m, err := d.Read(buf)
						n += int64(m)
						if err != nil {
							done <- n
							return
						}
					}
				}()
				buf := make([]byte, size)
				var n int64
				b.SetBytes(int64(size))
				for b.Loop() {
					m, err := c.Write(buf)
					if err != nil {
						b.Fatal(err)
					}
					n += int64(m)
				}
				c.Close()
				require.Equal(b, n, <-done)
			})
		}
	}
}

// One small request on a kept-alive connection, client and server in one process.
func BenchmarkHTTP(b *testing.B) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "pong") })
	get := func(b *testing.B, c *http.Client, url string) {
		for b.Loop() {
			resp, err := c.Get(url)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				b.Fatal(err)
			}
			resp.Body.Close()
		}
		c.CloseIdleConnections()
	}
	for _, fabric := range []string{"shm", "tcp"} {
		b.Run("rmanet-"+fabric, func(b *testing.B) {
			es := job(b, 2, fabric)
			l, err := Listen(es[1], "80")
			require.NoError(b, err)
			srv := &http.Server{Handler: handler}
			go srv.Serve(l)
			defer srv.Close()
			get(b, &http.Client{Transport: &http.Transport{DialContext: Dialer(es[0])}}, "http://1:80/")
		})
	}
	b.Run("loopback", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		srv := &http.Server{Handler: handler}
		go srv.Serve(l)
		defer srv.Close()
		get(b, &http.Client{Transport: &http.Transport{}}, "http://"+l.Addr().String())
	})
}
