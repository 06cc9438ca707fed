package wireup

import (
	"net"
	"time"
)

// patientWriter writes to a rank for as long as its host takes part: a process
// that is stopped, or too busy to read, is still there. Where the network does not
// acknowledge what is written, the write ends with os.ErrDeadlineExceeded.
type patientWriter struct {
	conn  net.Conn
	every time.Duration // how often alive is asked
	alive func() bool
}

func (w *patientWriter) Write(p []byte) (int, error) {
	var t *time.Timer
	set := make(chan struct{})
	t = time.AfterFunc(w.every, func() {
		<-set
		if w.alive() {
			t.Reset(w.every)
		} else {
			w.conn.SetWriteDeadline(time.Unix(1, 0))
		}
	})
	close(set)
	defer t.Stop()
	return w.conn.Write(p)
}
