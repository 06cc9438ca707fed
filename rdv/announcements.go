package rdv

// announcements bounds what a source has announced. Both sides agree on the most; of that, so
// many transfers are begun as keep a link busy, and more when somebody asks for them.
type announcements struct {
	least, now, most int // transfers: to begin with, at the moment, agreed
	transfers        int // outstanding
	messages         int // of these
	full             int // messages of one descriptor
	mostMessages     int // agreed
}

// mostMessages is how many messages the transfers of one direction may have together:
// sixteen full descriptors, or one for each transfer.
func mostMessages(transfers, messages int) int { return max(transfers, 16*messages) }

func newAnnouncements(least, transfers, messages int) announcements {
	least = min(least, transfers)
	return announcements{least: least, now: least, most: transfers, full: messages, mostMessages: mostMessages(transfers, messages)}
}

// Full reports that as many transfers, or messages, are outstanding as may be: Send is
// refused until one has ended, or Widen was called.
//
// Hot path.
func (w *announcements) Full() bool {
	return w.transfers >= w.now || w.messages+w.full > w.mostMessages
}

// Left is how many more messages may be announced, one by one, if Widen is called as
// often as it takes.
func (w *announcements) Left() int { return min(w.most-w.transfers, w.mostMessages-w.messages) }

// Widen lets twice as many transfers be outstanding, up to what was agreed, until fewer
// than Options.Window are. It reports whether there is room now.
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
