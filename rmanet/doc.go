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
// The package is meant to be imported by applications, and is as stable as package rma.
//
// gRPC takes grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn,
// error) { return rmanet.Dial(ctx, eng, addr) }) and the target "passthrough:///1:8080".
// examples/http and examples/grpc do it.
//
// # Addresses
//
// Service 8080 of rank 1 is "rank1.rma:8080", or "1:8080" for short: host and port, for
// net.SplitHostPort, URLs and certificates. The end that dialled has a number above
// 65535. Listening on "0" takes a number that is free.
//
// # How streams travel
//
// All connections between two ranks share the messages of their engines
// ([rma.Receiver]); the tag of a message names the stream, so that its bytes are all
// of the message: docs/wire.md, "Streams". What is written is copied, and the
// caller's again when Write returns. A write of 16 KiB and more goes to registered
// memory and is announced, frame by frame; the peer's engine fetches it, to the memory
// of a Read that waits if it has room there. Smaller ones are put together while
// something is on its way. Small messages of many streams share writes of the link
// when that is busy: that is the engine's planning.
//
// # Flow control and fairness
//
// Each stream has a window ([Config.Window]) that its reader opens by reading. A
// writer never hands over more, so that messages of streams are always taken from the
// ring at once: a reader that is slow, or does nothing, stops its own writer and no
// other stream. What this side holds for a peer is bounded by [Config.Memory]: beyond,
// the peer's streams wait for readers of theirs. So is what is on its way to a peer.
//
// Dials beyond the backlog of a listener wait, until they are accepted or their
// context ends; syscall.ECONNREFUSED means that nobody listens.
//
// # Ends
//
// They are those of TCP, and tests run over both:
//
//	CloseWrite   the peer reads what was written, then io.EOF
//	CloseRead    what the peer writes is dropped
//	Close        both. The peer's first Write after it is lost, the next is
//	             syscall.EPIPE. Bytes that were not read here: the peer reads
//	             syscall.ECONNRESET instead of io.EOF, behind what was written
//	             (a socket drops that)
//	Abort        the peer gets syscall.ECONNRESET at once
//	peer dies    what has come may be read, then syscall.ECONNRESET (and
//	             rma.ErrPeerGone)
//	Engine.Close closes what is open, and waits for what was written, for
//	             [Config.Linger] at most. A process that exits without it loses
//	             what is on its way
//
// Deadlines and Close end calls at once, whatever the peer's process does. Errors are
// *net.OpError, but for io.EOF, as those of package net. A connection has no
// descriptor: there is no SyscallConn, File, SetKeepAlive or SetNoDelay.
//
// # Concurrency
//
// Everything may be called from any goroutine. A Conn has two locks for its callers
// (one Read, one Write at a time) and one for its state; the engine takes only the
// last, nobody holds that while calling the engine, and so the engine never waits for
// an application. A goroutine that waits in Read, Write or Accept drives the engine's
// links ([rma.Event]). What happened before a Write happens before the Read of it, for
// the race detector too.
//
// # testing/synctest
//
// Connections of an engine that was opened outside may be made and used in a bubble.
// They are like sockets there: who waits for one holds up the bubble's clock, and
// deadlines are measured by the clock outside.
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
//	conn.go      Conn: reading, closing; write.go writing
//	session.go   all streams of one peer: what comes
//	block.go     memory of streams; queue.go in order; slab.go registered
//	frame.go     tags and control frames
//	deadline.go  deadlines; addr.go addresses; options.go Config
//	race_*.go    what the race detector is told
//
// It imports the root package and internal/bubble.
package rmanet
