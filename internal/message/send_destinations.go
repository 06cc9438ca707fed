package message

import "github.com/seed33544411/rma/rdv"

// destinations are the receives that the peer has advertised, and what is needed to
// know which messages take them. See doc.go and docs/wire.md for the rules.
type destinations struct {
	open []destination // in the order of their receives
	free [64]uint64    // number of the last message that takes none, by hash of its tag
	any  uint64        // of all tags
	late uint32        // how many were advertised too late
}

type destination struct {
	id  rdv.ID
	tag uint32
	len uint32
	any bool
}

// last is the number of the last message that a receive of that tag, or of any,
// may take and for which none was advertised.
func (d *destinations) last(anyTag bool, tag uint32) uint64 {
	if anyTag {
		return d.any
	}
	return d.free[spread(tag)%uint32(len(d.free))]
}

// takes reports whether the receive behind x takes a message of tag.
func (x *destination) takes(tag uint32) bool {
	if x.any {
		return tag < LibraryTags
	}
	return x.tag == tag
}

// pass notes that message seq takes no advertised receive.
func (d *destinations) pass(tag uint32, seq uint64) {
	d.free[spread(tag)%uint32(len(d.free))] = seq
	if tag < LibraryTags {
		d.any = seq
	}
}
