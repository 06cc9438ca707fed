//go:build linux

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// cmdDoctor prints which ways work on this host and the remedies for the others. It fails
// if none does.
func cmdDoctor(context.Context) (int, error) {
	c, err := openCache()
	if err != nil {
		return harnessFailure, err
	}
	ways := 0
	report := func(name string, err error, ok string) {
		if err != nil {
			fmt.Printf("%-8s no: %v\n", name, err)
			return
		}
		fmt.Printf("%-8s ok: %s\n", name, ok)
	}
	count := func(name string, err error, ok string) {
		if err == nil {
			ways++
		}
		report(name, err, ok)
	}
	native := nativePossible()
	if native == nil {
		native = requirePackages("common")
	}
	count("native", native, "rdma_rxe is loaded")
	count("qemu", requirePackages("common", "qemu"), cached(c, "qemu"))
	count("uml", requirePackages("common", "uml"), cached(c, "uml"))
	report("perftest", requirePackages("perf"), "installed")
	fmt.Printf("%-8s %s\n", "cache", c.dir)
	if m := missing("common", "qemu", "uml", "perf"); len(m) > 0 {
		fmt.Printf("\nfor everything: %s\n", aptLine(m))
	}
	if ways == 0 {
		return 1, nil
	}
	return 0, nil
}

func cached(c *cache, kind string) string {
	found, _ := filepath.Glob(filepath.Join(c.dir, kind+"-*"))
	if len(found) == 0 {
		return "kernel not built yet, built at first use"
	}
	var names []string
	for _, f := range found {
		names = append(names, filepath.Base(f))
	}
	return "kernel in cache: " + strings.Join(names, " ")
}
