//go:build darwin || freebsd

package tcp

import "context"

// watchCarrier does nothing: a network that is down is noticed after PeerTimeout.
func watchCarrier(context.Context, *link) {}
