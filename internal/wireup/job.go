package wireup

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Job is one rank's membership in its job. Any goroutine may call its methods; calls of
// AllGather (or Barrier) under one name must be made in the same order on every rank. Its
// methods lie in one file more than those of other types: exchanges, sends and
// notifications share one connection, and have a file each.
type Job struct {
	cfg  Config
	conn net.Conn

	own     *Server // the server in this process, or nil
	ownOnce sync.Once
	linger  time.Duration // failedLinger

	cancelTime time.Duration // CancelTime when the job was joined

	wmu sync.Mutex // serialises writes of frames
	out *sealer    // guarded by wmu

	mu         sync.Mutex
	next       uint32
	calls      map[uint32]chan message
	rounds     map[string]uint64 // number of uses of each gather name
	gone       map[int]chan struct{}
	goneWhy    map[int]string
	onGone     func(rank int, why string)
	onReceived func(from int, key string, val []byte)
	early      []delivery            // received before onReceived was set
	sends      map[int]chan struct{} // by rank: one element for each send without an answer
	err        error
	closing    bool

	done    chan struct{}
	readEnd chan struct{}
}

// Join joins the job that cfg describes and returns when the server has admitted this rank;
// it does not wait for other ranks (Barrier does). While the server is not reachable yet it
// retries, until ctx ends or cfg.Timeout. Errors wrap ErrNoToken, ErrVersion, ErrToken,
// ErrSize, ErrRank, ErrDuplicateRank, ErrServerGone or ErrTimeout.
func Join(ctx context.Context, cfg Config) (*Job, error) {
	cfg.Size = cmp.Or(cfg.Size, 1)
	if cfg.Size < 1 || cfg.Size > MaxRanks || cfg.Rank < 0 || cfg.Rank >= cfg.Size {
		return nil, fmt.Errorf("wireup: join: %w: rank %d of %d", ErrRank, cfg.Rank, cfg.Size)
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	j := &Job{
		cfg: cfg, calls: map[uint32]chan message{}, rounds: map[string]uint64{},
		gone: map[int]chan struct{}{}, goneWhy: map[int]string{}, sends: map[int]chan struct{}{},
		done: make(chan struct{}), readEnd: make(chan struct{}), linger: failedLinger, cancelTime: CancelTime,
	}
	ctx, cancel := j.bound(ctx)
	defer cancel()
	if cfg.Prepare != nil {
		if err := cfg.Prepare(ctx, &j.cfg); err != nil {
			return nil, fmt.Errorf("wireup: rank %d of %d: %w", cfg.Rank, cfg.Size, err)
		}
	}
	in, err := j.connect(ctx)
	if err != nil {
		if j.cfg.Listener != nil {
			j.cfg.Listener.Close()
		}
		return nil, fmt.Errorf("wireup: rank %d of %d: join %q: %w", cfg.Rank, cfg.Size, j.cfg.Root, err)
	}
	go j.read(in)
	return j, nil
}

func (j *Job) connect(ctx context.Context) (*opener, error) {
	if j.cfg.Listener != nil || j.cfg.Root == "" && j.cfg.Size == 1 {
		return j.serve(ctx)
	}
	if j.cfg.Root == "" {
		return nil, fmt.Errorf("%w: no server address", ErrEnvironment)
	}
	roots, err := parseRoots(j.cfg.Root)
	if err != nil {
		return nil, err
	}
	admit := admission{j.cfg.Token, j.cfg.TLS, j.cfg.Insecure, j.cfg.TokenHint}
	for _, r := range roots {
		if err := admit.check(r.network, r.address); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	for try := 0; ; try++ {
		conn, err := j.dial(ctx, roots[try%len(roots)], len(roots) > 1)
		if err == nil {
			if err := admit.checkPeer(conn); err != nil {
				conn.Close()
				return nil, err
			}
			var in *opener
			if in, err = j.handshake(ctx, conn); err == nil {
				j.conn = conn
				return in, nil
			}
			conn.Close()
			if !thrownOut(err) {
				return nil, err
			}
		} else if !mayCome(err) && ctx.Err() == nil {
			return nil, fmt.Errorf("%w: %w", ErrServerGone, err)
		}
		t := time.NewTimer(min(time.Duration(try+1)*5*time.Millisecond, 250*time.Millisecond))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("%w: no server there after %v: %w (last try: %w)", ErrTimeout, rounded(time.Since(start)), ctx.Err(), err)
		}
	}
}

// dialTime bounds one attempt if there are other addresses to try.
const dialTime = 2 * time.Second

func (j *Job) dial(ctx context.Context, to address, others bool) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3}}
	if others {
		d.Timeout = dialTime
	}
	conn, err := d.DialContext(ctx, to.network, to.address)
	if err == nil && j.cfg.TLS != nil && to.network != "unix" {
		conn = tls.Client(conn, j.cfg.TLS)
	}
	return conn, err
}

