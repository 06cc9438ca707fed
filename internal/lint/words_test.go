package lint

import (
	"fmt"
	"go/ast"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The terms of the project are those of the field. docs/glossary.md lists words that are
// not used, with the terms to use instead: they do not occur in comments, identifiers and
// pages. testdata/words.txt holds the number of places where a word remains.
func TestWordsOfTheField(t *testing.T) {
	instead := unusedWords(t)
	counted, places := map[string][]int{}, map[string][]string{}
	seen := func(place, text string) {
		lower := " " + strings.Join(plainWord.FindAllString(strings.ToLower(text), -1), " ") + " "
		for w := range instead {
			if n := strings.Count(lower, " "+w+" "); n > 0 {
				if counted[w] == nil {
					counted[w] = []int{0}
				}
				counted[w][0] += n
				places[w] = append(places[w], place)
			}
		}
	}
	for _, s := range sources(t) {
		for _, g := range s.file.Comments {
			for _, c := range g.List {
				seen(fmt.Sprintf("%s:%d", s.rel, s.line(c.Pos())), c.Text)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				seen(fmt.Sprintf("%s:%d", s.rel, s.line(id.Pos())), wordsOf(id.Name))
			}
			return true
		})
	}
	for page, text := range pages(t) {
		for i, line := range strings.Split(codeInPage.ReplaceAllStringFunc(text, blank), "\n") {
			seen(fmt.Sprintf("%s:%d", strings.TrimPrefix(page, "../../"), i+1), line)
		}
	}
	readLimits(t, "testdata/words.txt").check(t, counted, []int{0}, func(w string) string {
		return fmt.Sprintf("docs/glossary.md: write %s\n\t%s", instead[w], strings.Join(places[w], "\n\t"))
	})
}

var (
	plainWord = regexp.MustCompile(`[a-z]+`)

	// codeInPage is what the author of a page quotes: blocks, and code in a line.
	codeInPage = regexp.MustCompile("(?ms)^```.*?^```|^    [^\n]*|`[^`\n]*`")

	// hump is the start of a word in an identifier.
	hump = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)
)

// wordsOf returns an identifier with its words separated.
func wordsOf(name string) string { return hump.ReplaceAllString(name, "$1$3 $2$4") }

// blank keeps the lines of s, without their text.
func blank(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }

// unusedWords returns the words of the glossary's last table, in lower case, with the terms
// to use instead.
func unusedWords(t *testing.T) map[string]string {
	const page = "../../docs/glossary.md"
	b, err := os.ReadFile(page)
	require.NoError(t, err)
	_, table, found := strings.Cut(string(b), "## Words that are not used\n")
	require.True(t, found, page)
	instead := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\| ([^|]*) \\|$").FindAllStringSubmatch(table, -1) {
		for w := range strings.SplitSeq(m[1], ", ") {
			instead[strings.Trim(w, "`")] = m[2]
		}
	}
	require.Greater(t, len(instead), 9, page)
	return instead
}

// The lint would find each word where it is forbidden, and only there.
func TestWordsOf(t *testing.T) {
	require.Equal(t, "Err Not Talking", wordsOf("ErrNotTalking"))
	require.Equal(t, "parse RTS Frame", wordsOf("parseRTSFrame"))
	require.Equal(t, "a \n\n\nb", codeInPage.ReplaceAllStringFunc("a `talk`\n```\nknock\n```b", blank))
}
