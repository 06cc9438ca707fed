// The part of libibverbs' binary interface (libibverbs.so.1) that package verbs
// uses: layouts, numbers and versions of symbols, to which its releases add but
// which they do not change. No header of RDMA is included, so a C compiler is all
// that building takes.
//
// The name of the library's counterpart follows each declaration, "-" where it has
// none, and "..." behind a structure that only the library allocates and may make
// longer. TestABI reads these names (so one declaration a line) and compares size,
// offset, sign, types of pointers and values with <infiniband/verbs.h>, where that
// is installed. Enumerations without negative values are uint32_t, others int32_t.
#ifndef RMA_VERBS_ABI_H
#define RMA_VERBS_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ABI_NAME_SIZE 64 // IBV_SYSFS_NAME_MAX
#define ABI_PATH_SIZE 256 // IBV_SYSFS_PATH_MAX
#define ABI_SRQ_LIMIT 2 // IBV_SRQ_LIMIT
#define ABI_MW_TYPE_1 1 // IBV_MW_TYPE_1

#define ABI_EVENT_CQ_ERR 0 // IBV_EVENT_CQ_ERR
#define ABI_EVENT_QP_FATAL 1 // IBV_EVENT_QP_FATAL
#define ABI_EVENT_QP_REQ_ERR 2 // IBV_EVENT_QP_REQ_ERR
#define ABI_EVENT_QP_ACCESS_ERR 3 // IBV_EVENT_QP_ACCESS_ERR
#define ABI_EVENT_COMM_EST 4 // IBV_EVENT_COMM_EST
#define ABI_EVENT_SQ_DRAINED 5 // IBV_EVENT_SQ_DRAINED
#define ABI_EVENT_PATH_MIG 6 // IBV_EVENT_PATH_MIG
#define ABI_EVENT_PATH_MIG_ERR 7 // IBV_EVENT_PATH_MIG_ERR
#define ABI_EVENT_PORT_ACTIVE 9 // IBV_EVENT_PORT_ACTIVE
#define ABI_EVENT_PORT_ERR 10 // IBV_EVENT_PORT_ERR
#define ABI_EVENT_LID_CHANGE 11 // IBV_EVENT_LID_CHANGE
#define ABI_EVENT_PKEY_CHANGE 12 // IBV_EVENT_PKEY_CHANGE
#define ABI_EVENT_SM_CHANGE 13 // IBV_EVENT_SM_CHANGE
#define ABI_EVENT_SRQ_ERR 14 // IBV_EVENT_SRQ_ERR
#define ABI_EVENT_SRQ_LIMIT 15 // IBV_EVENT_SRQ_LIMIT_REACHED
#define ABI_EVENT_QP_LAST_WQE 16 // IBV_EVENT_QP_LAST_WQE_REACHED
#define ABI_EVENT_CLIENT_REREGISTER 17 // IBV_EVENT_CLIENT_REREGISTER
#define ABI_EVENT_GID_CHANGE 18 // IBV_EVENT_GID_CHANGE

struct abi_ah; // ibv_ah
struct abi_context;
struct abi_cq;
struct abi_device;
struct abi_mr;
struct abi_mw;
struct abi_mw_bind;
struct abi_pd;
struct abi_port_attr_1_1; // _compat_ibv_port_attr
struct abi_qp;
struct abi_recv_wr;
struct abi_send_wr;
struct abi_srq;
struct abi_wc;

struct abi_device { // ibv_device...
	void *unused[2]; // -
	int32_t node; // node_type
	int32_t transport; // transport_type
	char name[ABI_NAME_SIZE]; // name
	char uverbs[ABI_NAME_SIZE]; // dev_name
	char uverbs_path[ABI_PATH_SIZE]; // dev_path
	char path[ABI_PATH_SIZE]; // ibdev_path
};