// mayCome reports whether a dial failed as it does while the server, its host or its host's
// name does not exist yet.
func mayCome(err error) bool {
	var ne net.Error
	var dns *net.DNSError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) ||
		errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) ||
		errors.As(err, &ne) && ne.Timeout() || errors.As(err, &dns)
}

// thrownOut reports whether a handshake failed as it does when the server makes room for
// newer connections, or is ending.
func thrownOut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// handshake proves to the server that this rank knows the token, and checks the server's
// proof. From then on all data is sealed.
func (j *Job) handshake(ctx context.Context, conn net.Conn) (*opener, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	failed := func(err error) error {
		if errors.Is(err, os.ErrDeadlineExceeded) { // which only the end of ctx sets
			err = ctx.Err()
		}
		return fmt.Errorf("handshake: %w", err)
	}
	h := handshake{token: j.cfg.Token, client: newNonce(), rank: uint32(j.cfg.Rank), size: uint32(j.cfg.Size)}
	var err error
	if h.binding, err = binding(ctx, conn); err != nil {
		return nil, failed(err)
	}
	in := bufio.NewReader(conn)
	hello, err := readFrame(in, maxHandshake)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && j.cfg.TLS == nil && conn.RemoteAddr().Network() == "tcp":
		return nil, failed(fmt.Errorf("no answer; a server that requires TLS gives none (set %s): %w", EnvTLSCert, ctx.Err()))
	case err != nil:
		return nil, failed(err)
	case hello.typ != msgHello:
		return nil, fmt.Errorf("handshake: %w: not a wire-up server", ErrProtocol)
	case hello.version != Version:
		return nil, fmt.Errorf("%w (server %d, this rank %d)", ErrVersion, hello.version, Version)
	}
	h.server = hello.nonce
	// First, because the server ends a connection that it cannot seal either, without a
	// reason.
	fromRank, fromServer, err := h.keys()
	if err != nil {
		return nil, failed(err)
	}
	m := message{typ: msgJoin, version: Version, rank: h.rank, size: h.size, nonce: h.client, mac: h.joinMAC()}
	if _, err := conn.Write(m.append(nil)); err != nil {
		return nil, failed(err)
	}
	reply, err := readFrame(in, maxHandshake+maxText)
	switch {
	case err != nil:
		return nil, failed(err)
	case reply.typ == msgRefuse && reply.text != "":
		return nil, fmt.Errorf("%w: %s", reply.code.err(), reply.text)
	case reply.typ == msgRefuse:
		return nil, reply.code.err()
	case reply.typ != msgWelcome:
		return nil, fmt.Errorf("handshake: %w: frame of type %d", ErrProtocol, reply.typ)
	case !macEqual(reply.mac, h.welcomeMAC()):
		return nil, fmt.Errorf("%w: the server could not prove that it has it", ErrToken)
	}
	if !stop() {
		return nil, ctx.Err()
	}
	j.out = &sealer{to: conn, aead: fromRank}
	return &opener{from: in, aead: fromServer}, conn.SetDeadline(time.Time{})
}

// Rank returns this process's number in the job, from 0.
func (j *Job) Rank() int { return j.cfg.Rank }

// Size returns the number of ranks in the job.
func (j *Job) Size() int { return j.cfg.Size }

// Done is closed when the job ends for this rank: it was aborted, its server is gone, or
// this membership was closed. Err then returns the reason.
func (j *Job) Done() <-chan struct{} { return j.done }

