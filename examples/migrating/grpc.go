package migrating

import (
	"context"
	"slices"

	"github.com/seed33544411/rma"
)

const rowSize = 256 // bytes of a row

// lookup reads a row of a table that another rank keeps. No handler runs there.
func lookup(ctx context.Context, eng *rma.Engine, owner int, table *rma.Key, row int, into []byte) error {
	return eng.Peer(owner).GetBytes(into, table.At(row*rowSize)).Wait(ctx)
}

// The tag of requests, and those of answers: answers, plus the number that the caller chose.
// A rank that serves may call as well, so they must differ.
const (
	question = 1
	answers  = 1 << 8
)

// serve answers requests of all ranks that need code, on goroutines of its own. A
// request begins with its number.
func serve(eng *rma.Engine, answer func(request []byte) []byte) (*rma.Handler, error) {
	return eng.HandleWith(rma.HandlerOptions{Tag: question, Workers: 4}, func(m rma.Envelope, parts [][]byte) {
		request := slices.Concat(parts...)
		if len(request) > 0 {
			eng.Peer(m.From).SendFunc(answers|uint32(request[0]), answer(request[1:]), nil)
		}
	})
}

// call is the other side: the number joins question and answer, so that several
// calls may be under way. After an error the answer may still come: the number
// must not be used again.
func call(ctx context.Context, eng *rma.Engine, server int, id byte, request, response []byte) (n int, err error) {
	answer := eng.Peer(server).RecvTag(answers|uint32(id), response)
	if err = eng.Peer(server).SendTag(question, append([]byte{id}, request...)).Wait(ctx); err == nil {
		n, err = answer.Wait(ctx)
	}
	if err != nil { // response is the caller's again
		answer.Cancel()
		_, _ = answer.Wait(context.WithoutCancel(ctx))
	}
	return n, err
}
