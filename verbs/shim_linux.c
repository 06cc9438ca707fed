//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

// Forwards the calls of package verbs to libibverbs, which is opened at run
// time. See shim_linux.h for the contract.
#include "shim_linux.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<infiniband/verbs.h>) && !defined(RV_NO_HEADERS)
#define RV_HAVE_HEADERS 1
#endif
#endif

#ifdef RV_HAVE_HEADERS

#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>

// The header makes macros of these; the functions of the library are meant.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port
#undef ibv_get_device_list

// The Go side writes these structures itself (post.go) or reads them (wc.go).
#define AT(type, field, off) _Static_assert(offsetof(struct type, field) == off, #type "." #field)
_Static_assert(sizeof(struct ibv_sge) == 16, "ibv_sge");
AT(ibv_sge, addr, 0);
AT(ibv_sge, length, 8);
AT(ibv_sge, lkey, 12);
_Static_assert(sizeof(struct ibv_send_wr) == 128, "ibv_send_wr");
AT(ibv_send_wr, wr_id, 0);
AT(ibv_send_wr, next, 8);
AT(ibv_send_wr, sg_list, 16);
AT(ibv_send_wr, num_sge, 24);
AT(ibv_send_wr, opcode, 28);
AT(ibv_send_wr, send_flags, 32);
AT(ibv_send_wr, imm_data, 36);
AT(ibv_send_wr, invalidate_rkey, 36);
AT(ibv_send_wr, wr.rdma.remote_addr, 40);
AT(ibv_send_wr, wr.rdma.rkey, 48);
AT(ibv_send_wr, wr.atomic.remote_addr, 40);
AT(ibv_send_wr, wr.atomic.compare_add, 48);
AT(ibv_send_wr, wr.atomic.swap, 56);
AT(ibv_send_wr, wr.atomic.rkey, 64);
AT(ibv_send_wr, wr.ud.ah, 40);
AT(ibv_send_wr, wr.ud.remote_qpn, 48);
AT(ibv_send_wr, wr.ud.remote_qkey, 52);
AT(ibv_send_wr, bind_mw.mw, 80);
AT(ibv_send_wr, bind_mw.rkey, 88);
AT(ibv_send_wr, bind_mw.bind_info.mr, 96);
AT(ibv_send_wr, bind_mw.bind_info.addr, 104);
AT(ibv_send_wr, bind_mw.bind_info.length, 112);
AT(ibv_send_wr, bind_mw.bind_info.mw_access_flags, 120);
_Static_assert(sizeof(struct ibv_recv_wr) == 32, "ibv_recv_wr");
AT(ibv_recv_wr, next, 8);
AT(ibv_recv_wr, sg_list, 16);
AT(ibv_recv_wr, num_sge, 24);
_Static_assert(sizeof(struct ibv_wc) == 48, "ibv_wc");
_Static_assert(sizeof(struct rv_wc) == 48, "rv_wc");
AT(ibv_wc, status, 8);
AT(ibv_wc, opcode, 12);
AT(ibv_wc, vendor_err, 16);
AT(ibv_wc, byte_len, 20);
AT(ibv_wc, imm_data, 24);
AT(ibv_wc, qp_num, 28);
AT(ibv_wc, src_qp, 32);
AT(ibv_wc, wc_flags, 36);
AT(ibv_wc, pkey_index, 40);
AT(ibv_wc, slid, 42);
AT(ibv_wc, sl, 44);
AT(ibv_wc, dlid_path_bits, 45);

