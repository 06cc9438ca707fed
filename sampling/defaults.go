package sampling

import "github.com/seed33544411/rma/logp"

// Defaults are the parameters of a link that nobody measured: round figures of
// the kind of link, for mode off. Their confidence is 0. Equal on every host, so
// that peers decide alike.
func Defaults(link string) logp.Params {
	var d struct{ g, ls, lh, post, perByte, copyByte float64 }
	switch link {
	case "shm":
		d.g, d.ls, d.lh, d.post, d.perByte, d.copyByte = 20, 150, 50, 60, 0.1, 0.1
	case "ibv":
		// A 100 Gbit/s adapter: 0.2 µs between operations (on every card that
		// the source measured), 1 µs one way.
		d.g, d.ls, d.lh, d.post, d.perByte, d.copyByte = 150, 900, 900, 50, 0.1, 0.1
	default: // sockets
		d.g, d.ls, d.lh, d.post, d.perByte, d.copyByte = 500, 12000, 12000, 2000, 0.4, 0.1
	}
	line := func(fixed, slope float64) logp.Curve {
		const far = 1 << 20
		c, err := logp.NewCurve([]logp.Point{{Size: 0, NS: fixed}, {Size: far, NS: fixed + slope*far}})
		if err != nil {
			panic(err) // constants of this file
		}
		return c
	}
	return logp.Params{
		Os: line(0, d.perByte), Or: line(50, 0), C: line(5, d.copyByte), R: line(20_000, 0.05),
		G: d.g, Ls: d.ls, Lh: d.lh, CPU: logp.Posting{A: d.post, B: 20},
	}
}
