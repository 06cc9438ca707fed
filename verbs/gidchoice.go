package verbs

import (
	"fmt"
	"slices"
	"strings"
)

// GIDVerdict is one entry of a GID table with its score.
type GIDVerdict struct {
	GIDEntry
	Score  int    // higher is better; below 0: not usable
	Reason string // explanation of the score
}

// GIDChoice is a chosen entry and the reasons.
type GIDChoice struct {
	Chosen   GIDEntry
	Reason   string       // one line
	Verdicts []GIDVerdict // of all entries, in table order
}

// Scores. Each property outweighs all that follow: RoCE v2, which is routable, before
// anything else; IPv4 before IPv6, which interfaces get without configuration; a global
// scope before a local one, which is valid on one segment only.
const (
	scoreRoCEv2   = 100
	scoreIB       = 100
	scoreRoCEv1   = 10
	scoreRoutable = 50
	scoreIPv4     = 5
)

// ChooseGID picks the entry to send from: RoCE v2 before v1, routable addresses before
// link-local ones, IPv4-mapped before IPv6, then the lowest index; on InfiniBand the first
// entry, the port's own. If index is not negative, that entry is chosen whatever its score;
// the call fails only if it is not in the table. The result depends on the arguments only.
func ChooseGID(table []GIDEntry, index int) (GIDChoice, error) {
	c := GIDChoice{Verdicts: make([]GIDVerdict, len(table))}
	best, wanted := -1, -1
	for i, e := range table {
		s, why := judge(e)
		c.Verdicts[i] = GIDVerdict{GIDEntry: e, Score: s, Reason: why}
		if s >= 0 && (best < 0 || s > c.Verdicts[best].Score) {
			best = i
		}
		if e.Index == index {
			wanted = i
		}
	}
	switch {
	case index >= 0 && wanted < 0:
		return c, fmt.Errorf("choose GID: %w: no valid entry at index %d; valid are %s", ErrNoGID, index, indices(table))
	case index >= 0:
		c.Chosen = table[wanted]
		c.Reason = fmt.Sprintf("GID %d as asked for: %s", index, c.Verdicts[wanted].Reason)
		return c, nil
	case best < 0:
		return c, fmt.Errorf("choose GID: %w: %d entries; give the interface an IP address", ErrNoGID, len(table))
	}
	c.Chosen = table[best]
	c.Reason = fmt.Sprintf("GID %d: %s; best of %d", c.Chosen.Index, c.Verdicts[best].Reason, len(table))
	return c, nil
}

// Candidates returns the usable entries, the best first, and of equal ones the one of the
// lower index.
func (c *GIDChoice) Candidates() []GIDEntry {
	vs := slices.DeleteFunc(slices.Clone(c.Verdicts), func(v GIDVerdict) bool { return v.Score < 0 || v.Index > 255 })
	slices.SortStableFunc(vs, func(a, b GIDVerdict) int { return b.Score - a.Score })
	out := make([]GIDEntry, len(vs))
	for i, v := range vs {
		out[i] = v.GIDEntry
	}
	return out
}

func indices(table []GIDEntry) string {
	if len(table) == 0 {
		return "none"
	}
	var s []string
	for _, e := range table {
		s = append(s, fmt.Sprint(e.Index))
	}
	return strings.Join(s, ", ")
}

// judge computes the score of one entry.
func judge(e GIDEntry) (score int, why string) {
	if e.GID.IsZero() {
		return -1, "empty"
	}
	switch e.Type {
	case GIDInfiniBand:
		return scoreIB, "InfiniBand, the subnet routes by LID and GID"
	case GIDRoCEv1:
		score, why = scoreRoCEv1, "RoCE v1 (one Ethernet segment only)"
	case GIDRoCEv2:
		score, why = scoreRoCEv2, "RoCE v2"
	default:
		return -1, fmt.Sprintf("unknown type %d", uint32(e.Type))
	}
	a := e.GID.Addr()
	if a.Is4() {
		score += scoreIPv4
		why += ", IPv4 " + a.String()
	} else {
		why += ", IPv6 " + a.String()
	}
	switch {
	case a.IsUnspecified() || a.IsMulticast():
		return -1, why + ", not an address of a host"
	case a.IsLinkLocalUnicast():
		why += ", link-local"
	case a.IsLoopback():
		why += ", loopback: reaches this host only"
	default:
		score += scoreRoutable
		why += ", routable"
	}
	return score, why
}
