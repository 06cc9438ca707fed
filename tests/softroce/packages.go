//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// need is something a command uses and the package that brings it.
type need struct {
	what string // a program, or a path with glob characters if it holds a slash
	pkg  string
}

// What each way of running uses. Kept here, in one place; docs/softroce.md and
// `make deps` print from it.
var needs = map[string][]need{
	"common": {
		{"tc", "iproute2"},
		{"ibv_devinfo", "ibverbs-utils"},
		{"/usr/lib/*/libibverbs.so.1", "libibverbs1"},
		{"/usr/lib/*/libibverbs/librxe-rdmav*.so", "ibverbs-providers"},
	},
	"qemu": {
		{"qemu-system-x86_64", "qemu-system-x86"},
		{"dpkg-deb", "dpkg"},
		{"apt-get", "apt"},
		{"xz", "xz-utils"},
		{"zstd", "zstd"},
	},
	"uml": {
		{"dpkg-deb", "dpkg"},
		{"make", "make"},
		{"gcc", "gcc"},
		{"flex", "flex"},
		{"bison", "bison"},
		{"bc", "bc"},
		{"xz", "xz-utils"},
		{"tar", "tar"},
		{"/usr/include/libelf.h", "libelf-dev"},
		{"/usr/include/openssl/ssl.h", "libssl-dev"},
	},
	"perf": {
		{"ib_write_lat", "perftest"},
	},
	// what verbs is compiled with, and what its own header is compared with by a test
	"build": {
		{"gcc", "gcc"},
		{"/usr/include/stdio.h", "libc6-dev"},
		{"/usr/include/infiniband/verbs.h", "libibverbs-dev"},
	},
	"native": {
		{"modprobe", "kmod"},
	},
}

// present says whether n is on this host. Programs are looked for in the sbin
// folders as well, which an ordinary user's PATH leaves out.
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

// missing lists the packages that the named sets lack here, each once.
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

// packagesOf lists every package of the named sets, each once.
func packagesOf(sets ...string) []string {
	var pkgs []string
	seen := map[string]bool{}
	for _, s := range sets {
		for _, n := range needs[s] {
			if !seen[n.pkg] {
				seen[n.pkg] = true
				pkgs = append(pkgs, n.pkg)
			}
		}
	}
	return pkgs
}

// aptLine is the one line that installs pkgs.
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
