// Package progress drives the links of an engine: it polls them, passes completions to the
// protocols, and sleeps when there is nothing to do.
//
// # One owner
//
// Links and protocols belong to one goroutine at a time, the owner. Ownership is one word
// ([Engine] acquires it by compare-and-swap) and is held for short periods:
//
//   - by an application goroutine that posts work ([Engine.Kick]) or waits for it
//     ([Engine.Wait], [Engine.Progress]): it drives the links itself, so that there is no
//     hand-over between goroutines on the path of the completion that it waits for;
//   - otherwise by the progress goroutine, one per engine, for one round of polls at a time.
//
// A goroutine that fails to acquire ownership never blocks on it: the present owner starts
// posted work before or right after it releases ownership. One more waiter spins until its
// own completion, or until it gets the engine; the others park.
//
// A goroutine that has driven for some microseconds in vain gives in to that one, and parks:
// it probably waits for a peer, and the other for an operation of its own, each of which
// would otherwise be handed over. The goroutine that is active drives for all.
//
// It lends the engine while it gives other goroutines of the process a turn, which may compute
// for long.
//
// A goroutine that drives and has spun for as long as the policy allows naps: it arms the
// links and sleeps itself on their descriptors, so that an event wakes it and nobody else.
// Who acquires the engine meanwhile disarms the links and wakes it, and it parks. It also
// parks after some naps in vain; the progress goroutine dozes until then.
//
// # How the progress goroutine rests
//
//	awake   polls: at first without pause, then yielding the processor
//	dozing  application goroutines drive: polls again after 0.1 … 1 ms
//	trusting  the same, although others are parked: the drives are frequent
//	asleep  links armed, waiting for their descriptors and for wake-ups
//
// While goroutines compute on all Ps of the scheduler, it keeps one more for itself, and is run by
// one goroutine after the other: see relay. Waiters then park instead of napping.
//
// The next owner disarms the links and wakes the goroutine if it is asleep: links that one
// goroutine has armed are never polled by another. It sleeps in a system call, poll, on the
// links' descriptors and one for wake-ups. The call holds a thread, for at most a second at a
// time; the runtime takes the processor from it, so that with GOMAXPROCS=1 other goroutines
// run meanwhile.
//
// A goroutine that spins on memory which a peer writes should call [Engine.Progress] in its
// loop: on links that need the target's help (fabric.Caps.TargetProgress) it would
// otherwise wait for the dozing goroutine.
//
// # Invariants
//
//   - A Waiter is finished exactly once; a finished one is never parked.
//   - If work is pending and the engine has no owner, some goroutine is about to acquire it:
//     the owner checks Pending after it has released it.
//   - If a waiter is parked, the progress goroutine is awake, or asleep with the links armed,
//     or another goroutine drives, or naps, and will wake it when done.
//
// # Files
//
//	engine.go   Engine: ownership, Kick, Do, Progress
//	loop.go     the progress goroutine
//	relay.go    its P while goroutines compute
//	wait.go     Waiter, Wait, polling one word; waitany.go several at once
//	nap.go      the sleep of a waiter
//	events.go   the descriptor to sleep on
//
// It imports fabric and packages of floor 0. Tests live beside the code and run over
// the simulated link.
package progress
