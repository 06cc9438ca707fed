//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// qemuKernel is a cached kernel for the emulated machine.
type qemuKernel struct {
	vmlinux string // ELF, booted by PVH
	modules string // cpio archive of /mod/NN-name.ko
	version string
}

// qemuRecipe is part of the cache key: increment it when the content of an entry changes.
const qemuRecipe = "1"

// aptPackage is one exact package in the host's package lists.
type aptPackage struct{ name, version string }

func (p aptPackage) String() string { return p.name + "=" + p.version }

// buildQemuKernel returns the cached kernel; if there is none, it first downloads and
// unpacks the distribution's. It installs nothing.
func buildQemuKernel(ctx context.Context, c *cache) (*qemuKernel, error) {
	pkgs, err := kernelPackages(ctx)
	if err != nil {
		// without package lists, use an entry built before
		if k := newestQemuKernel(c); k != nil {
			return k, nil
		}
		return nil, err
	}
	name := key("qemu", pkgs[0].version, append([]string{qemuRecipe, fmt.Sprint(pkgs)}, guestModules...)...)
	dir, err := c.get(name, func(dir string) error { return unpackKernel(ctx, dir, pkgs) })
	if err != nil {
		return nil, err
	}
	return loadQemuKernel(dir)
}

func loadQemuKernel(dir string) (*qemuKernel, error) {
	v, err := os.ReadFile(filepath.Join(dir, "version"))
	if err != nil {
		return nil, err
	}
	return &qemuKernel{
		vmlinux: filepath.Join(dir, "vmlinux"),
		modules: filepath.Join(dir, "modules.cpio"),
		version: string(v),
	}, nil
}

func newestQemuKernel(c *cache) *qemuKernel {
	var best string
	var at time.Time
	dirs, _ := filepath.Glob(filepath.Join(c.dir, "qemu-*"))
	for _, d := range dirs {
		if st, err := os.Stat(d); err == nil && st.ModTime().After(at) {
			best, at = d, st.ModTime()
		}
	}
	if best == "" {
		return nil
	}
	k, err := loadQemuKernel(best)
	if err != nil {
		return nil
	}
	return k
}

// kernelPackages names the packages that contain a full kernel: the dependency of Debian's
// linux-image-amd64, or Ubuntu's generic kernel with its extra modules.
func kernelPackages(ctx context.Context) ([]aptPackage, error) {
	const hint = "; run apt-get update (as root) so that apt knows its packages"
	if v, ok := dependsOn(ctx, "linux-image-amd64", "linux-image-"); ok {
		p, err := lookupPackage(ctx, "linux-image-"+v)
		if err != nil {
			return nil, fmt.Errorf("%w%s", err, hint)
		}
		return []aptPackage{p}, nil
	}
	if v, ok := dependsOn(ctx, "linux-image-generic", "linux-image-"); ok {
		var pkgs []aptPackage
		for _, prefix := range []string{"linux-image-", "linux-modules-", "linux-modules-extra-"} {
			p, err := lookupPackage(ctx, prefix+v)
			if err != nil {
				return nil, fmt.Errorf("%w%s", err, hint)
			}
			pkgs = append(pkgs, p)
		}
		return pkgs, nil
	}
	return nil, fmt.Errorf("find a kernel package: neither linux-image-amd64 (Debian) nor linux-image-generic (Ubuntu) is known%s", hint)
}

// dependsOn returns the text after prefix in the first versioned dependency of meta package
// name.
func dependsOn(ctx context.Context, name, prefix string) (string, bool) {
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", name).Output()
	if err != nil {
		return "", false
	}
	return parseDepends(string(out), prefix)
}

func parseDepends(out, prefix string) (string, bool) {
	for _, l := range strings.Split(out, "\n") {
		d, ok := strings.CutPrefix(strings.TrimSpace(l), "Depends: ")
		if !ok {
			continue
		}
		if v, ok := strings.CutPrefix(d, prefix); ok && v != "" && v[0] >= '0' && v[0] <= '9' {
			return v, true
		}
	}
	return "", false
}

