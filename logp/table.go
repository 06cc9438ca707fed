package logp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed33544411/rma/internal/bytesize"
)

// Tables holds a table of rules for each kind of link, and under "" that for kinds without
// one of their own.
type Tables map[string][]Rule

// For returns the table for a kind of link; empty if there is none.
func (t Tables) For(link string) []Rule {
	if rules, ok := t[link]; ok {
		return rules
	}
	return t[""]
}

// ErrTable means that the text of a table is malformed; it wraps ErrParams.
var ErrTable = fmt.Errorf("%w: mode table", ErrParams)

// TableError is an error in one row of the text of a table. It wraps ErrTable.
type TableError struct {
	Link string // kind of link of the row's section; empty for all
	Row  int    // number in the section, from 1
	Text string
	Why  string // what is wrong, and what would be right
}

// Error names the section, the row and what to change.
func (e *TableError) Error() string {
	where := ""
	if e.Link != "" {
		where = " of " + e.Link
	}
	return fmt.Sprintf("row %d%s, %q: %s", e.Row, where, e.Text, e.Why)
}

// Unwrap returns ErrTable.
func (e *TableError) Unwrap() error { return ErrTable }

// ParseTables reads tables such as
//
//	shm:1x4K=eager,4K=gather,*=scatter;*=eager
//
// Sections are separated by semicolons. A section begins with a kind of link, which must be
// one of links, and a colon; without these it is for all other kinds. Its rows are separated
// by commas, and the first one that matches a message decides:
//
//	[COUNTx]SIZE[@FIRST]=MODE
//
// matches messages of up to SIZE bytes (with K, M or G for powers of 1024; * for any size) in
// batches of up to COUNT messages, if they are among the FIRST messages of the batch, in the
// order of their sequence numbers. The mode is eager, gather or scatter. Rows that no message
// reaches are errors. Errors are a *TableError, or wrap ErrTable. Text of spaces only is no
// table.
func ParseTables(text string, links ...string) (Tables, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	t := Tables{}
	for section := range strings.SplitSeq(text, ";") {
		link, rows, named := strings.Cut(section, ":")
		if !named {
			link, rows = "", section
		}
		link = strings.TrimSpace(link)
		switch _, twice := t[link]; {
		case named && !slices.Contains(links, link):
			return nil, fmt.Errorf("%w: section for %q: want %s", ErrTable, link, strings.Join(links, ", "))
		case twice && link == "":
			return nil, fmt.Errorf("%w: two sections for all links: begin one with a kind of link and a colon (%s)", ErrTable, strings.Join(links, ", "))
		case twice:
			return nil, fmt.Errorf("%w: two sections for %s", ErrTable, link)
		}
		rules, err := parseRows(link, rows)
		if err != nil {
			return nil, err
		}
		t[link] = rules
	}
	return t, nil
}

// parseRows reads the rows of a section.
func parseRows(link, text string) (rules []Rule, err error) {
	for row := range strings.SplitSeq(text, ",") {
		row = strings.TrimSpace(row)
		bad := func(format string, args ...any) ([]Rule, error) {
			return nil, &TableError{Link: link, Row: len(rules) + 1, Text: row, Why: fmt.Sprintf(format, args...)}
		}
		what, mode, ok := strings.Cut(row, "=")
		if !ok {
			return bad("want [COUNTx]SIZE[@FIRST]=MODE, such as 1x4K=eager")
		}
		var r Rule
		if r.Mode, err = ParseMode(strings.TrimSpace(mode)); err != nil {
			return bad("mode %q: want %s", strings.TrimSpace(mode), strings.Join(modeNames[:], ", "))
		}
		size, first, given := strings.Cut(strings.TrimSpace(what), "@")
		if given {
			if r.First, ok = parseNumber(first); !ok {
				return bad("@%s: want a number of messages, 1 to %d", first, MaxMessages)
			}
		}
		if count, rest, given := strings.Cut(size, "x"); given {
			if r.MaxCount, ok = parseNumber(count); !ok {
				return bad("%sx: want a number of messages, 1 to %d", count, MaxMessages)
			}
			size = rest
		}
		if r.MaxSize, ok = parseSize(size); !ok {
			return bad("size %q: want bytes, such as 64 or 4K, or * for any size", size)
		}
		for i := range rules {
			if rules[i].covers(&r) {
				return bad("no message reaches this row, because row %d, %q, matches all of its messages: remove it, or place it before that one", i+1, rules[i].String())
			}
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// parseNumber reads a number of messages, without a sign or leading zeros.
func parseNumber(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 1 && n <= MaxMessages && strconv.Itoa(n) == s
}

// parseSize reads the size of a row; * is 0.
func parseSize(s string) (int64, bool) {
	if s == "*" {
		return 0, true
	}
	n, err := bytesize.Parse(s)
	return n, err == nil && n >= 1 && n <= MaxSize && s[0] != '+' && s[0] != '0'
}

// String returns the row in the form that ParseTables reads.
func (r *Rule) String() string {
	var s strings.Builder
	if r.MaxCount != 0 {
		fmt.Fprintf(&s, "%dx", r.MaxCount)
	}
	if r.MaxSize == 0 {
		s.WriteByte('*')
	} else {
		s.WriteString(bytesize.Format(r.MaxSize))
	}
	if r.First != 0 {
		fmt.Fprintf(&s, "@%d", r.First)
	}
	return s.String() + "=" + r.Mode.String()
}

// Row is the number of messages of a batch that a row of the table decided about.
type Row struct {
	Number   int    `json:"row"` // from 1; 0: no row matches, and the cheapest mode is used
	Rule     string `json:"rule,omitempty"`
	Messages int    `json:"messages"`
	// Refused counts those of Messages that the row's mode cannot carry: they are sent in the
	// cheapest mode.
	Refused int `json:"refused,omitempty"`
}

// String returns the row and its messages in words.
func (r Row) String() string {
	if r.Number == 0 {
		return fmt.Sprintf("no row for %d", r.Messages)
	}
	s := fmt.Sprintf("row %d (%s) for %d", r.Number, r.Rule, r.Messages)
	if r.Refused > 0 {
		s += fmt.Sprintf(", of which it cannot carry %d", r.Refused)
	}
	return s
}

// rows returns which rows of the table decide about b; nil without a table in use.
func (pl *Planner) rows(b *Batch) (out []Row) {
	if pl.policy.Forced || len(pl.policy.Table) == 0 {
		return nil
	}
	count := make([]Row, len(pl.policy.Table)+1) // the last: no row
	for at, x := range b.Messages {
		i := pl.policy.row(x.Size, len(b.Messages), at)
		if i < 0 {
			count[len(count)-1].Messages++
			continue
		}
		c := &count[i]
		r := &pl.policy.Table[i]
		c.Number, c.Rule = i+1, r.String()
		if c.Messages++; pl.p.Feasible(&b.Limits, x, r.Mode) != nil {
			c.Refused++
		}
	}
	for _, c := range count {
		if c.Messages > 0 {
			out = append(out, c)
		}
	}
	return out
}