// The numbers of enums.go.
#define IS(name, value) _Static_assert((name) == (value), #name)
IS(IBV_WR_RDMA_WRITE, 0);
IS(IBV_WR_RDMA_WRITE_WITH_IMM, 1);
IS(IBV_WR_SEND, 2);
IS(IBV_WR_SEND_WITH_IMM, 3);
IS(IBV_WR_RDMA_READ, 4);
IS(IBV_WR_ATOMIC_CMP_AND_SWP, 5);
IS(IBV_WR_ATOMIC_FETCH_AND_ADD, 6);
IS(IBV_WR_LOCAL_INV, 7);
IS(IBV_WR_BIND_MW, 8);
IS(IBV_WR_SEND_WITH_INV, 9);
IS(IBV_SEND_FENCE, 1);
IS(IBV_SEND_SIGNALED, 2);
IS(IBV_SEND_SOLICITED, 4);
IS(IBV_SEND_INLINE, 8);
IS(IBV_WC_WR_FLUSH_ERR, 5);
IS(IBV_WC_REM_ACCESS_ERR, 10);
IS(IBV_WC_RNR_RETRY_EXC_ERR, 13);
IS(IBV_WC_GENERAL_ERR, 21);
IS(IBV_WC_TSO, 7);
IS(IBV_WC_RECV, 128);
IS(IBV_WC_RECV_RDMA_WITH_IMM, 129);
IS(IBV_WC_WITH_IMM, 2);
IS(IBV_WC_WITH_INV, 8);
IS(IBV_QPT_RC, 2);
IS(IBV_QPT_UC, 3);
IS(IBV_QPT_UD, 4);
IS(IBV_QPS_RTS, 3);
IS(IBV_QPS_ERR, 6);
IS(IBV_MTU_256, 1);
IS(IBV_MTU_4096, 5);
IS(IBV_ACCESS_LOCAL_WRITE, 1);
IS(IBV_ACCESS_REMOTE_WRITE, 2);
IS(IBV_ACCESS_REMOTE_READ, 4);
IS(IBV_ACCESS_REMOTE_ATOMIC, 8);
IS(IBV_ACCESS_MW_BIND, 16);
IS(IBV_ACCESS_ZERO_BASED, 32);
IS(IBV_ACCESS_ON_DEMAND, 64);
IS(IBV_ACCESS_HUGETLB, 128);
IS(IBV_ACCESS_RELAXED_ORDERING, 1 << 20);
IS(IBV_EVENT_CQ_ERR, 0);
IS(IBV_EVENT_COMM_EST, 4);
IS(IBV_EVENT_PORT_ACTIVE, 9);
IS(IBV_EVENT_SRQ_LIMIT_REACHED, 15);
IS(IBV_EVENT_WQ_FATAL, 19);
IS(IBV_QP_STATE, 1);
IS(IBV_QP_AV, 1 << 7);
IS(IBV_QP_MIN_RNR_TIMER, 1 << 15);
IS(IBV_QP_DEST_QPN, 1 << 20);
IS(IBV_PORT_ACTIVE, 4);
IS(IBV_LINK_LAYER_ETHERNET, 2);
IS(IBV_GID_TYPE_ROCE_V2, 2);
IS(IBV_MW_TYPE_1, 1);
IS(IBV_MW_TYPE_2, 2);
IS(IBV_NODE_RNIC, 4);
IS(IBV_TRANSPORT_IWARP, 1);

