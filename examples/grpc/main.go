// Command grpc serves gRPC from rank 0 to all other ranks, over the links of rma.
// It is a separate module, so that the project does not depend on gRPC.
//
//	cd examples/grpc && go build -o /tmp/grpc . && rmarun -n 3 /tmp/grpc
//
// Server and client are those of grpc-go, unmodified, with its health service, so that no
// code has to be generated. The server gets a listener of rmanet; the client gets a
// dialer of rmanet, and a target of the passthrough scheme, because rank:service is not a
// DNS name:
//
//	srv.Serve(l)
//	grpc.NewClient("passthrough:///0:grpc", grpc.WithContextDialer(dial), ...)
//
// One HTTP/2 connection carries all calls, as over TCP; streams of gRPC, deadlines
// and cancellation are those of gRPC. gRPC does not encrypt here: its credentials are
// insecure. Ranks of one job can access each other's memory anyway.
//
// The program also runs as the two processes of "rmabench sockets --program grpc", which
// measures gRPC over rmanet beside sockets (measure.go).
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	pb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/bench/sockets"
	"github.com/seed33544411/rma/rmanet"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	main := run
	if len(os.Args) > 1 && os.Args[1] == sockets.Arg {
		main = measure
	}
	if err := main(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	if eng.Rank() == 0 {
		l, err := rmanet.Listen(eng, "grpc")
		if err != nil {
			return err
		}
		srv, status := grpc.NewServer(), health.NewServer()
		pb.RegisterHealthServer(srv, status)
		ended := make(chan error, 1)
		go func() { ended <- srv.Serve(l) }()
		defer func() {
			srv.Stop()
			if err := <-ended; err != nil {
				log.Print(err)
			}
		}()
	}
	if err := eng.Barrier(ctx); err != nil { // rank 0 listens
		return err
	}
	if eng.Rank() != 0 || eng.Size() == 1 {
		if err := call(ctx, eng); err != nil {
			return fmt.Errorf("rank %d: %w", eng.Rank(), err)
		}
	}
	return eng.Barrier(ctx) // all are served
}

// call asks for the server's health, once and as a stream.
func call(ctx context.Context, eng *rma.Engine) error {
	dial := func(ctx context.Context, addr string) (net.Conn, error) { return rmanet.Dial(ctx, eng, addr) }
	cc, err := grpc.NewClient("passthrough:///0:grpc", grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer cc.Close()
	client := pb.NewHealthClient(cc)

	streaming, stop := context.WithCancel(ctx)
	defer stop()
	watch, err := client.Watch(streaming, &pb.HealthCheckRequest{})
	if err != nil {
		return err
	}
	first, err := watch.Recv()
	if err != nil {
		return err
	}

	var took []time.Duration
	for range 100 {
		start := time.Now()
		r, err := client.Check(ctx, &pb.HealthCheckRequest{})
		if err != nil {
			return err
		}
		if r.Status != first.Status {
			return fmt.Errorf("status %v, and %v by stream", r.Status, first.Status)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	fmt.Printf("rank %d: %v over %s, a call takes %v\n", eng.Rank(), first.Status, eng.Peer(0).Link(), took[len(took)/2].Round(100*time.Nanosecond))
	return nil
}
