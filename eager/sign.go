package eager

// Sign makes the last request of the next flush signalled: Done(pos) will tell soon
// when the link is through with all that was handed over so far. signed is false
// where nothing is staged; Done(pos) waits for more traffic then, if it is not true
// already. Short path.
func (c *Channel) Sign() (pos uint64, signed bool) {
	signed = c.first != c.staged
	c.borrowed = c.borrowed || signed
	return c.tx.Head(), signed
}
