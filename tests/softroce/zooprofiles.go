//go:build linux

package main

// profile is a device of the zoo: limits and habits that rxe is given by a shim below
// libibverbs (verbs/zoo_linux.h).
type profile struct {
	name   string
	like   string // the adapters that it stands for
	quirks string // the value of RMA_ZOO
	env    []string
	only   string // the tests of the link to run, as go test -run, and no others; "" all
}

// shuffled switches off a promise that such a device breaks, as its user has to.
var shuffled = []string{"RMA_IBV_LAST_BYTE=0"}

// profiles is what `make zoo` runs. The limits are those that drivers and users of the
// adapters report; docs/zoo.md has the same table.
var profiles = []profile{
	{name: "rxe", like: "rdma_rxe as it is"},
	{name: "mlx5", like: "NVIDIA ConnectX, packets in order", quirks: "sge=30,reads=16,inline=220"},
	{name: "mlx5-ar", like: "NVIDIA ConnectX with adaptive routing or relaxed ordering", quirks: "sge=30,reads=16,shuffle", env: shuffled},
	{name: "irdma", like: "Intel E810", quirks: "inline=101,sge=13,no_atomics,gid=local-first"},
	{name: "bnxt", like: "Broadcom NetXtreme-E", quirks: "inline=96,sge=6,no_resize,gid=v1-first"},
	{name: "qedr", like: "Marvell FastLinQ", quirks: "inline=128,sge=4,gid=v1-first,mtu=1024"},
	{name: "hns", like: "HiSilicon, with VLANs", quirks: "inline=32,sge=2,gid=vlan"},
	{name: "siw", like: "SoftiWARP and iWARP adapters, by their verbs", quirks: "no_imm,no_atomics,inline=80,sge=6"},
	{name: "efa", like: "habits of Amazon EFA, on a reliable connection", quirks: "no_atomics,unsolicited,shuffle,inline=32,sge=2,sge_read=1,no_srq,no_resize", env: shuffled},
	{name: "erdma", like: "Alibaba eRDMA", quirks: "no_srq,no_resize,inline=96,sge=6,reads=8,gid=v6"},
	{name: "qib", like: "QLogic, Intel True Scale", quirks: "inline=0,reads=1,slow_reg=2000"},
	{name: "vf", like: "a virtual function with few resources", quirks: "cqe=8192,qp=96,mr=256,wr=1024,mtu=512"},
	{name: "v1", like: "an adapter of RoCE v1 only", quirks: "gid=v1-only,inline=64"},
	{name: "least", like: "the least that is served", quirks: "no_imm,no_atomics,no_srq,no_resize,inline=0,sge=1,reads=1,mtu=256"},
	{name: "no-reads", like: "an adapter that is refused, with the reason", quirks: "reads=0", only: "^TestZooLimits$"},
	{name: "dead", like: "a network that carries no packet", quirks: "gid=dead", only: "^TestZooGID$"},
}
