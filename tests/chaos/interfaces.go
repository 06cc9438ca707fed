//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// upToUse has a second more than lossToUse: the kernel handles changes of carriers, and says so, once a second.
var upToUse = figure{"rail lost, its interface up, to back in use", 2 * time.Second, endLimit}

// interfaces takes network interfaces of rails down and up again and again, on either host, beside the
// same operations. At least one network is always up. Nothing fails, is lost or doubled, and all
// rails come back into use.
func interfaces(ctx context.Context, r *round) {
	wires := pick(r, 2, 2, 3)
	n, err := newNet(r.no, wires)
	if err != nil {
		r.leaveOut(err)
		return
	}
	defer n.close()
	s := jobSpec{Ranks: 2, Fabric: "tcp", Root: "unix", Wrap: func(rank int, argv []string) []string {
		var list []string
		for w := 1; w < wires; w++ {
			list = append(list, hostAddr(rank, w))
		}
		return n.on(rank, append([]string{"env", "RMA_RAILS=" + strings.Join(list, ",")}, argv...))
	}}
	j := beginRails(r, s)
	if j == nil {
		return
	}
	defer j.kill()
	times := 20
	if r.quick {
		times = 4
	}
	for range times {
		host, w := r.IntN(2), r.IntN(wires)
		for _, state := range []string{"down", "up"} {
			if r.failed(n.set(host, w, state)) {
				return
			}
			for _, p := range j.procs {
				_, _ = fmt.Fprintf(p.in, "interface %d %s\n", w, state)
			}
			if !wait(ctx, r.about(150*time.Millisecond)) {
				return
			}
		}
	}
	railsKept(r, j, upToUse)
}
