//go:build linux

package launchers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/jobenv"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/topo"
)

// roleEnv makes the test binary a rank.
const roleEnv = "RMA_TEST_LAUNCHERS_ROLE"

var roles = map[string]func(context.Context, jobenv.Found) error{"ring": ring, "bound": bound, "absent": absent, "token": wrongToken}

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		testutil.Main(m)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Limit)
	defer cancel()
	f, err := jobenv.Find()
	if err == nil {
		err = roles[role](ctx, f)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: rank %d of %d under %s: %v\n", role, f.Rank, f.Size, f.Launcher, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// bound prints the cores that the launcher left to this process, and reports a thread that
// may run elsewhere while an engine is open.
func bound(ctx context.Context, f jobenv.Found) error {
	on := cpu.Allowed()
	eng, err := rma.Open(ctx, &rma.Config{Sampling: "off"})
	if err != nil {
		return err
	}
	defer eng.Close()
	if err := eng.Barrier(ctx); err != nil {
		return err
	}
	threads, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return err
	}
	for _, th := range threads {
		text, err := os.ReadFile(th)
		if err == nil && !strings.Contains(string(text), fmt.Sprintf("Cpus_allowed_list:\t%v\n", on)) {
			return fmt.Errorf("bound to %v, and a thread is not: %s", on, text)
		}
	}
	fmt.Printf("bound: rank %d under %s, %d core(s)\n", f.Rank, f.Launcher, topo.Local().UsableCores(on))
	return nil
}

// ring writes to the next rank, counts on rank 0 and sends to the previous.
func ring(ctx context.Context, f jobenv.Found) error {
	eng, err := rma.Open(ctx, &rma.Config{Sampling: "off"})
	if err != nil {
		return err
	}
	defer eng.Close()
	mem, err := eng.Alloc(4096)
	if err != nil {
		return err
	}
	keys, err := rma.AllGatherKeys(ctx, eng, mem)
	if err != nil {
		return err
	}
	me, n := eng.Rank(), eng.Size()
	next, before := eng.Peer((me+1)%n), eng.Peer((me+n-1)%n)
	binary.NativeEndian.PutUint64(mem.Bytes()[64:], uint64(1000+me))
	put := next.Put(keys[next.Rank()].At(128), mem.Slice(64, 8))
	if err := put.Wait(ctx); err != nil {
		return err
	}
	if _, err := eng.Peer(0).FetchAdd(keys[0].At(0), 1).Wait(ctx); err != nil {
		return err
	}
	send := before.Send([]byte{byte(me)})
	got := make([]byte, 8)
	if _, err := next.Recv(got).Wait(ctx); err != nil {
		return err
	}
	if err := send.Wait(ctx); err != nil {
		return err
	}
	if err := eng.Barrier(ctx); err != nil {
		return err
	}
	if v := binary.NativeEndian.Uint64(mem.Bytes()[128:]); v != uint64(1000+before.Rank()) || int(got[0]) != next.Rank() {
		return fmt.Errorf("got %d and a message from %d", v, got[0])
	}
	if v := binary.NativeEndian.Uint64(mem.Bytes()); me == 0 && v != uint64(n) {
		return fmt.Errorf("counted %d of %d", v, n)
	}
	fmt.Printf("ring: rank %d of %d, local %d, under %s over %s\n", me, n, f.LocalRank, f.Launcher, next.Link())
	return nil
}

// absent is a job whose last rank never comes.
func absent(_ context.Context, f jobenv.Found) error {
	if f.Rank == f.Size-1 {
		return nil
	}
	eng, err := rma.Open(context.Background(), &rma.Config{SetupTimeout: time.Second})
	if err == nil {
		return errors.Join(errors.New("opened"), eng.Close())
	}
	fmt.Printf("absent: rank %d: %v\n", f.Rank, err)
	return nil
}

// wrongToken is a job whose last rank has another secret.
func wrongToken(_ context.Context, f jobenv.Found) error {
	token := "000102030405060708090a0b0c0d0e0f"
	if f.Rank == f.Size-1 {
		token = "ff0102030405060708090a0b0c0d0e0f"
	}
	if err := os.Setenv("RMA_TOKEN", token); err != nil {
		return err
	}
	eng, err := rma.Open(context.Background(), &rma.Config{SetupTimeout: time.Second})
	if err == nil {
		return errors.Join(errors.New("opened"), eng.Close())
	}
	fmt.Printf("token: rank %d: %v\n", f.Rank, err)
	return nil
}
