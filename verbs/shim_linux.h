// The C side of package verbs: what Go may call. No header of libibverbs is
// needed to include this one, so the Go side compiles alike with and without.
//
// Handles are integers: they point to memory of libibverbs that Go neither
// looks at nor passes checks for. Functions that can fail return 0 or an errno.
#ifndef RMA_VERBS_SHIM_H
#define RMA_VERBS_SHIM_H

#include <stddef.h>
#include <stdint.h>

typedef uintptr_t rv_h;

// rv_load opens the library. 0: found; 1: built without headers; 2: not found
// or too old, text says why. Call once.
int rv_load(char *text, size_t size);

struct rv_device {
	char name[64];
	char dev_path[256];
	uint64_t guid; // host order
	int32_t node_type;
	int32_t transport;
};

// rv_devices stores up to max devices and the number found in *n.
int rv_devices(struct rv_device *d, int max, int *n);
int rv_open(const char *name, rv_h *ctx, int *async_fd);
int rv_close(rv_h ctx);

struct rv_device_attr {
	char fw_ver[64];
	uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
	uint32_t vendor_id, vendor_part_id, hw_ver, device_cap_flags;
	int32_t max_qp, max_qp_wr, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
	int32_t max_qp_rd_atom, max_qp_init_rd_atom, max_res_rd_atom, atomic_cap;
	int32_t max_mw, max_ah, max_srq, max_srq_wr, max_srq_sge, max_mcast_grp;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay, phys_port_cnt;
};
int rv_query_device(rv_h ctx, struct rv_device_attr *a);

struct rv_port_attr {
	int32_t state, max_mtu, active_mtu, gid_tbl_len;
	uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
	uint16_t pkey_tbl_len, lid, sm_lid;
	uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, active_width, active_speed, phys_state, link_layer;
};
int rv_query_port(rv_h ctx, uint8_t port, struct rv_port_attr *a);

struct rv_gid_entry {
	uint8_t gid[16];
	uint32_t index, port, type, ifindex;
};
// rv_query_gid_table is ENOSYS where the library or the kernel cannot.
int rv_query_gid_table(rv_h ctx, struct rv_gid_entry *e, int max, int *n);
int rv_query_gid(rv_h ctx, uint8_t port, int index, uint8_t gid[16]);
int rv_query_pkey(rv_h ctx, uint8_t port, int index, uint16_t *pkey);

struct rv_async_event {
	int32_t type;
	uint32_t qpn; // of queue-pair events
	uint32_t port; // of port events
	uint64_t id; // of completion- and shared-receive-queue events
};
// rv_get_async_event takes one event and acknowledges it.
int rv_get_async_event(rv_h ctx, struct rv_async_event *e);

int rv_alloc_pd(rv_h ctx, rv_h *pd);
int rv_dealloc_pd(rv_h pd);

int rv_reg_mr(rv_h pd, uintptr_t addr, size_t len, uint64_t iova, unsigned access, rv_h *mr, uint32_t *lkey, uint32_t *rkey);
int rv_dereg_mr(rv_h mr);

int rv_create_channel(rv_h ctx, rv_h *ch, int *fd);
int rv_destroy_channel(rv_h ch);
// rv_get_cq_event takes one event and acknowledges it.
int rv_get_cq_event(rv_h ch, uint64_t *id);

int rv_create_cq(rv_h ctx, int cqe, uint64_t id, rv_h ch, int vector, rv_h *cq, int *got);
int rv_resize_cq(rv_h cq, int cqe, int *got);
int rv_destroy_cq(rv_h cq);
int rv_req_notify_cq(rv_h cq, int solicited_only);

// struct rv_wc has the layout of struct ibv_wc.
struct rv_wc {
	uint64_t wr_id;
	int32_t status, opcode;
	uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};
int rv_poll_cq(rv_h cq, int n, struct rv_wc *wc);

struct rv_cap {
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};
int rv_create_qp(rv_h pd, rv_h send_cq, rv_h recv_cq, rv_h srq, int type, int sq_sig_all, struct rv_cap *cap, rv_h *qp, uint32_t *qpn);
int rv_destroy_qp(rv_h qp);

struct rv_ah_attr {
	uint8_t dgid[16];
	uint32_t flow_label;
	uint16_t dlid;
	uint8_t sgid_index, hop_limit, traffic_class, sl, src_path_bits, static_rate, is_global, port_num;
};
struct rv_qp_attr {
	int32_t qp_state, cur_qp_state, path_mtu, path_mig_state;
	uint32_t qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags;
	struct rv_cap cap;
	struct rv_ah_attr ah, alt_ah;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num;
	uint8_t timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout;
};
int rv_modify_qp(rv_h qp, const struct rv_qp_attr *a, int mask);
int rv_query_qp(rv_h qp, struct rv_qp_attr *a, int mask);

// The post functions return errno | index of the refused request << 32.
// wr is a chain of struct ibv_send_wr (ibv_recv_wr) that lies in one array.
uint64_t rv_post_send(rv_h qp, uintptr_t wr);
uint64_t rv_post_recv(rv_h qp, uintptr_t wr);
uint64_t rv_post_srq_recv(rv_h srq, uintptr_t wr);

int rv_create_srq(rv_h pd, uint64_t id, uint32_t *max_wr, uint32_t *max_sge, uint32_t limit, rv_h *srq);
int rv_modify_srq_limit(rv_h srq, uint32_t limit);
int rv_query_srq(rv_h srq, uint32_t *max_wr, uint32_t *max_sge, uint32_t *limit);
int rv_destroy_srq(rv_h srq);

int rv_create_ah(rv_h pd, const struct rv_ah_attr *a, rv_h *ah);
int rv_destroy_ah(rv_h ah);

int rv_alloc_mw(rv_h pd, int type, rv_h *mw, uint32_t *rkey);
int rv_dealloc_mw(rv_h mw);
int rv_bind_mw(rv_h qp, rv_h mw, uint64_t wr_id, unsigned send_flags, rv_h mr, uint64_t addr, uint64_t len, unsigned access, uint32_t *rkey);

// rv_calloc returns zeroed memory, 64-byte aligned, for rv_free.
uintptr_t rv_calloc(size_t size);
void rv_free(uintptr_t p);

// rv_nop crosses and does nothing, to measure a crossing.
uint64_t rv_nop(uintptr_t p);

#endif
