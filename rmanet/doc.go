// Package rmanet provides net.Conn and net.Listener between the ranks of an rma job, over
// shared memory, RDMA or whichever link reaches the peer. Its connections behave as those of
// package net do (golang.org/x/net/nettest is one of the tests). An unmodified HTTP or gRPC
// server runs over it:
//
//	l, err := rmanet.Listen(eng, "8080")
//	go http.Serve(l, handler)
//
//	client := &http.Client{Transport: &http.Transport{DialContext: rmanet.Dialer(eng)}}
//	resp, err := client.Get("http://1:8080/") // service 8080 of rank 1
//
// The package is meant to be imported by applications, and is as stable as package rma.
//
// gRPC takes grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error)
// { return rmanet.Dial(ctx, eng, addr) }) and the target "passthrough:///1:8080".
// examples/http and examples/grpc are complete programs.
//
// # Addresses
//
// Service 8080 of rank 1 is "rank1.rma:8080", or "1:8080" for short: host and port, as
// net.SplitHostPort, URLs and certificates use them. The dialling end has a port number
// above 65535. Listening on "0" chooses a free number.
//
// # How streams travel
//
// All connections between two ranks share the messages of their engines ([rma.Receiver]).
// The tag of a message names the stream, so a message contains only the bytes of the stream:
// docs/wire.md, "Streams". Write copies its data. A write of 16 KiB and more is copied to
// registered memory and announced, frame by frame; the peer's engine fetches it, directly to
// the memory of a waiting Read with room for it. Smaller writes are combined while another
// one is in flight. When the link is busy, the engine lets small messages of many streams
// share its writes.
//
// # Flow control and fairness
//
// Each stream has a window ([Config.Window]) that its reader opens by reading. A writer
// never sends more than that, so messages of streams are always taken from the ring at once:
// a slow reader stops its own writer and no other stream. [Config.Memory] bounds the data
// that this side holds for a peer; beyond it, the peer's streams wait for their readers. The
// data in flight to a peer is bounded, too.
//
// Dials beyond the backlog of a listener wait until they are accepted or their context ends;
// syscall.ECONNREFUSED means that there is no listener.
//
// # Ends
//
// A connection ends as a TCP connection does; the tests run over both:
//
//	CloseWrite   the peer reads the written data, then io.EOF
//	CloseRead    data from the peer is dropped
//	Close        both. The peer's first Write after it is lost, the next is
//	             syscall.EPIPE. Bytes that were not read here: the peer reads
//	             syscall.ECONNRESET instead of io.EOF, behind the written data
//	             (a socket drops that)
//	Abort        the peer gets syscall.ECONNRESET at once
//	peer dies    received data may be read, then syscall.ECONNRESET (and
//	             rma.ErrPeerGone)
//	Engine.Close closes all connections, and waits for written data, for
//	             [Config.Linger] at most. A process that exits without it loses
//	             data in flight
//
// The loss of the engines' connection resets all connections between two ranks; after
// [rma.Peer.Reset] new ones can be made.
//
// Deadlines and Close end calls at once, whatever the peer's process does. Errors are
// *net.OpError, except io.EOF, as in package net. A connection has no descriptor: there is
// no SyscallConn, File, SetKeepAlive or SetNoDelay.
//
// # Concurrency
//
// All methods may be called from any goroutine. A Conn has two locks for its callers (one
// Read, one Write at a time) and one for its state. The engine takes only the last, and no
// goroutine holds it while calling the engine, so the engine never waits for an application.
// A goroutine that waits in Read, Write or Accept polls the engine's links ([rma.Event]).
// Events before a Write happen before the Read of its data, for the race detector too.
//
// # testing/synctest
//
// Connections of an engine that was opened outside may be made and used in a bubble. They
// behave as sockets do there: a goroutine that waits for one stops the bubble's clock, and
// deadlines are measured by the real clock. Not everything else of the engine may be used
// there: see package rma.
//
// # Hostile peers
//
// Frames are checked against the credit that this side has granted and the frames before. A
// peer that violates the protocol loses all its connections here with an error that wraps
// [ErrProtocol]. Later Dials on either side fail with it, too, until the engines' connection
// is lost and [rma.Peer.Reset] replaces it.
//
// # Files
//
//	net.go       Net: the connections of an engine; Dial
//	listener.go  Listener
//	conn.go      Conn: reading, closing; write.go writing
//	session.go   all streams of one peer: incoming messages
//	block.go     memory of streams; queue.go in order; slab.go registered
//	frame.go     tags and control frames
//	deadline.go  deadlines; addr.go addresses; options.go Config
//
// It imports the root package, internal/bubble and internal/offheap.
package rmanet
