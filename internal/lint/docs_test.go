package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pages returns the documents for readers: README, CONTRIBUTING and docs, without
// decisions, which are history.
func pages(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	all := map[string]string{}
	for _, f := range append(files, "../../README.md", "../../CONTRIBUTING.md") {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		all[f] = string(b)
	}
	return all
}

// Go code in a page is code that is built and tested: it stands, indentation
// aside, in the source file that a comment before the block names:
//
//	<!-- code: examples/hello/main.go -->
//
// Lines that are left out are written as "…" on a line of their own.
func TestCodeInPagesIsReal(t *testing.T) {
	block := regexp.MustCompile("(?ms)^(?:<!-- code: ([^ ]+) -->\n)?```go\n(.*?)^```")
	files := map[string]string{}
	for page, text := range pages(t) {
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			name, code := m[1], m[2]
			first, _, _ := strings.Cut(code, "\n")
			if name == "" {
				t.Errorf("%s: the block that begins with %q names no source file", page, first)
				continue
			}
			if _, have := files[name]; !have {
				b, err := os.ReadFile(filepath.Join("../..", name))
				if err != nil {
					t.Errorf("%s: %v", page, err)
					continue
				}
				files[name] = plain(string(b))
			}
			rest := files[name]
			for _, part := range strings.Split(plain(code), "\n…\n") {
				at := strings.Index(rest, strings.Trim(part, "\n"))
				if at < 0 {
					t.Errorf("%s: this is not in %s:\n%s", page, name, part)
					break
				}
				rest = rest[at+len(part)-1:]
			}
		}
	}
}

// plain removes indentation and trailing space from every line.
func plain(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}

// make help lists each target that has a description.
func TestMakeHelpListsEveryTarget(t *testing.T) {
	b, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	help := regexp.MustCompile(`awk .* '/(\^.+)/\{printf`).FindSubmatch(b)
	require.NotNil(t, help)
	listed := regexp.MustCompile(string(help[1]))
	for _, target := range regexp.MustCompile(`(?m)^[^\s#=]+:.*## `).FindAllString(string(b), -1) {
		require.Regexp(t, listed, target)
	}
}

// Links between pages lead to existing pages and headings.
func TestLinksInPagesLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code := regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`")
	anchors := map[string]map[string]bool{}
	for page, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link to %s, which does not exist", page, m[1])
				continue
			}
			if anchor == "" {
				continue
			}
			if anchors[target] == nil {
				anchors[target] = headings(t, target)
			}
			if !anchors[target][anchor] {
				t.Errorf("%s: link to %s: no such heading", page, m[1])
			}
		}
	}
}

// headings returns the anchors that a code host derives from a page's headings.
func headings(t *testing.T, page string) map[string]bool {
	b, err := os.ReadFile(page)
	require.NoError(t, err)
	out := map[string]bool{}
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(b), -1) {
		out[strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return out
}
