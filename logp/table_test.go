package logp

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tablesText returns t in the form that ParseTables reads, in the order of the links' names.
func tablesText(t Tables) string {
	var links []string
	for link := range t {
		links = append(links, link)
	}
	slices.Sort(links)
	var s strings.Builder
	for i, link := range links {
		if i > 0 {
			s.WriteByte(';')
		}
		if link != "" {
			s.WriteString(link + ":")
		}
		for k := range t[link] {
			if k > 0 {
				s.WriteByte(',')
			}
			s.WriteString(t[link][k].String())
		}
	}
	return s.String()
}

func TestParseTables(t *testing.T) {
	t.Parallel()
	const text = "shm: 1x4K=eager, 4096@2=eager,1x*=scatter ;64=eager,*=gather"
	ts, err := ParseTables(text, "shm", "tcp")
	require.NoError(t, err)
	require.Equal(t, Tables{
		"shm": {{MaxSize: 4096, MaxCount: 1, Mode: Eager}, {MaxSize: 4096, First: 2, Mode: Eager}, {MaxCount: 1, Mode: Scatter}},
		"":    {{MaxSize: 64, Mode: Eager}, {Mode: Gather}},
	}, ts)
	require.Equal(t, ts["shm"], ts.For("shm"))
	require.Equal(t, ts[""], ts.For("tcp"))
	require.Empty(t, Tables(nil).For("tcp"))
	require.Equal(t, "64=eager,*=gather;shm:1x4K=eager,4K@2=eager,1x*=scatter", tablesText(ts))
	again, err := ParseTables(tablesText(ts), "shm")
	require.NoError(t, err)
	require.Equal(t, ts, again)
	for _, none := range []string{"", " "} {
		ts, err := ParseTables(none)
		require.NoError(t, err)
		require.Nil(t, ts)
	}
}

// What is wrong is said with its row, and with what would be right.
func TestTableErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ib:4K=eager":               `section for "ib": want shm, tcp`,
		":4K=eager":                 `section for "": want shm, tcp`,
		"4K=eager;8K=eager":         "two sections for all links",
		"tcp:4K=eager;tcp:*=gather": "two sections for tcp",
	} {
		_, err := ParseTables(text, "shm", "tcp")
		require.ErrorIs(t, err, ErrTable, text)
		require.ErrorIs(t, err, ErrParams, text)
		require.ErrorContains(t, err, want)
	}
	for text, want := range map[string]TableError{
		"shm:4K":                            {"shm", 1, "4K", "want [COUNTx]SIZE[@FIRST]=MODE"},
		"4K=eager,":                         {"", 2, "", "want [COUNTx]SIZE[@FIRST]=MODE"},
		";":                                 {"", 1, "", "want [COUNTx]SIZE[@FIRST]=MODE"},
		"4K=auto":                           {"", 1, "4K=auto", `mode "auto": want eager, gather, scatter`},
		"4K=eager=gather":                   {"", 1, "4K=eager=gather", `mode "eager=gather"`},
		"4q=eager":                          {"", 1, "4q=eager", `size "4q": want bytes, such as 64 or 4K, or *`},
		"0=eager":                           {"", 1, "0=eager", `size "0"`},
		"=eager":                            {"", 1, "=eager", `size ""`},
		"+4=eager":                          {"", 1, "+4=eager", `size "+4"`},
		"1025G=eager":                       {"", 1, "1025G=eager", `size "1025G"`},
		"9999999999999G=eager":              {"", 1, "9999999999999G=eager", `size "9999999999999G"`},
		"0x4K=eager":                        {"", 1, "0x4K=eager", "0x: want a number of messages, 1 to 4096"},
		"4097x4K=eager":                     {"", 1, "4097x4K=eager", "4097x: want"},
		"4K@=eager":                         {"", 1, "4K@=eager", "@: want a number"},
		"4K@1@2=eager":                      {"", 1, "4K@1@2=eager", "@1@2: want a number"},
		"*=gather,4K=eager":                 {"", 2, "4K=eager", `row 1, "*=gather", matches all of its messages`},
		"8x4K=gather,2K=eager,8x1K@3=eager": {"", 3, "8x1K@3=eager", `row 1, "8x4K=gather"`},
	} {
		_, err := ParseTables(text, "shm", "tcp")
		var e *TableError
		require.True(t, errors.As(err, &e), "%s: %v", text, err)
		require.ErrorIs(t, err, ErrTable, text)
		require.Equal(t, want.Link, e.Link, text)
		require.Equal(t, want.Row, e.Row, text)
		require.Equal(t, want.Text, e.Text, text)
		require.Contains(t, e.Why, want.Why)
	}
}