// Required functions: without any of them the library is of no use.
#define REQUIRED(X) \
	X(struct ibv_device **, ibv_get_device_list, (int *)) \
	X(void, ibv_free_device_list, (struct ibv_device **)) \
	X(const char *, ibv_get_device_name, (struct ibv_device *)) \
	X(__be64, ibv_get_device_guid, (struct ibv_device *)) \
	X(struct ibv_context *, ibv_open_device, (struct ibv_device *)) \
	X(int, ibv_close_device, (struct ibv_context *)) \
	X(int, ibv_get_async_event, (struct ibv_context *, struct ibv_async_event *)) \
	X(void, ibv_ack_async_event, (struct ibv_async_event *)) \
	X(int, ibv_query_device, (struct ibv_context *, struct ibv_device_attr *)) \
	X(int, ibv_query_port, (struct ibv_context *, uint8_t, struct ibv_port_attr *)) \
	X(int, ibv_query_gid, (struct ibv_context *, uint8_t, int, union ibv_gid *)) \
	X(int, ibv_query_pkey, (struct ibv_context *, uint8_t, int, __be16 *)) \
	X(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *)) \
	X(int, ibv_dealloc_pd, (struct ibv_pd *)) \
	X(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd *, void *, size_t, int)) \
	X(int, ibv_dereg_mr, (struct ibv_mr *)) \
	X(struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context *)) \
	X(int, ibv_destroy_comp_channel, (struct ibv_comp_channel *)) \
	X(struct ibv_cq *, ibv_create_cq, (struct ibv_context *, int, void *, struct ibv_comp_channel *, int)) \
	X(int, ibv_resize_cq, (struct ibv_cq *, int)) \
	X(int, ibv_destroy_cq, (struct ibv_cq *)) \
	X(int, ibv_get_cq_event, (struct ibv_comp_channel *, struct ibv_cq **, void **)) \
	X(void, ibv_ack_cq_events, (struct ibv_cq *, unsigned int)) \
	X(struct ibv_qp *, ibv_create_qp, (struct ibv_pd *, struct ibv_qp_init_attr *)) \
	X(int, ibv_modify_qp, (struct ibv_qp *, struct ibv_qp_attr *, int)) \
	X(int, ibv_query_qp, (struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *)) \
	X(int, ibv_destroy_qp, (struct ibv_qp *)) \
	X(struct ibv_srq *, ibv_create_srq, (struct ibv_pd *, struct ibv_srq_init_attr *)) \
	X(int, ibv_modify_srq, (struct ibv_srq *, struct ibv_srq_attr *, int)) \
	X(int, ibv_query_srq, (struct ibv_srq *, struct ibv_srq_attr *)) \
	X(int, ibv_destroy_srq, (struct ibv_srq *)) \
	X(struct ibv_ah *, ibv_create_ah, (struct ibv_pd *, struct ibv_ah_attr *)) \
	X(int, ibv_destroy_ah, (struct ibv_ah *))

// Optional functions came later than the first release of the library.
#define OPTIONAL(X) \
	X(struct ibv_mr *, ibv_reg_mr_iova2, (struct ibv_pd *, void *, size_t, uint64_t, unsigned int)) \
	X(struct ibv_mr *, ibv_reg_mr_iova, (struct ibv_pd *, void *, size_t, uint64_t, int)) \
	X(ssize_t, _ibv_query_gid_table, (struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t, size_t))

#define FIELD(ret, name, args) ret(*name) args;
static struct {
	REQUIRED(FIELD)
	OPTIONAL(FIELD)
} lib;

