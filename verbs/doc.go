// Package verbs is a binding of libibverbs, the library that programs RDMA
// devices: InfiniBand, RoCE and iWARP adapters, and SoftRoCE (rdma_rxe).
//
// The package is meant to be imported by programs that drive RDMA devices themselves, and
// imports no other package of the module. It also binds objects of verbs that the engine
// does not use. It is as stable as package rma.
//
// It is mechanism only: no retries, no caching, no thresholds, no goroutines, no log. Its
// users (here fabric/ibv) decide how to handle a full queue or a broken connection. Types
// have Go names, and no C type appears in a signature.
//
// # Without RDMA
//
// libibverbs is opened at run time; the build needs only a C compiler. If the library is not
// installed or lacks a function ([SymbolError]), or in a build without cgo, every function
// returns an error that wraps [ErrNotSupported], and [Support] returns the reason and the
// remedy.
//
// # Objects
//
//	Devices → Open → *Context ┬ QueryDevice, QueryPort, GIDs → ChooseGID
//	                          ├ CreateCompChannel → *CompChannel (FD, Event)
//	                          ├ CreateCQ → *CQ (Poll, ReqNotify)
//	                          └ AllocPD → *PD ┬ Register → *MR
//	                                          ├ CreateQP → *QP (Modify, PostSend, PostRecv)
//	                                          └ CreateSRQ, CreateAH, AllocMW
//
// Close releases an object, children before parents; a parent with children refuses with
// EBUSY and stays usable. Close is idempotent. The garbage collector releases nothing.
//
// # Memory
//
// A device reads and writes memory long after the call that requested it. Such memory must
// not lie where Go may move or reuse it: allocate it by mmap ([PD.Register]) or let
// [PD.RegisterPinned] pin a Go slice until the region is closed. Work requests name memory
// by address ([SGE]), not by slice.
//
// # Crossings
//
// [QP.PostSend], [QP.PostRecv] and [CQ.Poll] are the data path: one crossing into C for a
// whole list, no allocation, no lock. A full queue is reported as a count, not as an error.
// PostSend of one queue pair is for one goroutine at a time, and so are its PostRecv and the
// Poll of one completion queue; different objects are independent. All other methods may be
// called from any goroutine, but not while the object is being closed.
//
// # Files
//
//	support.go errors.go            is there a library; errors that say what to do
//	device.go context.go attr.go    devices and their attributes
//	gid.go gidchoice.go             addresses of a port, and which one to use
//	pd.go mr.go                     protection domains, address handles; registered memory, windows
//	cq.go wc.go                     completions and events
//	qp.go qpattr.go                 queue pairs and their states
//	wr.go post.go                   work requests
//	srq.go                          shared receive queues
//	enums.go                        the library's numbers with names
//	raw_cgo.go raw_none.go          the crossing, and its twin without cgo
//	shim_linux.h, shim_linux.c      the C side
//	zoo.go, zoo_linux.h             a device like another one, only with the tag rma_zoo
//	abi_linux.h                     the part of libibverbs' binary interface that it uses
//
// It imports nothing of the project. Tests that need a device skip without one,
// unless RMA_REQUIRE_RDMA=1 is set, which makes them fail. So does TestABI, which
// compares abi_linux.h with the system's <infiniband/verbs.h> (libibverbs-dev).
package verbs
