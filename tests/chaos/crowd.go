//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// Turns of a round of crowd, and the duration of each situation in a turn.
const (
	crowdTurns = 4
	crowdTime  = 200 * time.Millisecond
)

// situation is a condition under which latency is measured.
type situation string

const (
	quiet     situation = "nobody connects"
	elsewhere situation = "strangers connect to somebody else"
	crowded   situation = "strangers connect to the job"
)

// p99 returns the figure of a situation.
func (s situation) p99(rate int) figure {
	return figure{fmt.Sprintf("p99 at %d/s: %s", rate, s), 0, time.Hour}
}

// crowd measures, in turns, the latency of an honest pair without strangers, with strangers
// that connect to all its ports, and with strangers that connect to another process on this
// host, which takes processor time as well but causes no work in the job.
func crowd(ctx context.Context, r *round) {
	s := jobSpec{Ranks: 2, Fabric: "tcp", Root: "tcp", Work: work{Ops: []string{"probe"}, Seed: r.Uint64(), Max: 4096}}
	rate := pick(r, floodRates...)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if r.failed(err) {
		return
	}
	defer other.Close()
	go func() {
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	j := begin(r, s)
	if j == nil {
		return
	}
	defer j.kill()
	ports := []string{strings.TrimPrefix(j.addr, "tcp:")}
	for _, p := range j.procs {
		ports = append(ports, listening(p.cmd.Process.Pid)...)
	}
	turns := crowdTurns
	if r.quick {
		turns = 1
	}
	for range turns {
		for _, now := range some(r, 3, []situation{quiet, elsewhere, crowded}) {
			f := &flood{seed: r.Uint64(), kind: "mixed", rate: rate}
			switch now {
			case elsewhere:
				f.add(other.Addr().String())
			case crowded:
				for _, a := range ports {
					f.add(a)
				}
			}
			fctx, stop := context.WithTimeout(ctx, crowdTime)
			var tasks sync.WaitGroup
			if now != quiet {
				tasks.Go(func() { f.run(fctx) })
			}
			_, _ = fmt.Fprintln(j.procs[0].in, "phase", now)
			<-fctx.Done()
			_, _ = fmt.Fprintln(j.procs[0].in, "phase ")
			stop()
			tasks.Wait()
			if now == crowded {
				r.count(fmt.Sprintf("connections made at %d/s", rate), int(f.made.Load()))
				r.count(fmt.Sprintf("milliseconds at %d/s", rate), int(crowdTime/time.Millisecond))
			}
		}
	}
	p := j.procs[0]
	if r.failed(p.await(startLimit, 3*turns, "latencies are measured", is("p99"))) {
		return
	}
	for _, e := range p.find(is("p99")) {
		r.measure(situation(e.Op).p99(rate), e.At)
	}
	noneFailed(r, j, fmt.Sprintf("in a crowd of %d/s", rate))
	j.finish(r)
}

// crowds compares the medians of each rate.
func crowds(w io.Writer, rounds []*round) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	for i, rate := range floodRates {
		median := map[situation]time.Duration{}
		made, ms := 0, 0
		for _, s := range []situation{quiet, elsewhere, crowded} {
			var all []time.Duration
			for _, r := range rounds {
				all = append(all, r.took[s.p99(rate)]...)
			}
			if len(all) > 0 {
				slices.Sort(all)
				median[s] = at(all, 0.5)
			}
		}
		for _, r := range rounds {
			made += r.counts[fmt.Sprintf("connections made at %d/s", rate)]
			ms += r.counts[fmt.Sprintf("milliseconds at %d/s", rate)]
		}
		if median[quiet] == 0 {
			continue
		}
		if i == 0 {
			fmt.Fprintf(t, "\nconnections/s\tmade\tp99 with none\telsewhere\tto the job\ttimes (aim: 2)\ttimes elsewhere's\n")
		}
		fmt.Fprintf(t, "%d\t%d\t%v\t%v\t%v\t%.2f\t%.2f\n", rate, made*1000/max(1, ms), median[quiet], median[elsewhere], median[crowded],
			float64(median[crowded])/float64(median[quiet]), float64(median[crowded])/float64(max(1, median[elsewhere])))
	}
}