struct abi_device_attr { // ibv_device_attr
	char firmware[64]; // fw_ver
	uint64_t node_guid_be; // node_guid
	uint64_t image_guid_be; // sys_image_guid
	uint64_t max_mr_size; // max_mr_size
	uint64_t page_sizes; // page_size_cap
	uint32_t vendor; // vendor_id
	uint32_t part; // vendor_part_id
	uint32_t hw_version; // hw_ver
	int32_t max_qp; // max_qp
	int32_t max_qp_wr; // max_qp_wr
	uint32_t caps; // device_cap_flags
	int32_t max_sge; // max_sge
	int32_t max_sge_read; // max_sge_rd
	int32_t max_cq; // max_cq
	int32_t max_cqe; // max_cqe
	int32_t max_mr; // max_mr
	int32_t max_pd; // max_pd
	int32_t max_reads_target; // max_qp_rd_atom
	int32_t max_reads_ee; // max_ee_rd_atom
	int32_t max_reads_total; // max_res_rd_atom
	int32_t max_reads_initiate; // max_qp_init_rd_atom
	int32_t max_reads_initiate_ee; // max_ee_init_rd_atom
	uint32_t atomic_cap; // atomic_cap
	int32_t max_ee; // max_ee
	int32_t max_rdd; // max_rdd
	int32_t max_mw; // max_mw
	int32_t max_raw_ipv6; // max_raw_ipv6_qp
	int32_t max_raw_ethernet; // max_raw_ethy_qp
	int32_t max_mcast_groups; // max_mcast_grp
	int32_t max_mcast_attach; // max_mcast_qp_attach
	int32_t max_mcast_attach_total; // max_total_mcast_qp_attach
	int32_t max_ah; // max_ah
	int32_t max_fmr; // max_fmr
	int32_t max_map_per_fmr; // max_map_per_fmr
	int32_t max_srq; // max_srq
	int32_t max_srq_wr; // max_srq_wr
	int32_t max_srq_sge; // max_srq_sge
	uint16_t max_pkeys; // max_pkeys
	uint8_t ack_delay; // local_ca_ack_delay
	uint8_t ports; // phys_port_cnt
};

// ibv_query_port of version 1.1 writes no more than this.
struct abi_port_attr { // ibv_port_attr...
	uint32_t state; // state
	uint32_t max_mtu; // max_mtu
	uint32_t active_mtu; // active_mtu
	int32_t gids; // gid_tbl_len
	uint32_t caps; // port_cap_flags
	uint32_t max_message; // max_msg_sz
	uint32_t bad_pkeys; // bad_pkey_cntr
	uint32_t bad_qkeys; // qkey_viol_cntr
	uint16_t pkeys; // pkey_tbl_len
	uint16_t lid; // lid
	uint16_t sm_lid; // sm_lid
	uint8_t lmc; // lmc
	uint8_t max_vls; // max_vl_num
	uint8_t sm_sl; // sm_sl
	uint8_t subnet_timeout; // subnet_timeout
	uint8_t init_reply; // init_type_reply
	uint8_t width; // active_width
	uint8_t speed; // active_speed
	uint8_t phys_state; // phys_state
	uint8_t link_layer; // link_layer
	uint8_t flags; // flags
	uint16_t caps2; // port_cap_flags2
};

union abi_gid { // ibv_gid
	uint8_t raw[16]; // raw
	uint64_t words[2]; // -
};

struct abi_gid_entry { // ibv_gid_entry
	union abi_gid gid; // gid
	uint32_t index; // gid_index
	uint32_t port; // port_num
	uint32_t kind; // gid_type
	uint32_t ifindex; // ndev_ifindex
};

struct abi_async_event { // ibv_async_event
	union {
		struct abi_cq *cq; // element.cq
		struct abi_qp *qp; // element.qp
		struct abi_srq *srq; // element.srq
		int32_t port; // element.port_num
	};
	uint32_t kind; // event_type
};

