package scatter

import "math"

func checkCounts(messages, regions int, b Bounds) error {
	if messages < 1 || messages > min(b.Messages, MaxCount) {
		return &DescriptorError{"message", messages, ErrCount, uint64(messages), uint64(b.Messages)}
	}
	// A batch of empty messages has no source.
	if regions > min(b.Regions, MaxCount) {
		return &DescriptorError{"region", regions, ErrCount, uint64(regions), uint64(b.Regions)}
	}
	return nil
}

// check says whether d is one that may be on the wire. Sums cannot wrap: at
// most 2^16 terms of 32 bits.
func (d *Descriptor) check(b Bounds) error {
	if d.Form != FormSequence && d.Form != FormOffset {
		return &DescriptorError{"header", 0, ErrForm, uint64(d.Form), uint64(FormOffset)}
	}
	if err := checkCounts(len(d.Messages), len(d.Regions), b); err != nil {
		return err
	}
	total, err := d.checkMessages()
	if err != nil {
		return err
	}
	var source uint64
	for i := range d.Regions {
		r := &d.Regions[i]
		if r.Len == 0 || uint64(r.Len) > math.MaxUint64-r.Addr {
			return &DescriptorError{"region", i, ErrAddress, r.Addr, uint64(r.Len)}
		}
		source += uint64(r.Len)
	}
	if source != total {
		return &DescriptorError{"region", len(d.Regions), ErrSize, source, total}
	}
	return nil
}

// checkMessages checks order and overlap and returns the sum of the sizes.
func (d *Descriptor) checkMessages() (total uint64, err error) {
	var end uint64 // first place that the next message may take
	for i := range d.Messages {
		m := &d.Messages[i]
		total += uint64(m.Size)
		if d.Form == FormSequence {
			first := d.Messages[0].Pos
			switch {
			case i > 0 && m.Pos <= d.Messages[i-1].Pos:
				return 0, &DescriptorError{"message", i, ErrOrder, m.Pos, d.Messages[i-1].Pos}
			case m.Pos-first > math.MaxUint32:
				return 0, &DescriptorError{"message", i, ErrOrder, m.Pos, first + math.MaxUint32}
			}
			continue
		}
		switch {
		case uint64(m.Size) > math.MaxUint64-m.Pos:
			return 0, &DescriptorError{"message", i, ErrAddress, m.Pos, uint64(m.Size)}
		case i > 0 && m.Pos < d.Messages[i-1].Pos:
			return 0, &DescriptorError{"message", i, ErrOrder, m.Pos, d.Messages[i-1].Pos}
		case m.Pos < end:
			return 0, &DescriptorError{"message", i, ErrOverlap, m.Pos, end}
		}
		end = m.Pos + uint64(m.Size)
	}
	return total, nil
}
