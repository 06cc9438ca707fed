// The C side of package verbs: what Go may call.
//
// Handles are integers: they point to memory of libibverbs that Go neither
// looks at nor passes checks for. Functions that can fail return 0 or an errno.
#ifndef RMA_VERBS_SHIM_H
#define RMA_VERBS_SHIM_H

#include "abi_linux.h"

typedef uintptr_t rv_h;

struct rv_library {
	char path[ABI_PATH_SIZE]; // the file that was opened
	char text[512]; // why none was
	const char *symbol, *version; // the function it lacks
};
// rv_load opens the library. 0: done; 1: not found, text says why; 2: symbol is
// not in it. It has no effect unless it returns 0; call it once then.
int rv_load(const char *file, struct rv_library *l);

struct rv_device {
	char name[ABI_NAME_SIZE];
	char path[ABI_PATH_SIZE]; // of the uverbs device
	uint64_t guid_be;
	int32_t node;
	int32_t transport;
};

// rv_devices stores up to max devices and the number found in *n.
int rv_devices(struct rv_device *d, int max, int *n);
int rv_open(const char *name, rv_h *ctx, int *async_fd);
int rv_close(rv_h ctx);

int rv_query_device(rv_h ctx, struct abi_device_attr *a);
int rv_query_port(rv_h ctx, uint8_t port, struct abi_port_attr *a);
// rv_query_gid_table is ENOSYS where the library or the kernel cannot.
int rv_query_gid_table(rv_h ctx, struct abi_gid_entry *e, int max, int *n);
int rv_query_gid(rv_h ctx, uint8_t port, int index, union abi_gid *gid);
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

int rv_poll_cq(rv_h cq, int n, struct abi_wc *wc);

int rv_create_qp(rv_h pd, rv_h send_cq, rv_h recv_cq, rv_h srq, uint32_t kind, int signal_all, struct abi_cap *cap, rv_h *qp, uint32_t *qpn);
int rv_destroy_qp(rv_h qp);

int rv_modify_qp(rv_h qp, struct abi_qp_attr *a, int mask);
// rv_query_qp stores in a->cap what the queue pair was made with.
int rv_query_qp(rv_h qp, struct abi_qp_attr *a, int mask);

// The post functions return errno | index of the refused request << 32.
// wr is a chain of struct abi_send_wr (abi_recv_wr) that lies in one array.
uint64_t rv_post_send(rv_h qp, uintptr_t wr);
uint64_t rv_post_recv(rv_h qp, uintptr_t wr);
uint64_t rv_post_srq_recv(rv_h srq, uintptr_t wr);

int rv_create_srq(rv_h pd, uint64_t id, struct abi_srq_attr *a, rv_h *srq);
int rv_modify_srq_limit(rv_h srq, uint32_t limit);
int rv_query_srq(rv_h srq, struct abi_srq_attr *a);
int rv_destroy_srq(rv_h srq);

int rv_create_ah(rv_h pd, struct abi_ah_attr *a, rv_h *ah);
int rv_destroy_ah(rv_h ah);

int rv_alloc_mw(rv_h pd, uint32_t kind, rv_h *mw, uint32_t *rkey);
int rv_dealloc_mw(rv_h mw);
int rv_bind_mw(rv_h qp, rv_h mw, uint64_t wr_id, unsigned send_flags, rv_h mr, uint64_t addr, uint64_t len, unsigned access, uint32_t *rkey);

// rv_calloc returns zeroed memory, 64-byte aligned, for rv_free.
uintptr_t rv_calloc(size_t size);
void rv_free(uintptr_t p);

// rv_nop crosses and does nothing, to measure a crossing.
uint64_t rv_nop(uintptr_t p);

#endif