// Err returns nil while the membership lasts; afterwards the error wraps ErrAborted,
// ErrServerGone or ErrClosed.
func (j *Job) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Gone is closed when the server has seen the rank leave or die. GoneReason returns the
// reason.
func (j *Job) Gone(rank int) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.goneChan(rank)
}

// GoneReason returns "" while the rank may still act.
func (j *Job) GoneReason(rank int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.goneWhy[rank]
}

// NotifyGone sets a function that is called once for every rank that is gone or ends later,
// for any reason. f must not block nor call the Job. There is one function per Job.
func (j *Job) NotifyGone(f func(rank int, why string)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.onGone = f
	for r, why := range j.goneWhy {
		f(r, why)
	}
}

func (j *Job) noteGone(rank int, why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.goneWhy[rank] != "" {
		return
	}
	why = cmp.Or(why, "gone")
	j.goneWhy[rank] = why
	close(j.goneChan(rank))
	if j.onGone != nil {
		j.onGone(rank, why)
	}
}

func (j *Job) goneChan(rank int) chan struct{} {
	ch := j.gone[rank]
	if ch == nil {
		ch = make(chan struct{})
		j.gone[rank] = ch
	}
	return ch
}

// read handles the server's frames until the connection ends.
func (j *Job) read(in io.Reader) {
	defer close(j.readEnd)
	for {
		m, err := readFrame(in, maxToRank)
		if err != nil {
			j.fail(fmt.Errorf("wireup: %w: %w", ErrServerGone, endOfServer(err)))
			return
		}
		switch m.typ {
		case msgDone, msgValue, msgValues:
			j.mu.Lock()
			ch := j.calls[m.id]
			delete(j.calls, m.id)
			j.mu.Unlock()
			if ch != nil { // otherwise the caller has given up
				ch <- m
			}
		case msgGone:
			if m.rank >= uint32(j.cfg.Size) {
				break
			}
			j.noteGone(int(m.rank), m.text)
		case msgDeliver:
			j.noteReceived(m)
		case msgAbort:
			j.fail(&AbortError{Rank: int(int32(m.rank)), Reason: m.text})
		default:
			j.fail(fmt.Errorf("wireup: %w: frame of type %d from the server", ErrProtocol, m.typ))
			return
		}
	}
}

// endOfServer distinguishes a server that has ended from a connection that broke.
func endOfServer(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the server has closed the connection")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the connection was cut off: %w", err)
	}
	return err
}

// fail ends the membership with its first reason.
func (j *Job) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return
	}
	if j.closing {
		err = ErrClosed
	}
	j.err = err
	close(j.done)
}

// Abort ends the job for every rank: their Done is closed with the reason. It returns when
// the server has forwarded it, or after two seconds.
func (j *Job) Abort(reason string) {
	if j.write(message{typ: msgAbort, text: reason}) == nil {
		t := time.NewTimer(2 * time.Second)
		defer t.Stop()
		select {
		case <-j.done:
		case <-t.C:
		}
	}
	j.fail(&AbortError{Rank: j.cfg.Rank, Reason: reason})
}

// Hung reports to the process that runs the server that this rank has found another one to
// be hung.
func (j *Job) Hung(rank int, why string) error {
	return j.write(message{typ: msgHung, rank: uint32(rank), text: why})
}

// End makes calls in progress, and later ones, fail with ErrClosed. The other ranks notice
// nothing before Close.
func (j *Job) End() { j.fail(ErrClosed) }

// Close leaves the job. Calls in progress fail with ErrClosed. Idempotent.
func (j *Job) Close() error {
	j.mu.Lock()
	already := j.closing
	j.closing = true
	j.mu.Unlock()
	if !already {
		j.write(message{typ: msgLeave}) // if it fails, the server detects the end of the connection
		// The server answers by closing; if it does not, it is not needed any longer.
		j.conn.SetReadDeadline(time.Now().Add(2 * time.Second))
	}
	<-j.readEnd
	j.fail(ErrClosed)
	j.conn.Close()
	if j.own != nil {
		j.endOwn()
	}
	return nil
}