// lookupPackage finds the newest version of exactly name. apt treats an unknown name as a
// regular expression and then acts on all matches, so only names found here are passed to
// `apt-get download`.
func lookupPackage(ctx context.Context, name string) (aptPackage, error) {
	out, _ := exec.CommandContext(ctx, "apt-cache", "policy", name).Output()
	v, ok := parsePolicy(string(out), name)
	if !ok {
		return aptPackage{}, fmt.Errorf("package %s is not in apt's lists", name)
	}
	return aptPackage{name, v}, nil
}

// parsePolicy reads the candidate version of exactly name.
func parsePolicy(out, name string) (string, bool) {
	in := false
	for _, l := range strings.Split(out, "\n") {
		if !strings.HasPrefix(l, " ") {
			in = l == name+":"
			continue
		}
		if v, ok := strings.CutPrefix(strings.TrimSpace(l), "Candidate: "); in && ok {
			return v, v != "(none)" && v != ""
		}
	}
	return "", false
}

// downloadDebs fetches packages into dir, for which any user has permission, and returns
// their files.
func downloadDebs(ctx context.Context, dir string, pkgs []aptPackage) ([]string, error) {
	args := []string{"-qq", "-o", "APT::Sandbox::User=", "download"}
	for _, p := range pkgs {
		args = append(args, p.String())
	}
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Dir = dir
	var errb bytes.Buffer
	cmd.Stderr = &errb
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("apt-get download %v: %w: %s", pkgs, err, lastLines(errb.String(), 3))
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err == nil && len(debs) != len(pkgs) {
		err = fmt.Errorf("apt-get download %v brought %d files, want %d", pkgs, len(debs), len(pkgs))
	}
	return debs, err
}

// unpackKernel fills a cache entry: vmlinux, modules.cpio, version.
func unpackKernel(ctx context.Context, dir string, pkgs []aptPackage) error {
	start := time.Now()
	say("downloading %v (about 70 MB, unpacked but never installed)", pkgs)
	work, err := os.MkdirTemp(dir, "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	debs, err := downloadDebs(ctx, work, pkgs)
	if err != nil {
		return err
	}
	root := filepath.Join(work, "root")
	for _, d := range debs {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", d, root).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w: %s", filepath.Base(d), err, lastLines(string(out), 3))
		}
	}
	images, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return fmt.Errorf("unpack %v: %d kernel images, want 1", pkgs, len(images))
	}
	version := strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	say("extracting kernel %s", version)
	img, err := os.ReadFile(images[0])
	if err != nil {
		return err
	}
	elf, err := extractVmlinux(ctx, img)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "vmlinux"), elf, 0o644); err != nil {
		return err
	}
	moddir := ""
	for _, p := range []string{"lib/modules", "usr/lib/modules"} {
		if d := filepath.Join(root, p, version); isDir(d) {
			moddir = d
		}
	}
	if moddir == "" {
		return fmt.Errorf("unpack %v: no modules for %s", pkgs, version)
	}
	tree, err := openModules(moddir, func(p string) ([]byte, error) { return readModule(ctx, p) })
	if err != nil {
		return err
	}
	mods, err := tree.resolve(guestModules)
	if err != nil {
		return err
	}
	var ar bytes.Buffer
	cp := newCpio(&ar)
	cp.Dir("mod")
	for i, m := range mods {
		cp.File(fmt.Sprintf("mod/%02d-%s.ko", i, m.name), 0o644, m.data)
	}
	if err := cp.Close(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "modules.cpio"), ar.Bytes(), 0o644); err != nil {
		return err
	}
	say("kernel %s with %d modules ready in %.1f s", version, len(mods), time.Since(start).Seconds())
	return os.WriteFile(filepath.Join(dir, "version"), []byte(version), 0o644)
}

// readModule reads a module file, compressed or not.
func readModule(ctx context.Context, path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	switch filepath.Ext(path) {
	case ".xz":
		return pipe(ctx, b, "xz", "-dc")
	case ".zst":
		return pipe(ctx, b, "zstd", "-dc")
	}
	return b, nil
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
