//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// textPatch replaces a text that occurs exactly once in a source file.
type textPatch struct{ file, old, new string }

// umlPatches are the changes to the kernel's source.
//
// User-Mode Linux 6.12 keeps its programs' FPU state in 2696 bytes, enough for AVX-512. A
// host whose processor has AMX requires all 11008 bytes when the state is set, used or not,
// and returns EFAULT: no program starts. A larger buffer does no harm, the host uses the
// size that it needs.
var umlPatches = []textPatch{{
	file: "arch/x86/um/user-offsets.c",
	old:  "DEFINE_LONGS(HOST_FP_SIZE, 2696);",
	new:  "DEFINE_LONGS(HOST_FP_SIZE, 12288);",
}}

func patchUML(src string) error {
	for _, p := range umlPatches {
		path := filepath.Join(src, p.file)
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text, err := p.apply(string(b))
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (p textPatch) apply(text string) (string, error) {
	if n := strings.Count(text, p.old); n != 1 {
		return "", fmt.Errorf("patch %s: %q occurs %d times, want once: the patch does not fit this source", p.file, p.old, n)
	}
	return strings.Replace(text, p.old, p.new, 1), nil
}