int rv_load(char *text, size_t size)
{
	const char *file = "libibverbs.so.1";
	void *h = dlopen(file, RTLD_NOW);
	if (!h) {
		snprintf(text, size, "%s", dlerror());
		return 2;
	}
#define LOAD(ret, name, args) *(void **)&lib.name = dlsym(h, #name);
#define CHECK(ret, name, args) \
	if (!lib.name) { \
		snprintf(text, size, "%s: no function %s", file, #name); \
		return 2; \
	}
	REQUIRED(LOAD)
	OPTIONAL(LOAD)
	REQUIRED(CHECK)
	snprintf(text, size, "%s", file);
	return 0; // never closed: providers keep threads and state in it
}

#define CTX(h) ((struct ibv_context *)(h))
#define PD(h) ((struct ibv_pd *)(h))
#define CQ(h) ((struct ibv_cq *)(h))
#define QP(h) ((struct ibv_qp *)(h))
#define SRQ(h) ((struct ibv_srq *)(h))
#define MW(h) ((struct ibv_mw *)(h))
#define MR(h) ((struct ibv_mr *)(h))
#define CH(h) ((struct ibv_comp_channel *)(h))

// fail is the errno of a function that returned NULL, never 0.
static int fail(void) { return errno ? errno : EIO; }

// rcode is what a function that returns an int means: 0, -1 with errno, or an
// errno, positive or (some providers) negative.
static int rcode(int rc)
{
	if (rc == -1)
		return fail();
	return rc < 0 ? -rc : rc;
}

#define MAKE(var, handle, call) \
	errno = 0; \
	handle = (call); \
	if (!handle) \
		return fail(); \
	*var = (rv_h)handle

static int nonblock(int fd)
{
	int fl = fcntl(fd, F_GETFL);
	if (fl < 0 || fcntl(fd, F_SETFL, fl | O_NONBLOCK) < 0)
		return fail();
	return 0;
}

static uint64_t be64(uint64_t be)
{
	uint8_t b[8];
	uint64_t v = 0;
	memcpy(b, &be, 8);
	for (int j = 0; j < 8; j++)
		v = v << 8 | b[j];
	return v;
}

int rv_devices(struct rv_device *d, int max, int *n)
{
	int k = 0;
	errno = 0;
	struct ibv_device **l = lib.ibv_get_device_list(&k);
	if (!l)
		return fail();
	for (int i = 0; i < k && i < max; i++) {
		snprintf(d[i].name, sizeof d[i].name, "%s", lib.ibv_get_device_name(l[i]));
		snprintf(d[i].dev_path, sizeof d[i].dev_path, "%s", l[i]->dev_path);
		d[i].guid = be64(lib.ibv_get_device_guid(l[i]));
		d[i].node_type = l[i]->node_type;
		d[i].transport = l[i]->transport_type;
	}
	*n = k;
	lib.ibv_free_device_list(l);
	return 0;
}

int rv_open(const char *name, rv_h *ctx, int *async_fd)
{
	int k = 0, rc = ENODEV;
	errno = 0;
	struct ibv_device **l = lib.ibv_get_device_list(&k);
	if (!l)
		return fail();
	for (int i = 0; i < k; i++) {
		if (strcmp(name, lib.ibv_get_device_name(l[i])))
			continue;
		errno = 0;
		struct ibv_context *c = lib.ibv_open_device(l[i]);
		rc = c ? nonblock(c->async_fd) : fail();
		if (c && rc)
			lib.ibv_close_device(c);
		if (!rc) {
			*ctx = (rv_h)c;
			*async_fd = c->async_fd;
		}
		break;
	}
	lib.ibv_free_device_list(l);
	return rc;
}

int rv_close(rv_h ctx) { return rcode(lib.ibv_close_device(CTX(ctx))); }

int rv_query_device(rv_h ctx, struct rv_device_attr *o)
{
	struct ibv_device_attr a;
	memset(&a, 0, sizeof a);
	int rc = rcode(lib.ibv_query_device(CTX(ctx), &a));
	if (rc)
		return rc;
	memset(o, 0, sizeof *o);
	memcpy(o->fw_ver, a.fw_ver, sizeof o->fw_ver);
	o->fw_ver[sizeof o->fw_ver - 1] = 0;
	o->node_guid = be64(a.node_guid);
	o->sys_image_guid = be64(a.sys_image_guid);
#define CP(f) o->f = a.f
	CP(max_mr_size); CP(page_size_cap); CP(vendor_id); CP(vendor_part_id); CP(hw_ver); CP(device_cap_flags);
	CP(max_qp); CP(max_qp_wr); CP(max_sge); CP(max_sge_rd); CP(max_cq); CP(max_cqe); CP(max_mr); CP(max_pd);
	CP(max_qp_rd_atom); CP(max_qp_init_rd_atom); CP(max_res_rd_atom); CP(atomic_cap);
	CP(max_mw); CP(max_ah); CP(max_srq); CP(max_srq_wr); CP(max_srq_sge); CP(max_mcast_grp);
	CP(max_pkeys); CP(local_ca_ack_delay); CP(phys_port_cnt);
	return 0;
}

int rv_query_port(rv_h ctx, uint8_t port, struct rv_port_attr *o)
{
	struct ibv_port_attr a;
	memset(&a, 0, sizeof a); // the library's function fills the oldest part only
	int rc = rcode(lib.ibv_query_port(CTX(ctx), port, &a));
	if (rc)
		return rc;
	memset(o, 0, sizeof *o);
	CP(state); CP(max_mtu); CP(active_mtu); CP(gid_tbl_len); CP(port_cap_flags); CP(max_msg_sz);
	CP(bad_pkey_cntr); CP(qkey_viol_cntr); CP(pkey_tbl_len); CP(lid); CP(sm_lid); CP(lmc); CP(max_vl_num);
	CP(sm_sl); CP(subnet_timeout); CP(active_width); CP(active_speed); CP(phys_state); CP(link_layer);
	return 0;
}

int rv_query_gid_table(rv_h ctx, struct rv_gid_entry *e, int max, int *n)
{
	if (!lib._ibv_query_gid_table)
		return ENOSYS;
	struct ibv_gid_entry *t = calloc(max, sizeof *t);
	if (!t)
		return ENOMEM;
	ssize_t k = lib._ibv_query_gid_table(CTX(ctx), t, max, 0, sizeof *t);
	if (k < 0) {
		free(t);
		return k == -1 ? fail() : (int)-k;
	}
	for (ssize_t i = 0; i < k; i++) {
		memcpy(e[i].gid, t[i].gid.raw, 16);
		e[i].index = t[i].gid_index;
		e[i].port = t[i].port_num;
		e[i].type = t[i].gid_type;
		e[i].ifindex = t[i].ndev_ifindex;
	}
	*n = (int)k;
	free(t);
	return 0;
}

int rv_query_gid(rv_h ctx, uint8_t port, int index, uint8_t gid[16])
{
	union ibv_gid g;
	errno = 0;
	int rc = rcode(lib.ibv_query_gid(CTX(ctx), port, index, &g));
	if (!rc)
		memcpy(gid, g.raw, 16);
	return rc;
}

int rv_query_pkey(rv_h ctx, uint8_t port, int index, uint16_t *pkey)
{
	__be16 k;
	errno = 0;
	int rc = rcode(lib.ibv_query_pkey(CTX(ctx), port, index, &k));
	if (!rc) {
		uint8_t b[2];
		memcpy(b, &k, 2);
		*pkey = b[0] << 8 | b[1];
	}
	return rc;
}

int rv_get_async_event(rv_h ctx, struct rv_async_event *o)
{
	struct ibv_async_event e;
	errno = 0;
	if (lib.ibv_get_async_event(CTX(ctx), &e))
		return fail();
	memset(o, 0, sizeof *o);
	o->type = e.event_type;
	switch (e.event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		// Until the acknowledgement below the object cannot be destroyed.
		o->qpn = e.element.qp->qp_num;
		break;
	case IBV_EVENT_CQ_ERR:
		o->id = (uintptr_t)e.element.cq->cq_context;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		o->id = (uintptr_t)e.element.srq->srq_context;
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		o->port = e.element.port_num;
		break;
	default:
		break;
	}
	lib.ibv_ack_async_event(&e);
	return 0;
}

int rv_alloc_pd(rv_h ctx, rv_h *pd)
{
	struct ibv_pd *p;
	MAKE(pd, p, lib.ibv_alloc_pd(CTX(ctx)));
	return 0;
}

int rv_dealloc_pd(rv_h pd) { return rcode(lib.ibv_dealloc_pd(PD(pd))); }

int rv_reg_mr(rv_h pd, uintptr_t addr, size_t len, uint64_t iova, unsigned access, rv_h *mr, uint32_t *lkey, uint32_t *rkey)
{
	struct ibv_mr *m;
	if (lib.ibv_reg_mr_iova2 && access >= 1 << 20) { // optional rights: dropped by old kernels, not refused
		MAKE(mr, m, lib.ibv_reg_mr_iova2(PD(pd), (void *)addr, len, iova, access));
	} else if (iova == addr) {
		MAKE(mr, m, lib.ibv_reg_mr(PD(pd), (void *)addr, len, (int)(access & 0xfffff)));
	} else if (lib.ibv_reg_mr_iova) {
		MAKE(mr, m, lib.ibv_reg_mr_iova(PD(pd), (void *)addr, len, iova, (int)(access & 0xfffff)));
	} else {
		return ENOSYS;
	}
	*lkey = m->lkey;
	*rkey = m->rkey;
	return 0;
}

int rv_dereg_mr(rv_h mr) { return rcode(lib.ibv_dereg_mr(MR(mr))); }

int rv_create_channel(rv_h ctx, rv_h *ch, int *fd)
{
	struct ibv_comp_channel *c;
	MAKE(ch, c, lib.ibv_create_comp_channel(CTX(ctx)));
	int rc = nonblock(c->fd);
	if (rc)
		lib.ibv_destroy_comp_channel(c);
	else
		*fd = c->fd;
	return rc;
}

int rv_destroy_channel(rv_h ch) { return rcode(lib.ibv_destroy_comp_channel(CH(ch))); }

int rv_get_cq_event(rv_h ch, uint64_t *id)
{
	struct ibv_cq *q;
	void *x;
	errno = 0;
	if (lib.ibv_get_cq_event(CH(ch), &q, &x))
		return fail();
	*id = (uintptr_t)x;
	lib.ibv_ack_cq_events(q, 1);
	return 0;
}

int rv_create_cq(rv_h ctx, int cqe, uint64_t id, rv_h ch, int vector, rv_h *cq, int *got)
{
	struct ibv_cq *q;
	MAKE(cq, q, lib.ibv_create_cq(CTX(ctx), cqe, (void *)(uintptr_t)id, CH(ch), vector));
	*got = q->cqe;
	return 0;
}

int rv_resize_cq(rv_h cq, int cqe, int *got)
{
	int rc = rcode(lib.ibv_resize_cq(CQ(cq), cqe));
	*got = CQ(cq)->cqe;
	return rc;
}

int rv_destroy_cq(rv_h cq) { return rcode(lib.ibv_destroy_cq(CQ(cq))); }

int rv_req_notify_cq(rv_h cq, int solicited_only) { return rcode(ibv_req_notify_cq(CQ(cq), solicited_only)); }

int rv_poll_cq(rv_h cq, int n, struct rv_wc *wc) { return ibv_poll_cq(CQ(cq), n, (struct ibv_wc *)wc); }

static void cap_in(struct ibv_qp_cap *o, const struct rv_cap *i)
{
	o->max_send_wr = i->max_send_wr;
	o->max_recv_wr = i->max_recv_wr;
	o->max_send_sge = i->max_send_sge;
	o->max_recv_sge = i->max_recv_sge;
	o->max_inline_data = i->max_inline_data;
}

static void cap_out(struct rv_cap *o, const struct ibv_qp_cap *i)
{
	o->max_send_wr = i->max_send_wr;
	o->max_recv_wr = i->max_recv_wr;
	o->max_send_sge = i->max_send_sge;
	o->max_recv_sge = i->max_recv_sge;
	o->max_inline_data = i->max_inline_data;
}

int rv_create_qp(rv_h pd, rv_h send_cq, rv_h recv_cq, rv_h srq, int type, int sq_sig_all, struct rv_cap *cap, rv_h *qp, uint32_t *qpn)
{
	struct ibv_qp_init_attr a;
	struct ibv_qp *q;
	memset(&a, 0, sizeof a);
	a.send_cq = CQ(send_cq);
	a.recv_cq = CQ(recv_cq);
	a.srq = SRQ(srq);
	a.qp_type = type;
	a.sq_sig_all = sq_sig_all;
	cap_in(&a.cap, cap);
	MAKE(qp, q, lib.ibv_create_qp(PD(pd), &a));
	cap_out(cap, &a.cap);
	*qpn = q->qp_num;
	return 0;
}

int rv_destroy_qp(rv_h qp) { return rcode(lib.ibv_destroy_qp(QP(qp))); }

static void ah_in(struct ibv_ah_attr *o, const struct rv_ah_attr *i)
{
	memset(o, 0, sizeof *o);
	memcpy(o->grh.dgid.raw, i->dgid, 16);
	o->grh.flow_label = i->flow_label;
	o->grh.sgid_index = i->sgid_index;
	o->grh.hop_limit = i->hop_limit;
	o->grh.traffic_class = i->traffic_class;
	o->dlid = i->dlid;
	o->sl = i->sl;
	o->src_path_bits = i->src_path_bits;
	o->static_rate = i->static_rate;
	o->is_global = i->is_global;
	o->port_num = i->port_num;
}

static void ah_out(struct rv_ah_attr *o, const struct ibv_ah_attr *i)
{
	memcpy(o->dgid, i->grh.dgid.raw, 16);
	o->flow_label = i->grh.flow_label;
	o->sgid_index = i->grh.sgid_index;
	o->hop_limit = i->grh.hop_limit;
	o->traffic_class = i->grh.traffic_class;
	o->dlid = i->dlid;
	o->sl = i->sl;
	o->src_path_bits = i->src_path_bits;
	o->static_rate = i->static_rate;
	o->is_global = i->is_global;
	o->port_num = i->port_num;
}

#define QP_FIELDS(X) \
	X(qp_state) X(cur_qp_state) X(path_mtu) X(path_mig_state) X(qkey) X(rq_psn) X(sq_psn) X(dest_qp_num) \
	X(qp_access_flags) X(pkey_index) X(alt_pkey_index) X(en_sqd_async_notify) X(sq_draining) X(max_rd_atomic) \
	X(max_dest_rd_atomic) X(min_rnr_timer) X(port_num) X(timeout) X(retry_cnt) X(rnr_retry) X(alt_port_num) X(alt_timeout)

int rv_modify_qp(rv_h qp, const struct rv_qp_attr *i, int mask)
{
	struct ibv_qp_attr a;
	memset(&a, 0, sizeof a);
#define IN(f) a.f = i->f;
	QP_FIELDS(IN)
	cap_in(&a.cap, &i->cap);
	ah_in(&a.ah_attr, &i->ah);
	ah_in(&a.alt_ah_attr, &i->alt_ah);
	return rcode(lib.ibv_modify_qp(QP(qp), &a, mask));
}

int rv_query_qp(rv_h qp, struct rv_qp_attr *o, int mask)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr ia;
	memset(&a, 0, sizeof a);
	memset(&ia, 0, sizeof ia);
	int rc = rcode(lib.ibv_query_qp(QP(qp), &a, mask, &ia));
	if (rc)
		return rc;
#define OUT(f) o->f = a.f;
	QP_FIELDS(OUT)
	cap_out(&o->cap, &ia.cap);
	ah_out(&o->ah, &a.ah_attr);
	ah_out(&o->alt_ah, &a.alt_ah_attr);
	return 0;
}

