package wireup

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// handshakeTime is how long a connection may take to authenticate: many round trips of
	// any network, and many time slices of a loaded host.
	handshakeTime = 15 * time.Second

	// writeTime is how long a frame may take to be sent before the connection is checked.
	writeTime = 30 * time.Second

	// maxUnproved bounds the connections that have not authenticated. A further one
	// replaces the oldest: a flood cannot lock ranks out for longer than it lasts.
	maxUnproved = 256
)

// leftText is the reason of a rank that ended normally.
const leftText = "left"

// ServerConfig configures the wire-up server.
type ServerConfig struct {
	Size  int    // ranks of the job, 1 … MaxRanks
	Token []byte // the job's secret, as Config.Token

	// TLS protects connections from other hosts: of listeners that are not Unix sockets.
	// See LoadTLS. Nil: none.
	TLS *tls.Config

	// Insecure admits every process that can connect. See ErrNoToken.
	Insecure bool

	// TokenHint is for the error of a job without a secret, as Config.TokenHint.
	TokenHint string

	// Joined is called when a rank has been admitted; it must not block nor call the
	// Server. May be nil.
	Joined func(rank int)

	// Hung is called when a rank reports another as hung; the report may be wrong or false.
	// It must not block nor call the Server. May be nil.
	Hung func(from, rank int, why string)

	// Log receives lost ranks, and refusals at decreasing frequency. Nil: nothing is
	// logged.
	Log *slog.Logger
}

// Server is the wire-up server of one job. Its methods may be called from
// any goroutine.
type Server struct {
	cfg   ServerConfig
	admit admission
	ln    net.Listener // nil if only serveConn is used
	stop  func() bool  // ends the watch on the context

	mu       sync.Mutex
	st       *state
	unproved []net.Conn // oldest first; the raw connections, because Close of a wrapper may block
	conns    map[*client]struct{}
	left     int
	closed   bool
	empty    chan struct{} // closed when no rank is connected any longer, if that is awaited

	done     chan struct{} // closed on abort and by Close
	finished chan struct{} // closed when every rank has joined and ended
	wg       sync.WaitGroup
}

// Serve runs the server of one job on ln, which it then owns, until Close or the end of
// ctx. Errors wrap ErrSize or ErrNoToken.
func Serve(ctx context.Context, ln net.Listener, cfg ServerConfig) (*Server, error) {
	s, err := newServer(cfg)
	if err != nil {
		ln.Close()
		return nil, err
	}
	if err := s.listen(ln); err != nil {
		ln.Close()
		return nil, fmt.Errorf("wireup: serve: %w", err)
	}
	s.mu.Lock()
	s.stop = context.AfterFunc(ctx, func() { s.Close() })
	s.mu.Unlock()
	return s, nil
}

// listen accepts connections of ln from now on. Call it once, before Close.
func (s *Server) listen(ln net.Listener) error {
	if err := s.admit.check(ln.Addr().Network(), ln.Addr().String()); err != nil {
		return err
	}
	s.ln = ln
	s.wg.Add(1)
	go s.accept()
	return nil
}

func newServer(cfg ServerConfig) (*Server, error) {
	if cfg.Size < 1 || cfg.Size > MaxRanks {
		return nil, fmt.Errorf("wireup: serve: %w: size %d, want 1 … %d", ErrSize, cfg.Size, MaxRanks)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg: cfg, admit: admission{cfg.Token, cfg.TLS, cfg.Insecure, cfg.TokenHint}, st: newState(cfg.Size), conns: map[*client]struct{}{},
		done: make(chan struct{}), finished: make(chan struct{}),
	}
	s.st.hung = cfg.Hung
	return s, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Done is closed when the job is aborted or the server closed.
func (s *Server) Done() <-chan struct{} { return s.done }

// Finished is closed when every rank of the job has joined and ended.
func (s *Server) Finished() <-chan struct{} { return s.finished }

// deserted returns a channel that is closed when no rank is connected, for a job that
// cannot be joined any longer. Call it once.
func (s *Server) deserted() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := make(chan struct{})
	if len(s.conns) == 0 {
		close(ch)
	} else {
		s.empty = ch
	}
	return ch
}

