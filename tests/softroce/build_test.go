//go:build linux

package main

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tinyELF returns a 64-bit ELF file of one section, .modinfo, with the content info.
func tinyELF(t *testing.T, info string) []byte {
	t.Helper()
	names := "\x00.modinfo\x00.shstrtab\x00"
	var b bytes.Buffer
	h := elf.Header64{Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1,
		Ehsize: 64, Shentsize: 64, Shnum: 3, Shstrndx: 2, Shoff: uint64(64 + len(info) + len(names))}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	put := func(v any) { require.NoError(t, binary.Write(&b, binary.LittleEndian, v)) }
	put(h)
	b.WriteString(info + names)
	put(elf.Section64{})
	put(elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: 64, Size: uint64(len(info))})
	put(elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: uint64(64 + len(info)), Size: uint64(len(names))})
	return b.Bytes()
}

// bzImage wraps a payload like the kernel's build.
func bzImage(payload []byte) []byte {
	img := make([]byte, 3*512)
	img[hdrSetupSects] = 2
	copy(img[hdrMagic:], "HdrS")
	binary.LittleEndian.PutUint16(img[hdrVersion:], 0x20f)
	const off = 100 // into the protected-mode part
	binary.LittleEndian.PutUint32(img[hdrPayloadOffset:], off)
	binary.LittleEndian.PutUint32(img[hdrPayloadLength:], uint32(len(payload)))
	img = append(img, bytes.Repeat([]byte{0x90}, off)...)
	img = append(img, payload...)
	return append(img, "trailing setup data"...)
}

func TestExtractVmlinux(t *testing.T) {
	t.Parallel()
	kernel := tinyELF(t, strings.Repeat("kernel=yes\x00", 500))
	filter := func(name string, args ...string) []byte {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s here", name)
		}
		out, err := pipe(t.Context(), kernel, name, args...)
		require.NoError(t, err)
		return binary.LittleEndian.AppendUint32(out, uint32(len(kernel))) // the kernel's build appends the size
	}
	for name, pack := range map[string]func() []byte{
		"xz":   func() []byte { return filter("xz", "-c", "--check=crc32") },
		"zstd": func() []byte { return filter("zstd", "-c", "-q") },
		"gzip": func() []byte {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			w.Write(kernel)
			w.Close()
			return b.Bytes()
		},
		"none": func() []byte { return kernel },
	} {
		t.Run(name, func(t *testing.T) {
			got, err := extractVmlinux(t.Context(), bzImage(pack()))
			require.NoError(t, err)
			require.Equal(t, kernel, got)
		})
	}
}

func TestExtractVmlinuxRefuses(t *testing.T) {
	t.Parallel()
	kernel := tinyELF(t, "x=y\x00")
	good := bzImage(kernel)
	for n := range good[:len(good)-len("trailing setup data")] {
		_, err := extractVmlinux(t.Context(), good[:n])
		require.Error(t, err, "a prefix of %d bytes", n)
	}
	_, err := extractVmlinux(t.Context(), bzImage(kernel[:len(kernel)-1]))
	require.ErrorContains(t, err, "truncated")
	_, err = extractVmlinux(t.Context(), bzImage([]byte("something else entirely")))
	require.ErrorContains(t, err, "not known")
	_, err = extractVmlinux(t.Context(), bzImage(append([]byte("\xfd7zXZ\x00"), "not xz at all"...)))
	require.Error(t, err)
	huge := bzImage(kernel)
	binary.LittleEndian.PutUint32(huge[hdrPayloadOffset:], 0xffffffff)
	_, err = extractVmlinux(t.Context(), huge)
	require.ErrorContains(t, err, "outside")
}

// readCpio is an independent parser of the format, after its documentation.
func readCpio(t *testing.T, b []byte) (names []string, files map[string]string) {
	t.Helper()
	files = map[string]string{}
	field := func(off, i int) int {
		var v int
		_, err := fmt.Sscanf(string(b[off+6+8*i:off+14+8*i]), "%x", &v)
		require.NoError(t, err)
		return v
	}
	for off := 0; ; {
		require.Equal(t, "070701", string(b[off:off+6]))
		size, nlen := field(off, 6), field(off, 11)
		require.Zero(t, b[off+110+nlen-1], "name ends with NUL")
		name := string(b[off+110 : off+110+nlen-1])
		data := (off + 110 + nlen + 3) &^ 3
		if name == "TRAILER!!!" {
			require.Len(t, b, data)
			return names, files
		}
		names = append(names, fmt.Sprintf("%s %o", name, field(off, 1)))
		files[name] = string(b[data : data+size])
		off = (data + size + 3) &^ 3
	}
}

