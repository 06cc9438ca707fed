package rmanet_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/rmanet"
)

// An HTTP server and its client, without code specific to rma. In a job of many ranks the
// server would be another one: http://1:8080/.
func Example() {
	eng, err := rma.Open(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	l, err := rmanet.Listen(eng, "8080")
	if err != nil {
		log.Fatal(err)
	}
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.Method, r.URL.Path)
	}))

	client := http.Client{Transport: &http.Transport{DialContext: rmanet.Dialer(eng), DisableKeepAlives: true}}
	resp, err := client.Get("http://0:8080/hello")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body), err)
	// Output: GET /hello <nil>
}

// A connection of a rank with itself.
func ExampleConn() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	l, err := rmanet.Listen(eng, "echo")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	conn, err := rmanet.Dial(ctx, eng, "0:echo")
	if err != nil {
		log.Fatal(err)
	}
	c := conn.(*rmanet.Conn)
	fmt.Fprint(c, "half closed")
	if err := c.CloseWrite(); err != nil {
		log.Fatal(err)
	}
	b, err := io.ReadAll(c)
	fmt.Println(string(b), err)
	// Output: half closed <nil>
}

func ExampleListener() {
	eng, err := rma.Open(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	l, err := rmanet.Of(eng).Listen("clock")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Addr().Network(), l.Addr())
	fmt.Println(l.Close())
	_, err = l.Accept()
	fmt.Println(err)
	// Output:
	// rma rank0.rma:clock
	// <nil>
	// accept rma rank0.rma:clock: use of closed network connection
}

// Windows are for fast links and slow readers; Drain waits until nothing is open.
func ExampleNet() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	n, err := rmanet.Configure(eng, rmanet.Config{Window: 4 << 20})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n.Drain(ctx), n == rmanet.Of(eng))
	// Output: <nil> true
}

func ExampleConfig() {
	eng, err := rma.Open(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	_, err = rmanet.Configure(eng, rmanet.Config{Window: 1})
	fmt.Println(err != nil)
	// Output: true
}

func ExampleAddr() {
	a, err := rmanet.ParseAddr("3:8080")
	if err != nil {
		log.Fatal(err)
	}
	var _ net.Addr = a
	fmt.Println(a, a.Rank, a.Service)
	// Output: rank3.rma:8080 3 8080
}
