package migrating

import (
	"context"

	"github.com/seed33544411/rma"
)

const rowSize = 256 // bytes of a row

// lookup reads a row of a table that another rank keeps. No handler runs there.
func lookup(ctx context.Context, eng *rma.Engine, owner int, table *rma.Key, row int, into rma.Buffer) error {
	return eng.Peer(owner).Get(into, table.At(uint64(row*rowSize))).Wait(ctx)
}

// serve answers requests of a rank that need code: messages, by a goroutine.
func serve(ctx context.Context, eng *rma.Engine, client int, answer func(request []byte) []byte) error {
	buf := make([]byte, 64<<10)
	for {
		id, n, err := eng.Peer(client).Recv(buf).WaitTag(ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			return nil // the client has hung up
		}
		if err := eng.Peer(client).SendTag(id, answer(buf[:n])).Wait(ctx); err != nil {
			return err
		}
	}
}

// call is the other side: the tag joins question and answer, so that several
// calls may be under way.
func call(ctx context.Context, eng *rma.Engine, server int, id uint32, request, response []byte) (int, error) {
	answer := eng.Peer(server).RecvTag(id, response)
	if err := eng.Peer(server).SendTag(id, request).Wait(ctx); err != nil {
		return 0, err
	}
	return answer.Wait(ctx)
}
