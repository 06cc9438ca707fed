package rmanet

import (
	"net"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
)

// A Conn meets the contract of net.Conn over every link and in every mode, also between a
// rank and itself.
func TestConn(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		for name, mode := range map[string]string{"auto": "auto", "all announced": "scatter", "all gathered": "gather"} {
			for what, to := range map[string]int{"another rank": 1, "itself": 0} {
				if mode != "auto" && (to == 0 || fabric != "shm") {
					continue
				}
				t.Run(name+"/"+what, func(t *testing.T) {
					t.Parallel()
					es := job(t, 2, fabric, func(c *rma.Config) { c.Mode = rma.Mode(mode) })
					nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
						l, err := Of(es[to]).Listen("test")
						if err != nil {
							return nil, nil, nil, err
						}
						defer l.Close()
						c1, err = Of(es[0]).Dial(testutil.Context(t, 30*time.Second), l.Addr().String())
						if err == nil {
							c2, err = l.Accept()
						}
						return c1, c2, func() {
							c1.Close()
							c2.Close()
						}, err
					})
				})
			}
		}
	})
}
