//go:build linux

package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// need is a file or program that a command uses, with its package.
type need struct {
	what string // a program, or a path with glob characters if it contains a slash
	pkg  string
}

//go:embed packages.txt
var packagesText string

// needs are the sets of packages.txt.
var needs = parseNeeds(packagesText)

func parseNeeds(text string) map[string][]need {
	sets := map[string][]need{}
	for l := range strings.Lines(text) {
		if f := strings.Fields(l); len(f) == 3 && f[0] != "#" {
			sets[f[0]] = append(sets[f[0]], need{what: f[1], pkg: f[2]})
		}
	}
	return sets
}

// present reports whether n is on this host. Programs are also searched in the sbin
// directories, which an ordinary user's PATH omits.
func (n need) present() bool {
	if strings.Contains(n.what, "/") {
		m, _ := filepath.Glob(n.what)
		return len(m) > 0
	}
	return findProgram(n.what) != ""
}

func findProgram(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	for _, d := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		p := filepath.Join(d, name)
		if st, err := os.Stat(p); err == nil && !st.IsDir() && st.Mode()&0o111 != 0 {
			return p
		}
	}
	return ""
}

// missing lists the packages of the named sets that this host lacks, each once.
func missing(sets ...string) []string {
	var pkgs []string
	seen := map[string]bool{}
	for _, s := range sets {
		for _, n := range needs[s] {
			if !seen[n.pkg] && !n.present() {
				seen[n.pkg] = true
				pkgs = append(pkgs, n.pkg)
			}
		}
	}
	return pkgs
}

// aptLine returns the one line that installs pkgs.
func aptLine(pkgs []string) string {
	line := "apt-get install -y --no-install-recommends " + strings.Join(pkgs, " ")
	if os.Geteuid() != 0 {
		line = "sudo " + line
	}
	return line
}

// requirePackages fails with the apt line if a set is incomplete.
func requirePackages(sets ...string) error {
	if m := missing(sets...); len(m) > 0 {
		return fmt.Errorf("packages are missing; run: %s", aptLine(m))
	}
	return nil
}
