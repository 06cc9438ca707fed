//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

// What needs no library, and, where there were no headers at build time, all
// functions of shim_linux.h, failing.
#include "shim_linux.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uintptr_t rv_calloc(size_t size)
{
	void *p = NULL;
	if (posix_memalign(&p, 64, size ? size : 1))
		return 0;
	memset(p, 0, size);
	return (uintptr_t)p;
}

void rv_free(uintptr_t p) { free((void *)p); }

uint64_t rv_nop(uintptr_t p) { return p; }

#if defined(__has_include)
#if __has_include(<infiniband/verbs.h>) && !defined(RV_NO_HEADERS)
#define RV_HAVE_HEADERS 1
#endif
#endif

#ifndef RV_HAVE_HEADERS

int rv_load(char *text, size_t size)
{
	snprintf(text, size, "infiniband/verbs.h was not found when this program was built");
	return 1;
}

#define NO(name, ...) \
	int name(__VA_ARGS__) { return ENOSYS; }
#define NO64(name, ...) \
	uint64_t name(__VA_ARGS__) { return ENOSYS; }
NO(rv_devices, struct rv_device *d, int max, int *n)
NO(rv_open, const char *name, rv_h *ctx, int *async_fd)
NO(rv_close, rv_h ctx)
NO(rv_query_device, rv_h ctx, struct rv_device_attr *a)
NO(rv_query_port, rv_h ctx, uint8_t port, struct rv_port_attr *a)
NO(rv_query_gid_table, rv_h ctx, struct rv_gid_entry *e, int max, int *n)
NO(rv_query_gid, rv_h ctx, uint8_t port, int index, uint8_t gid[16])
NO(rv_query_pkey, rv_h ctx, uint8_t port, int index, uint16_t *pkey)
NO(rv_get_async_event, rv_h ctx, struct rv_async_event *e)
NO(rv_alloc_pd, rv_h ctx, rv_h *pd)
NO(rv_dealloc_pd, rv_h pd)
NO(rv_reg_mr, rv_h pd, uintptr_t addr, size_t len, uint64_t iova, unsigned access, rv_h *mr, uint32_t *lkey, uint32_t *rkey)
NO(rv_dereg_mr, rv_h mr)
NO(rv_create_channel, rv_h ctx, rv_h *ch, int *fd)
NO(rv_destroy_channel, rv_h ch)
NO(rv_get_cq_event, rv_h ch, uint64_t *id)
NO(rv_create_cq, rv_h ctx, int cqe, uint64_t id, rv_h ch, int vector, rv_h *cq, int *got)
NO(rv_resize_cq, rv_h cq, int cqe, int *got)
NO(rv_destroy_cq, rv_h cq)
NO(rv_req_notify_cq, rv_h cq, int solicited_only)
int rv_poll_cq(rv_h cq, int n, struct rv_wc *wc) { return -ENOSYS; }
NO(rv_create_qp, rv_h pd, rv_h send_cq, rv_h recv_cq, rv_h srq, int type, int sq_sig_all, struct rv_cap *cap, rv_h *qp, uint32_t *qpn)
NO(rv_destroy_qp, rv_h qp)
NO(rv_modify_qp, rv_h qp, const struct rv_qp_attr *a, int mask)
NO(rv_query_qp, rv_h qp, struct rv_qp_attr *a, int mask)
NO64(rv_post_send, rv_h qp, uintptr_t wr)
NO64(rv_post_recv, rv_h qp, uintptr_t wr)
NO64(rv_post_srq_recv, rv_h srq, uintptr_t wr)
NO(rv_create_srq, rv_h pd, uint64_t id, uint32_t *max_wr, uint32_t *max_sge, uint32_t limit, rv_h *srq)
NO(rv_modify_srq_limit, rv_h srq, uint32_t limit)
NO(rv_query_srq, rv_h srq, uint32_t *max_wr, uint32_t *max_sge, uint32_t *limit)
NO(rv_destroy_srq, rv_h srq)
NO(rv_create_ah, rv_h pd, const struct rv_ah_attr *a, rv_h *ah)
NO(rv_destroy_ah, rv_h ah)
NO(rv_alloc_mw, rv_h pd, int type, rv_h *mw, uint32_t *rkey)
NO(rv_dealloc_mw, rv_h mw)
NO(rv_bind_mw, rv_h qp, rv_h mw, uint64_t wr_id, unsigned send_flags, rv_h mr, uint64_t addr, uint64_t len, unsigned access, uint32_t *rkey)

#endif // RV_HAVE_HEADERS
