package rdv

// announcements bounds the transfers that a source has announced. Both sides agree on a
// maximum. A source starts with as many as keep a link busy, and announces more on request.
type announcements struct {
	least, now, most int // bounds of transfers: at first, now, agreed
	transfers        int // outstanding
	messages         int // messages of the outstanding transfers
	full             int // largest number of messages of a descriptor
	mostMessages     int // agreed
}

// mostMessages returns how many messages the transfers of one direction may have together:
// sixteen full descriptors, or one per transfer.
func mostMessages(transfers, messages int) int { return max(transfers, 16*messages) }

func newAnnouncements(least, transfers, messages int) announcements {
	least = min(least, transfers)
	return announcements{least: least, now: least, most: transfers, full: messages, mostMessages: mostMessages(transfers, messages)}
}

// Full reports that as many transfers or messages are outstanding as may be. Send is
// refused until one has ended, or Widen was called.
//
// Hot path.
func (w *announcements) Full() bool {
	return w.transfers >= w.now || w.messages+w.full > w.mostMessages
}

// Left returns how many more messages may be announced, one by one, if Widen is called as
// often as necessary.
func (w *announcements) Left() int { return min(w.most-w.transfers, w.mostMessages-w.messages) }

// Widen doubles the number of transfers that may be outstanding, up to the agreed bound,
// until fewer than Options.Window are. It reports whether there is room now.
func (w *announcements) Widen() bool {
	w.now = min(2*w.now, w.most)
	return !w.Full()
}

func (w *announcements) begin(messages int) {
	w.transfers++
	w.messages += messages
}

func (w *announcements) end(messages int) {
	w.messages -= messages
	if w.transfers--; w.transfers < w.least {
		w.now = w.least
	}
}
