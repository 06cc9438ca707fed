//go:build linux

package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

//go:embed uml.config
var umlConfig string

// umlRecipe is part of the cache key: increment it when the build commands change.
const umlRecipe = "1"

const umlSource = "linux-source-6.12"

// buildUML returns the path of the User-Mode Linux binary, and builds it first if the cache
// has none: five minutes on two CPUs, once.
func buildUML(ctx context.Context, c *cache) (string, error) {
	version, tarball, err := umlSourceHere(ctx)
	if err != nil {
		return "", err
	}
	name := key("uml", version, umlRecipe, umlConfig, fmt.Sprint(umlPatches))
	if !isDir(filepath.Join(c.dir, name)) {
		if err := requirePackages("uml"); err != nil {
			return "", err
		}
	}
	dir, err := c.get(name, func(dir string) error { return compileUML(ctx, dir, version, tarball) })
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "linux"), nil
}

// umlSourceHere finds the source: the installed package's tarball, or the
// version apt would download ("" as the tarball).
func umlSourceHere(ctx context.Context) (version, tarball string, err error) {
	p := "/usr/src/" + umlSource + ".tar.xz"
	if _, err := os.Stat(p); err == nil {
		out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Version}", umlSource).Output()
		if err == nil && len(out) > 0 {
			return string(out), p, nil
		}
	}
	pkg, err := lookupPackage(ctx, umlSource)
	if err != nil {
		return "", "", fmt.Errorf("%w; run apt-get update (as root), or install it: %s", err, aptLine([]string{umlSource}))
	}
	return pkg.version, "", nil
}

func compileUML(ctx context.Context, dir, version, tarball string) error {
	start := time.Now()
	work, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if tarball == "" {
		say("downloading %s (about 150 MB, never installed)", umlSource)
		debs, err := downloadDebs(ctx, work, []aptPackage{{umlSource, version}})
		if err != nil {
			return err
		}
		root := filepath.Join(work, "root")
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", debs[0], root).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w: %s", umlSource, err, lastLines(string(out), 3))
		}
		tarball = filepath.Join(root, "usr/src", umlSource+".tar.xz")
	}
	say("building a User-Mode Linux kernel from %s %s: about five minutes on two CPUs, once", umlSource, version)
	say("unpacking the source")
	// The omitted parts are big and not used by this configuration.
	tar := exec.CommandContext(ctx, "tar", "-xf", tarball, "-C", work,
		"--exclude=*/drivers/gpu/drm/amd/include", "--exclude=*/tools/testing", "--exclude=*/sound/soc/*/*.c")
	if out, err := tar.CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w: %s", tarball, err, lastLines(string(out), 3))
	}
	src := filepath.Join(work, umlSource)
	if err := patchUML(src); err != nil {
		return err
	}
	obj := filepath.Join(work, "obj")
	if err := os.Mkdir(obj, 0o755); err != nil {
		return err
	}
	conf := filepath.Join(work, "uml.config")
	if err := os.WriteFile(conf, []byte(umlConfig), 0o644); err != nil {
		return err
	}
	say("configuring")
	base := []string{"-C", src, "ARCH=um", "O=" + obj}
	if err := runMake(ctx, append(base, "KCONFIG_ALLCONFIG="+conf, "allnoconfig"), nil); err != nil {
		return err
	}
	if err := checkConfig(filepath.Join(obj, ".config")); err != nil {
		return err
	}
	say("compiling with %d jobs", runtime.NumCPU())
	n, last := 0, time.Now()
	count := func(line string) {
		n++
		if time.Since(last) > 20*time.Second {
			last = time.Now()
			say("  %4d steps, %3.0f s: %s", n, time.Since(start).Seconds(), strings.TrimSpace(line))
		}
	}
	if err := runMake(ctx, append(base, "-j"+strconv.Itoa(runtime.NumCPU()), "linux"), count); err != nil {
		return err
	}
	// make links linux to vmlinux; the copy in the cache is a separate file
	bin, err := os.ReadFile(filepath.Join(obj, "linux"))
	if err != nil {
		return err
	}
	say("kernel built in %.0f s", time.Since(start).Seconds())
	return os.WriteFile(filepath.Join(dir, "linux"), bin, 0o755)
}

// checkConfig detects options that the kernel's own rules dropped.
func checkConfig(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if miss := missingOptions(umlConfig, string(b)); len(miss) > 0 {
		return fmt.Errorf("kernel configuration rejected %s: uml.config does not fit this source", strings.Join(miss, " "))
	}
	return nil
}

// missingOptions lists the CONFIG lines of want that are missing in got.
func missingOptions(want, got string) []string {
	have := map[string]bool{}
	for _, l := range strings.Split(got, "\n") {
		have[strings.TrimSpace(l)] = true
	}
	var miss []string
	for _, l := range strings.Split(want, "\n") {
		if l = strings.TrimSpace(l); strings.HasPrefix(l, "CONFIG_") && !have[l] {
			miss = append(miss, l)
		}
	}
	return miss
}

// runMake runs make and passes each line to progress; on failure the error contains the end
// of the output.
func runMake(ctx context.Context, args []string, progress func(string)) error {
	cmd := exec.CommandContext(ctx, "make", args...)
	ownGroup(cmd)
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	var tail []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := bufio.NewScanner(r); s.Scan(); {
			if tail = append(tail, s.Text()); len(tail) > 20 {
				tail = tail[1:]
			}
			if progress != nil {
				progress(s.Text())
			}
		}
		io.Copy(io.Discard, r)
	}()
	err := cmd.Run()
	w.Close()
	<-done
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("make %s: %w\n%s", args[len(args)-1], err, strings.Join(tail, "\n"))
	}
	return nil
}
