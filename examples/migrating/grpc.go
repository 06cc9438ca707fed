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

// question is the tag of requests; answers have those that callers chose.
const question = 1

// serve answers requests of all ranks that need code, on goroutines of its own. A
// request begins with the tag that its caller waits for.
func serve(eng *rma.Engine, answer func(request []byte) []byte) (*rma.Handler, error) {
	return eng.HandleWith(rma.HandlerOptions{Tag: question, Workers: 4}, func(m rma.Envelope, parts [][]byte) {
		request := slices.Concat(parts...)
		if len(request) > 0 {
			eng.Peer(m.From).SendFunc(uint32(request[0]), answer(request[1:]), nil)
		}
	})
}

// call is the other side: the tag joins question and answer, so that several
// calls may be under way.
func call(ctx context.Context, eng *rma.Engine, server int, id byte, request, response []byte) (int, error) {
	answer := eng.Peer(server).RecvTag(uint32(id), response)
	if err := eng.Peer(server).SendTag(question, append([]byte{id}, request...)).Wait(ctx); err != nil {
		return 0, err
	}
	return answer.Wait(ctx)
}
