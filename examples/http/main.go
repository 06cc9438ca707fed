// Command http serves HTTP from rank 0 to all other ranks, over the links of rma.
//
//	rmarun -n 3 go run ./examples/http
//	RMA_FABRIC=tcp rmarun -n 2 go run ./examples/http
//
// Server and client are those of net/http, unmodified. Two lines make them use shared
// memory or RDMA: the server gets a listener of rmanet,
//
//	l, err := rmanet.Listen(eng, "8080")
//	srv.Serve(l)
//
// and the client's transport a function that dials there,
//
//	&http.Transport{DialContext: rmanet.Dialer(eng)}
//
// Host and port of a URL are then rank and service: http://0:8080/ is service 8080 of
// rank 0. Keep-alive, chunked bodies, time-outs, cancelled requests and hijacked
// connections work, because net/http needs only a net.Conn.
//
// The program posts a body to the server, which answers with its checksum, and
// downloads a larger one. Then it prints the time of a small request over rmanet, and
// over TCP through the loopback interface to the same server, both with kept-alive
// connections. On a host with more runnable processes than processors TCP is faster,
// because the kernel prefers a process that wakes up, whereas an engine uses processor time
// by spinning before it sleeps.
//
// The program has two barriers. The first follows Listen: a connection to a service
// without a listener is refused, as with TCP. Before the second every client closes its
// idle connections, so that no rank closes its engine while others still use it.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/rmanet"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	var stop func() error
	if eng.Rank() == 0 {
		if stop, err = serve(eng); err != nil {
			return err
		}
	}
	if err := eng.Barrier(ctx); err != nil { // rank 0 listens
		return err
	}
	if eng.Rank() != 0 || eng.Size() == 1 {
		if err := visit(ctx, eng); err != nil {
			return fmt.Errorf("rank %d: %w", eng.Rank(), err)
		}
	}
	if err := eng.Barrier(ctx); err != nil { // all are served
		return err
	}
	if stop != nil {
		return stop()
	}
	return nil
}

// routes is a handler that does not depend on rma.
func routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ping", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "pong") })
	mux.HandleFunc("POST /sum", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		if _, err := io.Copy(h, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "%x", h.Sum(nil))
	})
	mux.HandleFunc("GET /zeros/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.PathValue("n"))
		if err != nil || n < 0 || n > 1<<30 {
			http.Error(w, "how many?", http.StatusBadRequest)
			return
		}
		for b := make([]byte, 256<<10); n > 0; n -= len(b) {
			b = b[:min(n, len(b))]
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	})
	return mux
}

func serve(eng *rma.Engine) (stop func() error, err error) {
	l, err := rmanet.Listen(eng, "8080")
	if err != nil {
		return nil, err
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0") // for comparison
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", routes())
	mux.HandleFunc("GET /tcp", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, tcp.Addr()) })
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 2)
	for _, l := range []net.Listener{l, tcp} {
		go func() { ended <- srv.Serve(l) }()
	}
	return func() error {
		if err := srv.Close(); err != nil {
			return err
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
				return err
			}
		}
		return nil
	}, nil
}

func visit(ctx context.Context, eng *rma.Engine) error {
	t := &http.Transport{DialContext: rmanet.Dialer(eng)}
	client := &http.Client{Transport: t}
	const server = "http://0:8080"

	body := bytes.Repeat([]byte("one-sided "), 100_000)
	sum, err := do(ctx, client, http.MethodPost, server+"/sum", body)
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(body)); string(sum) != want {
		return fmt.Errorf("the server received other data: checksum %s, want %s", sum, want)
	}
	zeros, err := do(ctx, client, http.MethodGet, server+"/zeros/3000000", nil)
	if err != nil {
		return err
	}
	if len(zeros) != 3_000_000 {
		return fmt.Errorf("%d bytes of 3000000", len(zeros))
	}
	fmt.Printf("rank %d posted %d bytes and got %d over %s\n", eng.Rank(), len(body), len(zeros), eng.Peer(0).Link())

	over, err := ping(ctx, client, server)
	if err != nil {
		return err
	}
	addr, err := do(ctx, client, http.MethodGet, server+"/tcp", nil)
	if err != nil {
		return err
	}
	plain := &http.Transport{}
	defer plain.CloseIdleConnections()
	beside := "there is no loopback TCP between hosts"
	if tcp, err := ping(ctx, &http.Client{Transport: plain}, "http://"+string(addr)); err == nil {
		beside = fmt.Sprintf("%v over loopback TCP", tcp)
	}
	fmt.Printf("rank %d: GET /ping takes %v over rmanet, %s\n", eng.Rank(), over, beside)
	t.CloseIdleConnections()
	return rmanet.Of(eng).Drain(ctx)
}

// ping returns the median time of a small request.
func ping(ctx context.Context, client *http.Client, server string) (time.Duration, error) {
	var took []time.Duration
	for range 200 {
		start := time.Now()
		pong, err := do(ctx, client, http.MethodGet, server+"/ping", nil)
		if err != nil || string(pong) != "pong" {
			return 0, fmt.Errorf("%q: %w", pong, err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2].Round(100 * time.Nanosecond), nil
}

func do(ctx context.Context, client *http.Client, method, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return io.ReadAll(resp.Body)
}