uint64_t rv_post_send(rv_h qp, uintptr_t wr)
{
	struct ibv_send_wr *first = (struct ibv_send_wr *)wr, *bad = first;
	int rc = ibv_post_send(QP(qp), first, &bad);
	if (!rc)
		return 0;
	return (uint64_t)(bad ? bad - first : 0) << 32 | (uint32_t)rcode(rc);
}

uint64_t rv_post_recv(rv_h qp, uintptr_t wr)
{
	struct ibv_recv_wr *first = (struct ibv_recv_wr *)wr, *bad = first;
	int rc = ibv_post_recv(QP(qp), first, &bad);
	if (!rc)
		return 0;
	return (uint64_t)(bad ? bad - first : 0) << 32 | (uint32_t)rcode(rc);
}

uint64_t rv_post_srq_recv(rv_h srq, uintptr_t wr)
{
	struct ibv_recv_wr *first = (struct ibv_recv_wr *)wr, *bad = first;
	int rc = ibv_post_srq_recv(SRQ(srq), first, &bad);
	if (!rc)
		return 0;
	return (uint64_t)(bad ? bad - first : 0) << 32 | (uint32_t)rcode(rc);
}

int rv_create_srq(rv_h pd, uint64_t id, uint32_t *max_wr, uint32_t *max_sge, uint32_t limit, rv_h *srq)
{
	struct ibv_srq_init_attr a;
	struct ibv_srq *s;
	memset(&a, 0, sizeof a);
	a.srq_context = (void *)(uintptr_t)id;
	a.attr.max_wr = *max_wr;
	a.attr.max_sge = *max_sge;
	a.attr.srq_limit = limit;
	MAKE(srq, s, lib.ibv_create_srq(PD(pd), &a));
	*max_wr = a.attr.max_wr;
	*max_sge = a.attr.max_sge;
	return 0;
}

