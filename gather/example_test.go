package gather_test

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/gather"
)

// Three messages become the payload of one, and are taken apart where it came to.
func Example() {
	p := gather.NewPacker(gather.Limits{Bytes: 4096, InPlace: 4}, 0)
	n, err := p.Pack([]gather.Message{
		{Data: []byte("one"), At: 7}, {Data: []byte("two"), At: 8}, {Data: []byte("three"), At: 9},
	})
	fmt.Println(n, "messages,", err)

	var payload []byte // what a channel would do: lay the pieces out in one write
	for _, piece := range p.Pieces() {
		payload = append(payload, piece.Data...)
	}

	var s gather.Splitter
	if err := s.Open(nil, payload); err != nil {
		fmt.Println(err)
	}
	for s.Next() {
		b, _ := s.Bytes() // in place
		fmt.Println(s.Entry().At, string(b))
	}
	fmt.Println(s.Err())
	// Output:
	// 3 messages, <nil>
	// 7 one
	// 8 two
	// 9 three
	// <nil>
}

// A header that no honest sender makes.
func ExampleHeader() {
	p := gather.NewPacker(gather.Limits{Bytes: 4096}, 0)
	_, _ = p.Pack([]gather.Message{{Data: make([]byte, 100), At: 1}})
	b := p.Pieces()[0].Data
	var h gather.Header
	err := h.Parse(gather.Seq, b, make([]byte, 50)) // 50 of 100 bytes
	var he *gather.HeaderError
	fmt.Println(errors.As(err, &he), errors.Is(err, gather.ErrHeader), h.Count())
	err = h.Parse(gather.Seq, b, make([]byte, 100))
	it := h.Iter()
	e, ok := it.Next()
	fmt.Println(err, h.Len(), e.Size, ok)
	// Output:
	// true true 0
	// <nil> 24 100 true
}