struct abi_context_ops { // ibv_context_ops
	void *unused0[7]; // -
	struct abi_mw *(*alloc_mw)(struct abi_pd *, uint32_t); // alloc_mw
	int (*bind_mw)(struct abi_qp *, struct abi_mw *, struct abi_mw_bind *); // bind_mw
	int (*dealloc_mw)(struct abi_mw *); // dealloc_mw
	void *unused1; // -
	int (*poll_cq)(struct abi_cq *, int, struct abi_wc *); // poll_cq
	int (*req_notify_cq)(struct abi_cq *, int); // req_notify_cq
	void *unused2[7]; // -
	int (*post_srq_recv)(struct abi_srq *, struct abi_recv_wr *, struct abi_recv_wr **); // post_srq_recv
	void *unused3[4]; // -
	int (*post_send)(struct abi_qp *, struct abi_send_wr *, struct abi_send_wr **); // post_send
	int (*post_recv)(struct abi_qp *, struct abi_recv_wr *, struct abi_recv_wr **); // post_recv
	void *unused4[5]; // -
};

struct abi_context { // ibv_context...
	struct abi_device *device; // device
	struct abi_context_ops ops; // ops
	int32_t cmd_fd; // cmd_fd
	int32_t async_fd; // async_fd
	int32_t vectors; // num_comp_vectors
};

struct abi_pd { // ibv_pd...
	struct abi_context *context; // context
};

struct abi_mr { // ibv_mr...
	struct abi_context *context; // context
	struct abi_pd *pd; // pd
	void *addr; // addr
	size_t length; // length
	uint32_t handle; // handle
	uint32_t lkey; // lkey
	uint32_t rkey; // rkey
};

struct abi_mw { // ibv_mw...
	struct abi_context *context; // context
	struct abi_pd *pd; // pd
	uint32_t rkey; // rkey
	uint32_t handle; // handle
	uint32_t kind; // type
};

struct abi_mw_span { // ibv_mw_bind_info
	struct abi_mr *mr; // mr
	uint64_t addr; // addr
	uint64_t length; // length
	uint32_t access; // mw_access_flags
};

struct abi_mw_bind { // ibv_mw_bind
	uint64_t id; // wr_id
	uint32_t flags; // send_flags
	struct abi_mw_span span; // bind_info
};

struct abi_channel { // ibv_comp_channel...
	struct abi_context *context; // context
	int32_t fd; // fd
};

struct abi_cq { // ibv_cq...
	struct abi_context *context; // context
	struct abi_channel *channel; // channel
	void *id; // cq_context
	uint32_t handle; // handle
	int32_t entries; // cqe
};

struct abi_wc { // ibv_wc
	uint64_t id; // wr_id
	uint32_t status; // status
	uint32_t op; // opcode
	uint32_t vendor_err; // vendor_err
	uint32_t length; // byte_len
	union {
		uint32_t imm_be; // imm_data
		uint32_t invalidated; // invalidated_rkey
	};
	uint32_t qpn; // qp_num
	uint32_t src_qp; // src_qp
	uint32_t flags; // wc_flags
	uint16_t pkey_index; // pkey_index
	uint16_t slid; // slid
	uint8_t sl; // sl
	uint8_t path_bits; // dlid_path_bits
};

struct abi_srq { // ibv_srq...
	struct abi_context *context; // context
	void *id; // srq_context
};

struct abi_srq_attr { // ibv_srq_attr
	uint32_t max_wr; // max_wr
	uint32_t max_sge; // max_sge
	uint32_t limit; // srq_limit
};

struct abi_srq_init { // ibv_srq_init_attr
	void *id; // srq_context
	struct abi_srq_attr attr; // attr
};

struct abi_qp { // ibv_qp...
	struct abi_context *context; // context
	void *id; // qp_context
	struct abi_pd *pd; // pd
	struct abi_cq *send_cq; // send_cq
	struct abi_cq *recv_cq; // recv_cq
	struct abi_srq *srq; // srq
	uint32_t handle; // handle
	uint32_t num; // qp_num
};

struct abi_cap { // ibv_qp_cap
	uint32_t max_send_wr; // max_send_wr
	uint32_t max_recv_wr; // max_recv_wr
	uint32_t max_send_sge; // max_send_sge
	uint32_t max_recv_sge; // max_recv_sge
	uint32_t max_inline; // max_inline_data
};

