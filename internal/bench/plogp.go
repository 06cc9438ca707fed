package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed33544411/rma/sampling"
)

// PlogpRequest is rank 0's request for a sampling.
type PlogpRequest struct {
	Fabric  string        `json:"fabric"`
	Budget  time.Duration `json:"budget"`   // zero means sampling.DefaultBudget
	MaxSize int           `json:"max_size"` // zero means sampling.DefaultMaxSize
	Compare bool          `json:"compare,omitempty"`
	// Calibrate is how long whole batches are played in addition. Zero means not at all.
	Calibrate time.Duration `json:"calibrate,omitempty"`
	// Profiles is the directory of saved profiles, Save stores the result there, Device is
	// the adapter that the profile is for. They are rank 0's: rank 1 neither reads nor
	// writes files for it.
	Profiles string `json:"-"`
	Save     bool   `json:"-"`
	Device   string `json:"-"`
	Pin      bool   `json:"pin,omitempty"`
	Label    string `json:"label,omitempty"`
}

// PlogpResult is the outcome of a sampling.
type PlogpResult struct {
	Fabric  string            `json:"fabric"`
	Label   string            `json:"label,omitempty"`
	Budget  time.Duration     `json:"budget"`
	Made    time.Time         `json:"made"`
	Tables  sampling.Tables   `json:"tables"`
	Halves  [2]*sampling.Half `json:"halves"` // ranks 0 and 1
	Machine Machine           `json:"machine"`

	// With Compare: the changes since Before, which is the time of the saved profile or,
	// if there is none, of a sampling just before.
	Before  time.Time         `json:"before,omitzero"`
	Saved   bool              `json:"saved,omitempty"` // Before is a saved profile's
	Changes []sampling.Change `json:"changes,omitempty"`
	Drift   bool              `json:"drift,omitempty"`
}

// plogpDepth is the queue depth that sampling needs.
const plogpDepth = 64

// Check reports why the request cannot be carried out. Both sides call it.
func (r *PlogpRequest) Check() error {
	if r.Budget == 0 {
		r.Budget = sampling.DefaultBudget
	}
	if r.MaxSize == 0 {
		r.MaxSize = sampling.DefaultMaxSize
	}
	if r.Budget < time.Millisecond || r.Budget > sampling.MaxBudget {
		return fmt.Errorf("%w: budget %v, want 1ms to %v", ErrPlan, r.Budget, sampling.MaxBudget)
	}
	if r.Calibrate < 0 || r.Calibrate > maxCalibrate {
		return fmt.Errorf("%w: calibration of %v, want 0 to %v", ErrPlan, r.Calibrate, maxCalibrate)
	}
	return nil
}

// Plogp samples the link between ranks 0 and 1. Both call it, rank 1 with a zero
// request. Rank 0 gets the result, rank 1 nil.
func Plogp(ctx context.Context, ctl Control, open Opener, req PlogpRequest) (res *PlogpResult, err error) {
	rank := ctl.Rank()
	if err := Share(ctx, ctl, &req, req.Check); err != nil {
		return nil, err
	}
	if req.Pin {
		defer pin(rank)()
	}
	conn, closeConn, err := open(ctx, req.Fabric, plogpDepth)
	if err = agree(ctx, ctl, wrap("open "+req.Fabric, err)); err != nil {
		if closeConn != nil {
			err = errors.Join(err, closeConn())
		}
		return nil, err
	}
	defer func() { err = errors.Join(err, closeConn()) }()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would be counted as time of the link

	store := &sampling.Store{Dir: req.Profiles}
	key := sampling.Key{Link: conn.Link.Name(), Device: req.Device, Class: sampling.ClassOf(conn.EP, true), Version: sampling.Version}
	res = &PlogpResult{Fabric: conn.Fabric, Label: req.Label, Budget: req.Budget, Machine: ThisMachine()}
	var before *sampling.Tables
	if req.Compare {
		if before, err = baseline(ctx, ctl, conn, req, store, key, res); err != nil {
			return nil, err
		}
	}
	r, err := sampleOnce(ctx, ctl, conn, req)
	if err == nil && req.Calibrate > 0 {
		err = fitBatches(ctx, ctl, conn, req, &r)
	}
	if err != nil {
		return nil, err
	}
	res.Made, res.Tables, res.Halves = r.Made, r.Tables, r.Halves
	if before != nil {
		res.Changes = sampling.Compare(before, &res.Tables)
		res.Drift = sampling.Drifted(res.Changes)
	}
	if rank == 0 && req.Save {
		err = store.Save(sampling.NewProfile(key, conn.Link.Caps(), r))
	}
	if err = agree(ctx, ctl, err); err != nil || rank != 0 {
		return nil, err
	}
	return res, nil
}

// baseline returns the tables for --compare: rank 0's saved profile or, if there is
// none, a new sampling by both ranks.
func baseline(ctx context.Context, ctl Control, conn Conn, req PlogpRequest, store *sampling.Store, key sampling.Key, res *PlogpResult) (*sampling.Tables, error) {
	say := []byte("no")
	var p *sampling.Profile
	if ctl.Rank() == 0 {
		var err error
		if p, err = store.Load(key, conn.Link.Caps()); err == nil {
			say = []byte("yes")
		}
	}
	theirs, err := ctl.Exchange(ctx, say)
	if err != nil {
		return nil, err
	}
	if p != nil {
		res.Before, res.Saved = p.Made, true
		return &p.Tables, nil
	}
	if ctl.Rank() == 1 && string(theirs) == "yes" {
		return nil, nil
	}
	r, err := sampleOnce(ctx, ctl, conn, req)
	if err != nil {
		return nil, err
	}
	res.Before = r.Made
	return &r.Tables, nil
}

// sampleOnce runs one sampling session.
func sampleOnce(ctx context.Context, ctl Control, conn Conn, req PlogpRequest) (r sampling.Result, err error) {
	if err = agree(ctx, ctl, wrap("copies", tuneCopies(ctx, ctl, conn))); err != nil {
		return r, err
	}
	s, err := sampling.Open(conn.Link, conn.EP, sampling.Options{
		First: ctl.Rank() == 0, EP: conn.ID, Mode: sampling.Force, Budget: req.Budget, MaxSize: req.MaxSize,
		StepTimeout: DefaultStall, Locked: req.Pin,
	})
	if err = agree(ctx, ctl, err); err != nil {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	mine := s.Setup()
	theirs, err := ctl.Exchange(ctx, mine.Append(nil))
	if err == nil {
		var peer sampling.Setup
		if peer, _, err = sampling.ParseSetup(theirs); err == nil {
			err = s.Connect(peer)
		}
	}
	if err = agree(ctx, ctl, err); err != nil {
		return r, err
	}
	r, err = s.Run(ctx)
	return r, agree(ctx, ctl, err)
}