int rv_modify_srq_limit(rv_h srq, uint32_t limit)
{
	struct ibv_srq_attr a;
	memset(&a, 0, sizeof a);
	a.srq_limit = limit;
	return rcode(lib.ibv_modify_srq(SRQ(srq), &a, IBV_SRQ_LIMIT));
}

int rv_query_srq(rv_h srq, uint32_t *max_wr, uint32_t *max_sge, uint32_t *limit)
{
	struct ibv_srq_attr a;
	memset(&a, 0, sizeof a);
	int rc = rcode(lib.ibv_query_srq(SRQ(srq), &a));
	*max_wr = a.max_wr;
	*max_sge = a.max_sge;
	*limit = a.srq_limit;
	return rc;
}

int rv_destroy_srq(rv_h srq) { return rcode(lib.ibv_destroy_srq(SRQ(srq))); }

int rv_create_ah(rv_h pd, const struct rv_ah_attr *i, rv_h *ah)
{
	struct ibv_ah_attr a;
	struct ibv_ah *h;
	ah_in(&a, i);
	MAKE(ah, h, lib.ibv_create_ah(PD(pd), &a));
	return 0;
}

int rv_destroy_ah(rv_h ah) { return rcode(lib.ibv_destroy_ah((struct ibv_ah *)ah)); }

int rv_alloc_mw(rv_h pd, int type, rv_h *mw, uint32_t *rkey)
{
	struct ibv_mw *m;
	if (!PD(pd)->context->ops.alloc_mw)
		return EOPNOTSUPP;
	MAKE(mw, m, ibv_alloc_mw(PD(pd), type));
	*rkey = m->rkey;
	return 0;
}

int rv_dealloc_mw(rv_h mw) { return rcode(ibv_dealloc_mw(MW(mw))); }

int rv_bind_mw(rv_h qp, rv_h mw, uint64_t wr_id, unsigned send_flags, rv_h mr, uint64_t addr, uint64_t len, unsigned access, uint32_t *rkey)
{
	struct ibv_mw_bind b;
	memset(&b, 0, sizeof b);
	b.wr_id = wr_id;
	b.send_flags = send_flags;
	b.bind_info.mr = MR(mr);
	b.bind_info.addr = addr;
	b.bind_info.length = len;
	b.bind_info.mw_access_flags = access;
	int rc = rcode(ibv_bind_mw(QP(qp), MW(mw), &b));
	*rkey = MW(mw)->rkey;
	return rc;
}

#endif // RV_HAVE_HEADERS