struct abi_qp_init { // ibv_qp_init_attr
	void *id; // qp_context
	struct abi_cq *send_cq; // send_cq
	struct abi_cq *recv_cq; // recv_cq
	struct abi_srq *srq; // srq
	struct abi_cap cap; // cap
	uint32_t kind; // qp_type
	int32_t signal_all; // sq_sig_all
};

struct abi_route { // ibv_global_route
	union abi_gid dgid; // dgid
	uint32_t flow_label; // flow_label
	uint8_t sgid_index; // sgid_index
	uint8_t hop_limit; // hop_limit
	uint8_t traffic_class; // traffic_class
};

struct abi_ah_attr { // ibv_ah_attr
	struct abi_route route; // grh
	uint16_t dlid; // dlid
	uint8_t sl; // sl
	uint8_t src_path_bits; // src_path_bits
	uint8_t static_rate; // static_rate
	uint8_t global; // is_global
	uint8_t port; // port_num
};

struct abi_qp_attr { // ibv_qp_attr
	uint32_t state; // qp_state
	uint32_t cur_state; // cur_qp_state
	uint32_t path_mtu; // path_mtu
	uint32_t migration; // path_mig_state
	uint32_t qkey; // qkey
	uint32_t rq_psn; // rq_psn
	uint32_t sq_psn; // sq_psn
	uint32_t dest_qpn; // dest_qp_num
	uint32_t access; // qp_access_flags
	struct abi_cap cap; // cap
	struct abi_ah_attr ah; // ah_attr
	struct abi_ah_attr alt_ah; // alt_ah_attr
	uint16_t pkey_index; // pkey_index
	uint16_t alt_pkey_index; // alt_pkey_index
	uint8_t sqd_notify; // en_sqd_async_notify
	uint8_t sq_draining; // sq_draining
	uint8_t max_reads; // max_rd_atomic
	uint8_t max_reads_dest; // max_dest_rd_atomic
	uint8_t min_rnr_timer; // min_rnr_timer
	uint8_t port; // port_num
	uint8_t timeout; // timeout
	uint8_t retry_count; // retry_cnt
	uint8_t rnr_retry; // rnr_retry
	uint8_t alt_port; // alt_port_num
	uint8_t alt_timeout; // alt_timeout
	uint32_t rate_limit; // rate_limit
};

struct abi_sge { // ibv_sge
	uint64_t addr; // addr
	uint32_t length; // length
	uint32_t lkey; // lkey
};

struct abi_send_wr { // ibv_send_wr
	uint64_t id; // wr_id
	struct abi_send_wr *next; // next
	struct abi_sge *sgl; // sg_list
	int32_t num_sge; // num_sge
	uint32_t op; // opcode
	uint32_t flags; // send_flags
	union {
		uint32_t imm_be; // imm_data
		uint32_t invalidate; // invalidate_rkey
	};
	union {
		struct {
			uint64_t remote; // wr.rdma.remote_addr
			uint32_t rkey; // wr.rdma.rkey
		};
		struct {
			uint64_t atomic_remote; // wr.atomic.remote_addr
			uint64_t compare_add; // wr.atomic.compare_add
			uint64_t swap; // wr.atomic.swap
			uint32_t atomic_rkey; // wr.atomic.rkey
		};
		struct {
			struct abi_ah *ah; // wr.ud.ah
			uint32_t qpn; // wr.ud.remote_qpn
			uint32_t qkey; // wr.ud.remote_qkey
		};
	};
	uint32_t xrc_srq; // qp_type.xrc.remote_srqn
	struct abi_mw *mw; // bind_mw.mw
	uint32_t mw_rkey; // bind_mw.rkey
	struct abi_mw_span mw_span; // bind_mw.bind_info
};

struct abi_recv_wr { // ibv_recv_wr
	uint64_t id; // wr_id
	struct abi_recv_wr *next; // next
	struct abi_sge *sgl; // sg_list
	int32_t num_sge; // num_sge
};

