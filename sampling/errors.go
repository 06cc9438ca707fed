package sampling

import "errors"

// Sentinels for errors.Is. Failures of the link keep the link's own
// (fabric.ErrPeerGone and so on).
var (
	// ErrOptions is an Options value that makes no sense.
	ErrOptions = errors.New("invalid sampling options")

	// ErrSetup is a set-up blob that is malformed or asks for what we refuse.
	ErrSetup = errors.New("bad sampling set-up")

	// ErrProtocol is something that an honest peer does not send.
	ErrProtocol = errors.New("sampling peer breaks the protocol")

	// ErrTimeout is a step that did not end in time: the peer hangs, or died
	// without the link noticing.
	ErrTimeout = errors.New("sampling step timed out")

	// ErrPeerFailed is wrapped by what the peer reported as its own failure.
	ErrPeerFailed = errors.New("sampling failed at the peer")

	// ErrState is a call out of order: Run before Connect, Connect twice.
	ErrState = errors.New("sampling session is not in that state")

	// ErrUnsure is why a measurement was not saved that came to nothing within its
	// budget: the processors were busy with other things.
	ErrUnsure = errors.New("too little was measured to be kept")

	// ErrNoProfile is a profile that does not exist.
	ErrNoProfile = errors.New("no saved profile")

	// ErrStale is a profile that does not fit any more: age, version, link.
	ErrStale = errors.New("saved profile is stale")

	// ErrProfile is a profile whose content makes no sense.
	ErrProfile = errors.New("saved profile is corrupt")
)
