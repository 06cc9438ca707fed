package flowctl_test

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/flowctl"
)

// Both ends of a ring of 8 blocks, in one process: in a program each holds its
// own end, and only words of 8 bytes go between them.
func Example() {
	g := flowctl.Geometry{Blocks: 8, Control: 1, Every: 4}
	if err := g.Validate(); err != nil {
		fmt.Println(err)
	}
	w, r := flowctl.NewSender(g), flowctl.NewReceiver(g)
	sent := 0
	for {
		if _, ok := w.Reserve(1, flowctl.Data); !ok {
			break
		}
		sent++
	}
	_, ok := w.Reserve(1, flowctl.Control)
	fmt.Println(sent, "blocks of data fit, and one for control:", ok)

	r.Consume(4)
	fmt.Println("credit is due:", r.Due(false))
	word := r.Word()                                 // the reader writes it into the writer's memory
	fmt.Println(w.Apply(word), w.Free(flowctl.Data)) // which believes it after a check
	fmt.Println(w.Complete(4), w.Free(flowctl.Data)) // the link must be done with them as well
	fmt.Println(w.Apply(word+1000) != nil)           // a cursor of blocks that were never sent
	// Output:
	// 7 blocks of data fit, and one for control: true
	// credit is due: true
	// <nil> 0
	// <nil> 3
	// true
}

// What a peer writes is a claim.
func ExampleCursorError() {
	s := flowctl.NewSender(flowctl.DefaultGeometry(64))
	err := s.Apply(100 << 1)
	var ce *flowctl.CursorError
	fmt.Println(errors.As(err, &ce), errors.Is(err, flowctl.ErrCursorBeyond), ce.Got, ce.High)
	// Output: true true 100 0
}
