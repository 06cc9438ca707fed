package logp

import "errors"

// Sentinels for errors.Is.
var (
	ErrCurve      = errors.New("logp: invalid curve")
	ErrParams     = errors.New("logp: invalid parameters")
	ErrBatch      = errors.New("logp: invalid batch")
	ErrInfeasible = errors.New("logp: infeasible")
)

// Why a mode cannot carry a message; all wrap ErrInfeasible. Preallocated,
// because planning asks often.
var (
	ErrEagerBlock   error = &infeasible{"message larger than an eager message may be"}
	ErrGatherRing   error = &infeasible{"message and header larger than a gather may be"}
	ErrScatterOff   error = &infeasible{"link takes no scatter descriptors"}
	ErrUnregistered error = &infeasible{"memory not registered, and the cost of registering unknown"}
	ErrNoMode       error = &infeasible{"no mode can carry the message"}
)

type infeasible struct{ why string }

func (e *infeasible) Error() string { return "logp: infeasible: " + e.why }
func (e *infeasible) Unwrap() error { return ErrInfeasible }
