// Package links opens the links of this process by name, says which of them
// work here, chooses one for a peer, and joins two endpoints through the job.
//
// [Open] knows "shm", "tcp" and "ibv" (also called "verbs"); [Probe] tries
// them all and gives the reason where one does not work; two ranks exchange an
// [Offer] and [Choose] from both the same link; [Connect] exchanges the
// endpoints' addresses through the job and connects.
//
// # Environment
//
// Settings that the environment forces, read by [FromEnv] and nowhere else:
//
//	RMA_FABRIC            auto, shm, tcp, ibv or verbs: the only link to use
//	RMA_DISABLE_CMA       1: shm does not use process_vm_readv/writev
//	RMA_DISABLE_SEGMENTS  1: shm's Alloc hands out private memory
//	RMA_TCP_BIND          address to listen on, 0.0.0.0 for all interfaces
//	RMA_IBV_DEVICE        RDMA device, as rxe0 or mlx5_0
//	RMA_IBV_PORT          its port, from 1
//	RMA_IBV_GID_INDEX     entry of the port's GID table
//	RMA_IBV_LAST_BYTE     0: do not rely on the last word of a write coming last
//	RMA_IBV_GUARD         0, 1: never or always guard against rdma_rxe on a lossy wire
//
// # Files
//
//	links.go     names, Options, Open, Probe; one open_*.go file a link
//	env.go       the environment
//	choose.go    Offer, Choose
//	connect.go   Connect, Loopback
//
// It may import fabric and its links, and internal/wireup.
package links
