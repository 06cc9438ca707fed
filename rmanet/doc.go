// Package rmanet gives programs that speak package net the links of an rma engine:
// connections and listeners between the ranks of a job, over shared memory, RDMA or
// whatever reaches the peer, that implement net.Conn and net.Listener to the letter
// (golang.org/x/net/nettest is a test here). An unmodified HTTP or gRPC server runs
// over it:
//
//	l, err := rmanet.Listen(eng, "8080")
//	go http.Serve(l, handler)
//
//	client := &http.Client{Transport: &http.Transport{DialContext: rmanet.Dialer(eng)}}
//	resp, err := client.Get("http://1:8080/") // service 8080 of rank 1
//
// gRPC takes grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn,
// error) { return rmanet.Dial(ctx, eng, addr) }) and the target "passthrough:///1:8080".
// examples/http and examples/grpc do it.
//
// # How streams travel
//
// All connections between two ranks share the messages of their engines
// ([rma.Receiver]); the tag of a message names the stream, so that its bytes are all
// of the message: docs/wire.md, "Streams". A write of 16 KiB and more is handed over
// where it lies, frame by frame, and the peer's engine fetches it, to the memory of a
// Read that waits if it has room there: one copy, by the link. A smaller one is
// copied; the first goes at once, and what is written while it has not gone collects
// into the next message. Small messages of many streams share writes of the link
// when that is busy: that is the engine's planning.
//
// # Flow control and fairness
//
// Each stream has a window ([Config.Window]) that its reader opens by reading. A
// writer never hands over more, so that messages of streams are always taken from the
// ring at once: a reader that is slow, or does nothing, stops its own writer and no
// other stream. What this side holds for a peer is bounded by streams × two windows, and
// only what has come is held.
//
// # Ends
//
//	CloseWrite   the peer reads what was written, then io.EOF
//	CloseRead    the peer's writes fail with syscall.EPIPE
//	Close        both; nothing that was written is lost
//	Abort        the peer gets syscall.ECONNRESET at once
//	peer dies    what has come may be read, then syscall.ECONNRESET (and
//	             rma.ErrPeerGone), within rma.Config.PeerTimeout
//	Engine.Close net.ErrClosed here, as if died there: call Net.Drain before where
//	             what was written last matters
//
// Errors are *net.OpError, but for io.EOF, as those of package net.
//
// # Concurrency
//
// Everything may be called from any goroutine. A Conn has two locks for its callers
// (one Read, one Write at a time) and one for its state; the engine takes only the
// last, nobody holds that while calling the engine, and so the engine never waits for
// an application. A goroutine that waits in Read or Write drives the engine's links
// ([rma.Event]).
//
// # Hostile peers
//
// Frames are checked against what this side has granted and seen. A peer that breaks
// the rules loses all its connections here with an error that wraps [ErrProtocol].
//
// # Files
//
//	net.go       Net: the connections of an engine; Dial
//	listener.go  Listener
//	conn.go      Conn: reading, closing; write.go writing; queue.go what waits for Read
//	session.go   all streams of one peer: what comes
//	frame.go     tags and control frames
//	deadline.go  deadlines; addr.go addresses; options.go Config
//
// It imports the root package alone.
package rmanet