// Err returns the *AbortError of an aborted job, ErrClosed for a closed server, else nil.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.st.aborted; a != nil {
		return &AbortError{Rank: int(int32(a.rank)), Reason: a.text}
	}
	if s.closed {
		return ErrClosed
	}
	return nil
}

// Abort ends the job: every rank's Done is closed with the reason.
func (s *Server) Abort(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st.abort(message{typ: msgAbort, rank: ^uint32(0), text: reason})
	s.noteAbort()
}

// Lost records that a rank's process has ended, if the launcher knows. Ranks that wait for
// it are notified at once, even if it never joined.
func (s *Server) Lost(rank int, reason string) {
	if rank < 0 || rank >= s.cfg.Size {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.st.clients[rank]; c != nil {
		c.quit(reason)
	}
	s.ended(rank, reason)
}

// Absent is like Lost for a rank that has not joined. It does nothing if the rank has: what
// it sent last may still be on its way, and the end of its connection follows.
func (s *Server) Absent(rank int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rank >= 0 && rank < s.cfg.Size && !s.st.joined[rank] {
		s.ended(rank, reason)
	}
}

// Close ends the server and all connections. Ranks that are still joined get ErrServerGone.
// Idempotent; it returns when everything has stopped.
func (s *Server) Close() error {
	s.mu.Lock()
	already := s.closed
	s.closed = true
	if !already {
		if s.ln != nil {
			s.ln.Close()
		}
		for _, c := range s.unproved {
			c.Close()
		}
		for c := range s.conns {
			c.quit("server closed")
		}
		s.noteAbort()
	}
	stop := s.stop
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
	s.wg.Wait()
	return nil
}

// noteAbort closes done, once. mu is held.
func (s *Server) noteAbort() {
	select {
	case <-s.done:
	default:
		if s.closed || s.st.aborted != nil {
			close(s.done)
		}
	}
}

// ended records the end of a rank. mu is held.
func (s *Server) ended(rank int, why string) {
	if s.st.gone[rank] != "" {
		return
	}
	s.st.end(rank, why)
	if s.left++; s.left == s.cfg.Size {
		close(s.finished)
	}
}

func (s *Server) accept() {
	defer s.wg.Done()
	for {
		conn, err := s.ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors or memory: connected ranks continue, and others may
			// connect when some have left.
			s.cfg.Log.Warn("wireup: accept failed", "err", err)
			select {
			case <-s.done:
				return
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		raw := conn
		if s.cfg.TLS != nil && conn.LocalAddr().Network() != "unix" {
			conn = tls.Server(conn, s.cfg.TLS)
		}
		s.serveConn(raw, conn)
	}
}

// serveConn handles one connection: conn, which is raw or wraps it.
func (s *Server) serveConn(raw, conn net.Conn) {
	if tc, ok := raw.(*net.TCPConn); ok {
		// The end of a host is detected in about a quarter of a minute.
		tc.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return
	}
	if len(s.unproved) == maxUnproved {
		s.unproved[0].Close() // its goroutine removes it from the list
		s.unproved = s.unproved[1:]
	}
	s.unproved = append(s.unproved, raw)
	s.wg.Add(1)
	go s.serve(raw, conn)
}

func (s *Server) serve(raw, conn net.Conn) {
	defer s.wg.Done()
	c, err := s.handshake(raw, conn)
	if c == nil {
		s.mu.Lock()
		s.settled(raw)
		text, n, tell := s.st.refused.note(err)
		s.mu.Unlock()
		raw.Close()
		if tell {
			s.cfg.Log.Warn("wireup: connection refused", "from", conn.RemoteAddr(), "why", text, "times", n, "err", err)
		}
		return
	}
	why := ""
	for why == "" {
		c.awaitRoom()
		m, err := readFrame(c.in, maxToServer)
		if err == nil && m.typ == msgLeave {
			why = leftText
			break
		}
		s.mu.Lock()
		if err == nil {
			err = s.st.handle(c, m)
			s.noteAbort()
		}
		if err != nil {
			if why = c.why; why == "" {
				why = endText(err)
			}
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	c.quit(why)
	delete(s.conns, c)
	if len(s.conns) == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
	if !s.closed {
		s.ended(c.rank, why)
	}
	s.mu.Unlock()
	if why != leftText {
		s.cfg.Log.Warn("wireup: rank lost", "rank", c.rank, "why", why)
	}
}

// settled removes a connection from the list of those that newer ones may replace. It
// returns false if that has happened. Server.mu is held.
func (s *Server) settled(raw net.Conn) bool {
	i := slices.Index(s.unproved, raw)
	if i >= 0 {
		s.unproved = slices.Delete(s.unproved, i, i+1)
	}
	return i >= 0
}

func endText(err error) string {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "its process ended without leaving the job"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "its host does not answer"
	}
	return "its connection broke: " + err.Error()
}

// handshake authenticates the connection and enters its rank. It returns nil and the reason
// if it refused it.
func (s *Server) handshake(raw, conn net.Conn) (*client, error) {
	conn.SetDeadline(time.Now().Add(handshakeTime))
	h := handshake{token: s.cfg.Token, server: newNonce()}
	var err error
	if h.binding, err = binding(context.Background(), conn); err != nil {
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("%w: %w", ErrTLS, err)
		}
		return nil, err
	}
	stranger := s.admit.checkPeer(raw)
	hello := message{typ: msgHello, version: Version, nonce: h.server}
	if _, err := conn.Write(hello.append(nil)); err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	m, err := readFrame(in, maxHandshake)
	if err != nil {
		return nil, err
	}
	h.client, h.rank, h.size = m.nonce, m.rank, m.size
	why, text := codeOK, ""
	switch {
	case stranger != nil:
		why = codeUser
	case m.typ != msgJoin:
		why = codeProtocol
	case m.version != Version:
		why = codeVersion
	case !macEqual(m.mac, h.joinMAC()):
		why = codeToken
	case m.size != uint32(s.cfg.Size):
		why, text = codeSize, fmt.Sprintf("the server's job has %d ranks, rank %d was started with %d", s.cfg.Size, m.rank, m.size)
	case m.rank >= m.size:
		why, text = codeRank, fmt.Sprintf("rank %d of %d", m.rank, m.size)
	}
	if why == codeOK {
		fromRank, fromServer, err := h.keys()
		if err != nil {
			return nil, err
		}
		c := newClient(s, conn, int(m.rank))
		c.in = &opener{from: in, aead: fromRank}
		c.out = &sealer{to: &patientWriter{conn: conn, every: writeTime, alive: func() bool { return acknowledges(raw) }}, aead: fromServer}
		welcome := message{typ: msgWelcome, mac: h.welcomeMAC()}
		c.hail = welcome.append(nil)
		if why, text = s.enter(c, raw); why == codeOK {
			return c, nil
		}
	}
	refuse := message{typ: msgRefuse, code: why, version: Version, text: text}
	conn.Write(refuse.append(nil))
	return nil, fmt.Errorf("%w: %s", why.err(), text)
}

// enter enters c as its rank and starts its writer, or returns the reason why not. Newer
// connections do not replace an entered one, and a connection that was replaced, even if it
// has not noticed yet, is not entered.
func (s *Server) enter(c *client, raw net.Conn) (why code, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.settled(raw) || s.closed {
		return codeClosing, ""
	}
	if why = s.st.join(c); why == codeDuplicate {
		text = fmt.Sprintf("rank %d", c.rank)
		if g := s.st.gone[c.rank]; g != "" {
			text += ", and is gone: " + g
		}
		return why, text
	}
	c.conn.SetDeadline(time.Time{})
	for r, text := range s.st.gone {
		if text != "" {
			c.send(message{typ: msgGone, rank: uint32(r), text: text})
		}
	}
	if s.st.aborted != nil {
		c.send(*s.st.aborted) // as ranks that joined before have received it
	}
	s.conns[c] = struct{}{}
	s.wg.Add(1)
	go c.write()
	if s.cfg.Joined != nil {
		s.cfg.Joined(c.rank)
	}
	return codeOK, ""
}