// A rule by sequence number decides for the first messages of a batch only; the explanation
// says which row has decided about how many, and what a mode cannot carry.
func TestTableRows(t *testing.T) {
	t.Parallel()
	ts, err := ParseTables("3x50=eager,100@2=scatter,2M=gather")
	require.NoError(t, err)
	pl, err := NewPlanner(thesis(t), &PlannerConfig{Policy: Policy{Table: ts.For("")}})
	require.NoError(t, err)
	l := usual()
	b := &Batch{Messages: sizes(100, 50, 60, 1000, 1<<20, 3<<20), Limits: l}
	e, err := pl.Explain(b)
	require.NoError(t, err)
	require.Equal(t, WhyTable, e.Why)
	mode := map[int32]Mode{}
	for _, q := range e.Plan().Parts {
		for _, i := range q.Messages {
			mode[i] = q.Mode
		}
	}
	require.Equal(t, Scatter, mode[0])
	require.Equal(t, Scatter, mode[1])
	require.Equal(t, Gather, mode[2], "the third is none of the first two")
	require.Equal(t, Gather, mode[3])
	require.Equal(t, []Row{
		{Number: 2, Rule: "100@2=scatter", Messages: 2}, {Number: 3, Rule: "2M=gather", Messages: 3, Refused: 1}, {Messages: 1},
	}, e.Rows)
	require.Contains(t, e.Reason, ": row 2 (100@2=scatter) for 2, row 3 (2M=gather) for 3, of which it cannot carry 1, no row for 1")
	out, err := json.Marshal(e)
	require.NoError(t, err)
	require.Contains(t, string(out), `"rows":[{"row":2,"rule":"100@2=scatter","messages":2},{"row":3,"rule":"2M=gather","messages":3,"refused":1},{"row":0,"messages":1}]`)

	e, err = pl.Explain(&Batch{Messages: sizes(50, 40, 30), Limits: l})
	require.NoError(t, err)
	require.Equal(t, []Row{{Number: 1, Rule: "3x50=eager", Messages: 3}}, e.Rows)
	require.NoError(t, pl.SetPolicy(Policy{}))
	e, err = pl.Explain(b)
	require.NoError(t, err)
	require.Empty(t, e.Rows)
	require.NotContains(t, e.Reason, "row")
}

// A text is refused with ErrTable, or means what its own form means.
func FuzzParseTables(f *testing.F) {
	f.Add("shm:1x4K=eager,4K=gather,*=scatter;*=eager")
	f.Add("3x50=eager,100@2=scatter,2M=gather")
	f.Add("4K@1@2=eager;;")
	f.Fuzz(func(t *testing.T, text string) {
		ts, err := ParseTables(text, "shm", "tcp")
		if err != nil {
			require.ErrorIs(t, err, ErrTable)
			require.Nil(t, ts)
			return
		}
		again, err := ParseTables(tablesText(ts), "shm", "tcp")
		require.NoError(t, err)
		require.Equal(t, ts, again)
		for link, rules := range ts {
			require.Contains(t, []string{"", "shm", "tcp"}, link)
			require.NoError(t, (&Policy{Table: rules}).Validate())
			require.NotEmpty(t, rules)
		}
		require.Equal(t, strings.TrimSpace(text) == "", ts == nil)
	})
}