// Functions: the version of the symbol, result, name, arguments. Without any of
// these the library is of no use.
#define ABI_REQUIRED(X) \
	X(1.1, struct abi_device **, ibv_get_device_list, (int *)) \
	X(1.1, void, ibv_free_device_list, (struct abi_device **)) \
	X(1.1, const char *, ibv_get_device_name, (struct abi_device *)) \
	X(1.1, unsigned long long, ibv_get_device_guid, (struct abi_device *)) \
	X(1.1, struct abi_context *, ibv_open_device, (struct abi_device *)) \
	X(1.1, int, ibv_close_device, (struct abi_context *)) \
	X(1.1, int, ibv_get_async_event, (struct abi_context *, struct abi_async_event *)) \
	X(1.1, void, ibv_ack_async_event, (struct abi_async_event *)) \
	X(1.1, int, ibv_query_device, (struct abi_context *, struct abi_device_attr *)) \
	X(1.1, int, ibv_query_port, (struct abi_context *, uint8_t, struct abi_port_attr_1_1 *)) \
	X(1.1, int, ibv_query_gid, (struct abi_context *, uint8_t, int, union abi_gid *)) \
	X(1.1, int, ibv_query_pkey, (struct abi_context *, uint8_t, int, uint16_t *)) \
	X(1.1, struct abi_pd *, ibv_alloc_pd, (struct abi_context *)) \
	X(1.1, int, ibv_dealloc_pd, (struct abi_pd *)) \
	X(1.1, struct abi_mr *, ibv_reg_mr, (struct abi_pd *, void *, size_t, int)) \
	X(1.1, int, ibv_dereg_mr, (struct abi_mr *)) \
	X(1.0, struct abi_channel *, ibv_create_comp_channel, (struct abi_context *)) \
	X(1.0, int, ibv_destroy_comp_channel, (struct abi_channel *)) \
	X(1.1, struct abi_cq *, ibv_create_cq, (struct abi_context *, int, void *, struct abi_channel *, int)) \
	X(1.1, int, ibv_resize_cq, (struct abi_cq *, int)) \
	X(1.1, int, ibv_destroy_cq, (struct abi_cq *)) \
	X(1.1, int, ibv_get_cq_event, (struct abi_channel *, struct abi_cq **, void **)) \
	X(1.1, void, ibv_ack_cq_events, (struct abi_cq *, unsigned)) \
	X(1.1, struct abi_qp *, ibv_create_qp, (struct abi_pd *, struct abi_qp_init *)) \
	X(1.1, int, ibv_modify_qp, (struct abi_qp *, struct abi_qp_attr *, int)) \
	X(1.1, int, ibv_query_qp, (struct abi_qp *, struct abi_qp_attr *, int, struct abi_qp_init *)) \
	X(1.1, int, ibv_destroy_qp, (struct abi_qp *)) \
	X(1.1, struct abi_srq *, ibv_create_srq, (struct abi_pd *, struct abi_srq_init *)) \
	X(1.1, int, ibv_modify_srq, (struct abi_srq *, struct abi_srq_attr *, int)) \
	X(1.1, int, ibv_query_srq, (struct abi_srq *, struct abi_srq_attr *)) \
	X(1.1, int, ibv_destroy_srq, (struct abi_srq *)) \
	X(1.1, struct abi_ah *, ibv_create_ah, (struct abi_pd *, struct abi_ah_attr *)) \
	X(1.1, int, ibv_destroy_ah, (struct abi_ah *))

// Functions that came later: the shim does without.
#define ABI_OPTIONAL(X) \
	X(1.7, struct abi_mr *, ibv_reg_mr_iova, (struct abi_pd *, void *, size_t, uint64_t, int)) \
	X(1.8, struct abi_mr *, ibv_reg_mr_iova2, (struct abi_pd *, void *, size_t, uint64_t, unsigned)) \
	X(1.11, ssize_t, _ibv_query_gid_table, (struct abi_context *, struct abi_gid_entry *, size_t, uint32_t, size_t))

#endif
