//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// buildLibrary builds a libibverbs.so.1.14.0 whose functions have the versions that change
// returns.
func buildLibrary(t *testing.T, change func(symbol, version string) string) string {
	t.Helper()
	skipInGuest(t)
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler to build a library with (gcc, libc6-dev)")
	}
	header, err := os.ReadFile("abi_linux.h")
	require.NoError(t, err)
	functions := regexp.MustCompile(`(?m)^\tX\(([\d.]+), .+?, (\w+), `).FindAllStringSubmatch(string(header), -1)
	require.Greater(t, len(functions), 30)
	symbols := map[string][]string{}
	var src, script strings.Builder
	for _, f := range functions {
		if v := change(f[2], "IBVERBS_"+f[1]); v != "" {
			fmt.Fprintf(&src, "void %s(void) {}\n", f[2])
			symbols[v] = append(symbols[v], f[2])
		}
	}
	for v, s := range symbols {
		fmt.Fprintf(&script, "%s { global: %s; };\n", v, strings.Join(s, "; "))
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/lib.c", []byte(src.String()), 0o600))
	require.NoError(t, os.WriteFile(dir+"/lib.map", []byte(script.String()), 0o600))
	out, err := exec.Command("cc", "-shared", "-fPIC", "-o", dir+"/libibverbs.so.1.14.0", "-Wl,--version-script="+dir+"/lib.map", dir+"/lib.c").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Symlink("libibverbs.so.1.14.0", dir+"/libibverbs.so.1"))
	return dir
}

// A library that lacks a function, or has another version of it, is refused with a typed
// error that names function, version and release.
func TestSymbolVersionsAreChecked(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(symbol, version string) string
		want   SymbolError
	}{
		{"function missing", func(symbol, version string) string {
			if symbol == "ibv_create_ah" {
				return ""
			}
			return version
		}, SymbolError{Symbol: "ibv_create_ah", Version: "IBVERBS_1.1"}},
		{"another version of it", func(symbol, version string) string {
			if symbol == "ibv_reg_mr" {
				return "IBVERBS_1.0"
			}
			return version
		}, SymbolError{Symbol: "ibv_reg_mr", Version: "IBVERBS_1.1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := buildLibrary(t, c.change)
			s := loadLibrary(dir + "/libibverbs.so.1")
			require.Equal(t, BadLibrary, s.Availability, s)
			c.want.Library = dir + "/libibverbs.so.1.14.0"
			require.Equal(t, &c.want, s.Missing)
			require.ErrorIs(t, s.Missing, ErrNotSupported)
			require.Contains(t, s.String(), "libibverbs.so.1.14.0 has no "+c.want.Symbol+" of version IBVERBS_1.1")
			require.NotEmpty(t, s.Fix)
			err := s.unusable("open RDMA device")
			require.ErrorIs(t, err, ErrNotSupported)
			var missing *SymbolError
			require.ErrorAs(t, err, &missing)
			require.ErrorContains(t, err, s.Fix)
		})
	}
}

// The library of this system, if installed, has all functions.
func TestSystemLibrary(t *testing.T) {
	s := Support()
	if s.Availability == NoLibrary {
		t.Skip(s)
	}
	require.Equal(t, Available, s.Availability, s)
	require.Regexp(t, `/libibverbs\.so\.1\.\d+`, s.Detail)
}

func TestNoLibrary(t *testing.T) {
	s := loadLibrary("libibverbs-that-is-nowhere.so.1")
	require.Equal(t, NoLibrary, s.Availability)
	require.Contains(t, s.Detail, "libibverbs-that-is-nowhere.so.1")
	require.ErrorIs(t, s.unusable("x"), ErrNotSupported)
}
