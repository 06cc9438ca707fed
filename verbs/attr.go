package verbs

// DeviceAttr holds the limits of a device. Counts are upper bounds that need not be
// reachable together.
type DeviceAttr struct {
	Firmware        string
	NodeGUID        uint64
	SysImageGUID    uint64
	MaxMRSize       uint64 // bytes
	PageSizes       uint64 // bit n: pages of 2^n bytes
	VendorID        uint32
	VendorPartID    uint32
	HWVersion       uint32
	CapFlags        uint32 // IBV_DEVICE_*
	MaxQP           int
	MaxQPWR         int // outstanding requests on one queue
	MaxSGE          int // pieces of one request
	MaxSGERead      int // of one RDMA read; 0 if the device does not report it
	MaxCQ           int
	MaxCQE          int // entries of one completion queue
	MaxMR           int
	MaxPD           int
	MaxReadTarget   int // reads and atomics in flight towards one queue pair (max_qp_rd_atom)
	MaxReadInitiate int // from one queue pair (max_qp_init_rd_atom)
	MaxReadTotal    int // towards the device (max_res_rd_atom)
	AtomicCap       AtomicCap
	MaxMW           int
	MaxAH           int
	MaxSRQ          int
	MaxSRQWR        int
	MaxSRQSGE       int
	MaxMulticast    int
	MaxPKeys        int
	AckDelay        uint8 // 4.096 µs · 2^AckDelay
	Ports           int
}

// PortAttr is the state of a port.
type PortAttr struct {
	State         PortState
	MaxMTU        MTU
	ActiveMTU     MTU
	GIDs          int // length of the GID table
	CapFlags      uint32
	MaxMessage    uint32 // bytes of one message
	BadPKeys      uint32
	BadQKeys      uint32
	PKeys         int // length of the P_Key table
	LID           uint16
	SMLID         uint16
	LMC           uint8
	MaxVLs        uint8
	SMSL          uint8
	SubnetTimeout uint8
	ActiveWidth   uint8
	ActiveSpeed   uint8
	PhysState     uint8
	LinkLayer     LinkLayer
}