func TestCpio(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	c := newCpio(&b)
	c.Dir("mod")
	for n := range 9 { // every alignment of name and data
		c.File("mod/"+strings.Repeat("n", n+1), 0o644, []byte(strings.Repeat("d", n)))
	}
	c.File("init", 0o755, []byte("#!"))
	require.NoError(t, c.Close())
	names, files := readCpio(t, b.Bytes())
	require.Len(t, names, 11)
	require.Equal(t, "mod 40755", names[0])
	require.Equal(t, "init 100755", names[10])
	require.Equal(t, "dddddd", files["mod/nnnnnnn"])
	require.Equal(t, "#!", files["init"])
	if cpio, err := exec.LookPath("cpio"); err == nil {
		out, err := pipe(t.Context(), b.Bytes(), cpio, "-t", "--quiet")
		require.NoError(t, err)
		require.Equal(t, 11, strings.Count(string(out), "\n"))
	}
}

type brokenWriter struct{ left int }

func (w *brokenWriter) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, errors.New("disk full")
	}
	return len(b), nil
}

func TestCpioKeepsTheFirstError(t *testing.T) {
	t.Parallel()
	c := newCpio(&brokenWriter{left: 150})
	c.File("a", 0o644, make([]byte, 100))
	c.File("b", 0o644, nil)
	require.ErrorContains(t, c.Close(), "disk full")
}

func moduleDir(t *testing.T, depends map[string]string, builtin ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, deps := range depends {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), tinyELF(t, "license=GPL\x00depends="+deps+"\x00"), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "modules.builtin"), []byte(strings.Join(builtin, "\n")), 0o644))
	return dir
}

func loadOrder(t *testing.T, dir string, want ...string) ([]string, error) {
	t.Helper()
	tree, err := openModules(dir, os.ReadFile)
	require.NoError(t, err)
	mods, err := tree.resolve(want)
	var names []string
	for _, m := range mods {
		names = append(names, m.name)
	}
	return names, err
}

func TestModulesLoadAfterWhatTheyNeed(t *testing.T) {
	t.Parallel()
	dir := moduleDir(t, map[string]string{
		"rdma_rxe.ko": "ib-core,udp_tunnel", "ib-core.ko": "", "udp_tunnel.ko": "ip_tunnel", "unused.ko": "",
	}, "kernel/net/ip_tunnel.ko")
	got, err := loadOrder(t, dir, "rdma_rxe", "ib_core")
	require.NoError(t, err)
	require.Equal(t, []string{"ib_core", "udp_tunnel", "rdma_rxe"}, got)

	_, err = loadOrder(t, dir, "nosuch")
	require.ErrorContains(t, err, "no nosuch")
	_, err = loadOrder(t, moduleDir(t, map[string]string{"a.ko": "b", "b.ko": "a"}), "a")
	require.ErrorContains(t, err, "each other")
}

func TestPackageQueries(t *testing.T) {
	t.Parallel()
	v, ok := parseDepends("linux-image-amd64\n  Depends: linux-base\n  Depends: linux-image-6.1.0-9-amd64\n", "linux-image-")
	require.True(t, ok)
	require.Equal(t, "6.1.0-9-amd64", v)
	_, ok = parseDepends("linux-image-generic\n  Depends: linux-image-unsigned\n", "linux-image-")
	require.False(t, ok)

	const policy = "a1:\n  Installed: 3\n  Candidate: 3\n  Version table:\n     3 500\na:\n  Installed: (none)\n  Candidate: 1.2-3\n"
	v, ok = parsePolicy(policy, "a")
	require.True(t, ok)
	require.Equal(t, "1.2-3", v)
	_, ok = parsePolicy(policy, "a.") // apt would take it for a pattern
	require.False(t, ok)
	_, ok = parsePolicy("a:\n  Candidate: (none)\n", "a")
	require.False(t, ok)
}

func TestUMLPatchAndConfig(t *testing.T) {
	t.Parallel()
	p := textPatch{"f", "old", "new"}
	got, err := p.apply("an old line")
	require.NoError(t, err)
	require.Equal(t, "an new line", got)
	for _, text := range []string{"", "old old"} {
		_, err = p.apply(text)
		require.Error(t, err)
	}
	require.Equal(t, []string{"CONFIG_B=y"}, missingOptions("# c\nCONFIG_A=y\nCONFIG_B=y\n", "CONFIG_A=y\n# CONFIG_B is not set\n"))
	require.Empty(t, missingOptions(umlConfig, umlConfig))
	require.Contains(t, umlConfig, "CONFIG_RDMA_RXE=y\n")
}
