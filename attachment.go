package rma

import "github.com/seed33544411/rma/fabric"

// Attachment is access, to read and to write, to the memory of another rank of this host that it has not registered: see
// Mapping.Attach.
type Attachment struct {
	of *Peer
	at fabric.Attachment
}

// Attach returns access to all memory of the process whose memory is mapped, for ranks that tell
// each other, through the mapping, where data is and for how long. It fails with
// ErrNotMapped where the system does not let this process read and write the other (ptrace restrictions,
// containers), or while the two are not connected.
func (m *Mapping) Attach() (*Attachment, error) {
	p := m.of
	a := &Attachment{of: p}
	p.eng.prog.Do(func() {
		if l, ok := p.eng.links[p.link].(fabric.Attacher); ok && p.ep != nil && !p.eng.closed.Load() {
			a.at = l.Attach(p.ep)
		}
	})
	if a.at == nil {
		return nil, &PeerError{Rank: p.rank, Op: "attach", Err: ErrNotMapped}
	}
	return a, nil
}

// Read copies len(dst) bytes at addr of the other process to dst, by one copy of the system. It
// fails with ErrPeerGone if that process has ended, and with another error if
// it has no such memory; then dst may have changed. It has no order to operations that are in
// flight. One goroutine calls it at a time.
func (a *Attachment) Read(dst []byte, addr uint64) error {
	if err := a.at.Read(dst, addr); err != nil {
		return &PeerError{Rank: a.of.rank, Op: "read", Err: err}
	}
	return nil
}

// Write copies src to len(src) bytes at addr of the other process, by one copy of the system, and fails as
// Read does; then they may have changed. That process must not use them for anything else before it knows that
// Write has returned, or that this process has ended. One goroutine calls it, or Read, at a time.
func (a *Attachment) Write(src []byte, addr uint64) error {
	if err := a.at.Write(src, addr); err != nil {
		return &PeerError{Rank: a.of.rank, Op: "write", Err: err}
	}
	return nil
}

// Ended reports whether the other process has ended: it writes no more. Any goroutine may call it, until
// Close.
func (a *Attachment) Ended() bool { return a.at.Ended() }

// Close ends the access. No Read or Write runs, and none follows.
func (a *Attachment) Close() error { return a.at.Close() }
