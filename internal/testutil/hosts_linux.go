package testutil

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TwoHosts returns functions that run others in one of two network namespaces, each with
// its own loopback, joined by a wire: 192.0.2.1/24 is host 0, 192.0.2.2/24 host 1, on an
// interface named wire. If the process may not create them, TwoHosts skips the test with
// the reason. A namespace is removed when the sockets made in it are closed and the test is
// over.
func TwoHosts(tb testing.TB) (do [2]func(func())) {
	tb.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		tb.Skip("needs ip(8)")
	}
	for i := range do {
		do[i] = inNamespace(tb)
	}
	var tid int
	do[1](func() { tid = unix.Gettid() })
	IP(tb, do[0], "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", fmt.Sprint(tid))
	for i := range do {
		IP(tb, do[i], "addr", "add", fmt.Sprintf("192.0.2.%d/24", i+1), "dev", "wire")
		IP(tb, do[i], "link", "set", "wire", "up")
		IP(tb, do[i], "link", "set", "lo", "up")
	}
	return do
}

// IP runs ip(8) by do, a function returned by TwoHosts.
func IP(tb testing.TB, do func(func()), args ...string) {
	tb.Helper()
	var out []byte
	var err error
	do(func() { out, err = exec.Command("ip", args...).CombinedOutput() })
	if err != nil {
		tb.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// inNamespace returns a function that runs others in a network namespace of its own.
func inNamespace(tb testing.TB) (do func(func())) {
	tb.Helper()
	work, idle := make(chan func()), make(chan struct{})
	go onOtherThread(func() {
		for f := range work {
			f()
			idle <- struct{}{}
		}
	})
	tb.Cleanup(func() { close(work) })
	do = func(f func()) { work <- f; <-idle }
	var err error
	do(func() { err = unix.Unshare(unix.CLONE_NEWNET) })
	if err != nil {
		tb.Skipf("network namespaces cannot be made here: %v", err)
	}
	return do
}

// onOtherThread calls f on a thread that ends with f. It is not the main thread, which
// would not end, and whose namespaces count as those of the process (/proc/self/ns).
func onOtherThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f() // never unlocked
		return
	}
	began := make(chan struct{})
	go func() { // on another thread, because this one is locked
		runtime.LockOSThread()
		close(began)
		f()
	}()
	<-began
	runtime.UnlockOSThread()
}
