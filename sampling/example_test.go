package sampling_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/sampling"
)

// A link that nobody has measured has round figures, which are not believed much.
func ExampleDefaults() {
	p := sampling.Defaults("shm")
	fmt.Println(p.Ls < sampling.Defaults("tcp").Ls)
	// Output: true
}

// A saved measurement is used only for a link with the same capabilities.
func ExampleStore() {
	dir, err := os.MkdirTemp("", "profiles")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store := sampling.Store{Dir: dir}
	key := sampling.Key{Link: "tcp", Class: sampling.Remote, Version: sampling.Version}
	caps := fabric.Caps{MaxSGE: 16, TargetProgress: true}
	_, err = store.Load(key, caps)
	fmt.Println(errors.Is(err, sampling.ErrNoProfile))
	// Output: true
}
