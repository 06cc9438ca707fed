//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

// Forwards the calls of package verbs to libibverbs, which is opened at run
// time. See shim_linux.h for the contract.
#define _GNU_SOURCE // dlvsym, dlinfo
#include "shim_linux.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What the Go side writes itself (post.go) or reads (wc.go); TestLayouts has the
// same numbers.
#define AT(type, field, off) _Static_assert(offsetof(struct type, field) == off, #type "." #field)
_Static_assert(sizeof(struct abi_sge) == 16, "abi_sge");
AT(abi_sge, length, 8);
AT(abi_sge, lkey, 12);
_Static_assert(sizeof(struct abi_send_wr) == 128, "abi_send_wr");
AT(abi_send_wr, next, 8);
AT(abi_send_wr, sgl, 16);
AT(abi_send_wr, num_sge, 24);
AT(abi_send_wr, op, 28);
AT(abi_send_wr, flags, 32);
AT(abi_send_wr, imm_be, 36);
AT(abi_send_wr, invalidate, 36);
AT(abi_send_wr, remote, 40);
AT(abi_send_wr, rkey, 48);
AT(abi_send_wr, atomic_remote, 40);
AT(abi_send_wr, compare_add, 48);
AT(abi_send_wr, swap, 56);
AT(abi_send_wr, atomic_rkey, 64);
AT(abi_send_wr, ah, 40);
AT(abi_send_wr, qpn, 48);
AT(abi_send_wr, qkey, 52);
AT(abi_send_wr, mw, 80);
AT(abi_send_wr, mw_rkey, 88);
AT(abi_send_wr, mw_span.mr, 96);
AT(abi_send_wr, mw_span.addr, 104);
AT(abi_send_wr, mw_span.length, 112);
AT(abi_send_wr, mw_span.access, 120);
_Static_assert(sizeof(struct abi_recv_wr) == 32, "abi_recv_wr");
AT(abi_recv_wr, next, 8);
AT(abi_recv_wr, sgl, 16);
AT(abi_recv_wr, num_sge, 24);
_Static_assert(sizeof(struct abi_wc) == 48, "abi_wc");
AT(abi_wc, status, 8);
AT(abi_wc, op, 12);
AT(abi_wc, vendor_err, 16);
AT(abi_wc, length, 20);
AT(abi_wc, imm_be, 24);
AT(abi_wc, qpn, 28);
AT(abi_wc, src_qp, 32);
AT(abi_wc, flags, 36);
AT(abi_wc, pkey_index, 40);
AT(abi_wc, slid, 42);
AT(abi_wc, sl, 44);
AT(abi_wc, path_bits, 45);

#define FIELD(version, ret, name, args) ret(*name) args;
struct functions {
	ABI_REQUIRED(FIELD)
	ABI_OPTIONAL(FIELD)
};
static struct functions lib;

// sym is one version of a symbol, as a program linked with the library would get.
// musl knows one version of a symbol only, the newest.
static void *sym(void *h, const char *name, const char *version)
{
#ifdef __GLIBC__
	return dlvsym(h, name, version);
#else
	return dlsym(h, name);
#endif
}

#ifdef RMA_ZOO
#include "zoo_linux.h"
#endif

int rv_load(const char *file, struct rv_library *l)
{
	struct functions f;
	struct link_map *map;
	void *h = dlopen(file, RTLD_NOW);
	if (!h) {
		snprintf(l->text, sizeof l->text, "%s", dlerror());
		return 1;
	}
	snprintf(l->path, sizeof l->path, "%s", dlinfo(h, RTLD_DI_LINKMAP, &map) ? file : map->l_name);
#define LOAD(ver, ret, name, args) *(void **)&f.name = sym(h, #name, "IBVERBS_" #ver);
#define CHECK(ver, ret, name, args) \
	if (!f.name) { \
		l->symbol = #name; \
		l->version = "IBVERBS_" #ver; \
		dlclose(h); \
		return 2; \
	}
	ABI_REQUIRED(LOAD)
	ABI_OPTIONAL(LOAD)
	ABI_REQUIRED(CHECK)
#ifdef RMA_ZOO
	if (!zoo_install(&f, l->text, sizeof l->text))
		return 1;
#endif
	lib = f;
	return 0; // never closed: providers keep threads and state in it
}

#define CTX(h) ((struct abi_context *)(h))
#define PD(h) ((struct abi_pd *)(h))
#define CQ(h) ((struct abi_cq *)(h))
#define QP(h) ((struct abi_qp *)(h))
#define SRQ(h) ((struct abi_srq *)(h))
#define MW(h) ((struct abi_mw *)(h))
#define MR(h) ((struct abi_mr *)(h))
#define CH(h) ((struct abi_channel *)(h))

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

int rv_devices(struct rv_device *d, int max, int *n)
{
	int k = 0;
	errno = 0;
	struct abi_device **l = lib.ibv_get_device_list(&k);
	if (!l)
		return fail();
	for (int i = 0; i < k && i < max; i++) {
		snprintf(d[i].name, sizeof d[i].name, "%s", lib.ibv_get_device_name(l[i]));
		snprintf(d[i].path, sizeof d[i].path, "%s", l[i]->uverbs_path);
		d[i].guid_be = lib.ibv_get_device_guid(l[i]);
		d[i].node = l[i]->node;
		d[i].transport = l[i]->transport;
	}
	*n = k;
	lib.ibv_free_device_list(l);
	return 0;
}

int rv_open(const char *name, rv_h *ctx, int *async_fd)
{
	int k = 0, rc = ENODEV;
	errno = 0;
	struct abi_device **l = lib.ibv_get_device_list(&k);
	if (!l)
		return fail();
	for (int i = 0; i < k; i++) {
		if (strcmp(name, lib.ibv_get_device_name(l[i])))
			continue;
		errno = 0;
		struct abi_context *c = lib.ibv_open_device(l[i]);
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

int rv_query_device(rv_h ctx, struct abi_device_attr *a) { return rcode(lib.ibv_query_device(CTX(ctx), a)); }

int rv_query_port(rv_h ctx, uint8_t port, struct abi_port_attr *a)
{
	return rcode(lib.ibv_query_port(CTX(ctx), port, (struct abi_port_attr_1_1 *)a));
}

int rv_query_gid_table(rv_h ctx, struct abi_gid_entry *e, int max, int *n)
{
	if (!lib._ibv_query_gid_table)
		return ENOSYS;
	ssize_t k = lib._ibv_query_gid_table(CTX(ctx), e, max, 0, sizeof *e);
	if (k < 0)
		return k == -1 ? fail() : (int)-k;
	*n = (int)k;
	return 0;
}

int rv_query_gid(rv_h ctx, uint8_t port, int index, union abi_gid *gid)
{
	errno = 0;
	return rcode(lib.ibv_query_gid(CTX(ctx), port, index, gid));
}

int rv_query_pkey(rv_h ctx, uint8_t port, int index, uint16_t *pkey)
{
	uint16_t k;
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
	struct abi_async_event e;
	errno = 0;
	if (lib.ibv_get_async_event(CTX(ctx), &e))
		return fail();
	memset(o, 0, sizeof *o);
	o->type = e.kind;
	switch (e.kind) {
	case ABI_EVENT_QP_FATAL:
	case ABI_EVENT_QP_REQ_ERR:
	case ABI_EVENT_QP_ACCESS_ERR:
	case ABI_EVENT_COMM_EST:
	case ABI_EVENT_SQ_DRAINED:
	case ABI_EVENT_PATH_MIG:
	case ABI_EVENT_PATH_MIG_ERR:
	case ABI_EVENT_QP_LAST_WQE:
		// Until the acknowledgement below the object cannot be destroyed.
		o->qpn = e.qp->num;
		break;
	case ABI_EVENT_CQ_ERR:
		o->id = (uintptr_t)e.cq->id;
		break;
	case ABI_EVENT_SRQ_ERR:
	case ABI_EVENT_SRQ_LIMIT:
		o->id = (uintptr_t)e.srq->id;
		break;
	case ABI_EVENT_PORT_ACTIVE:
	case ABI_EVENT_PORT_ERR:
	case ABI_EVENT_LID_CHANGE:
	case ABI_EVENT_PKEY_CHANGE:
	case ABI_EVENT_SM_CHANGE:
	case ABI_EVENT_CLIENT_REREGISTER:
	case ABI_EVENT_GID_CHANGE:
		o->port = e.port;
		break;
	default:
		break;
	}
	lib.ibv_ack_async_event(&e);
	return 0;
}

int rv_alloc_pd(rv_h ctx, rv_h *pd)
{
	struct abi_pd *p;
	MAKE(pd, p, lib.ibv_alloc_pd(CTX(ctx)));
	return 0;
}

int rv_dealloc_pd(rv_h pd) { return rcode(lib.ibv_dealloc_pd(PD(pd))); }

int rv_reg_mr(rv_h pd, uintptr_t addr, size_t len, uint64_t iova, unsigned access, rv_h *mr, uint32_t *lkey, uint32_t *rkey)
{
	struct abi_mr *m;
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
	struct abi_channel *c;
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
	struct abi_cq *q;
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
	struct abi_cq *q;
	MAKE(cq, q, lib.ibv_create_cq(CTX(ctx), cqe, (void *)(uintptr_t)id, CH(ch), vector));
	*got = q->entries;
	return 0;
}

int rv_resize_cq(rv_h cq, int cqe, int *got)
{
	int rc = rcode(lib.ibv_resize_cq(CQ(cq), cqe));
	*got = CQ(cq)->entries;
	return rc;
}

int rv_destroy_cq(rv_h cq) { return rcode(lib.ibv_destroy_cq(CQ(cq))); }

int rv_req_notify_cq(rv_h cq, int solicited_only)
{
	return rcode(CQ(cq)->context->ops.req_notify_cq(CQ(cq), solicited_only));
}

int rv_poll_cq(rv_h cq, int n, struct abi_wc *wc) { return CQ(cq)->context->ops.poll_cq(CQ(cq), n, wc); }

int rv_create_qp(rv_h pd, rv_h send_cq, rv_h recv_cq, rv_h srq, uint32_t kind, int signal_all, struct abi_cap *cap, rv_h *qp, uint32_t *qpn)
{
	struct abi_qp_init a = {
		.send_cq = CQ(send_cq), .recv_cq = CQ(recv_cq), .srq = SRQ(srq), .kind = kind, .signal_all = signal_all, .cap = *cap,
	};
	struct abi_qp *q;
	MAKE(qp, q, lib.ibv_create_qp(PD(pd), &a));
	*cap = a.cap;
	*qpn = q->num;
	return 0;
}

int rv_destroy_qp(rv_h qp) { return rcode(lib.ibv_destroy_qp(QP(qp))); }

int rv_modify_qp(rv_h qp, struct abi_qp_attr *a, int mask) { return rcode(lib.ibv_modify_qp(QP(qp), a, mask)); }

int rv_query_qp(rv_h qp, struct abi_qp_attr *a, int mask)
{
	struct abi_qp_init made = {0};
	int rc = rcode(lib.ibv_query_qp(QP(qp), a, mask, &made));
	a->cap = made.cap;
	return rc;
}

// refused is what the post functions return.
static uint64_t refused(int rc, ptrdiff_t index) { return rc ? (uint64_t)index << 32 | (uint32_t)rcode(rc) : 0; }

uint64_t rv_post_send(rv_h qp, uintptr_t wr)
{
	struct abi_send_wr *first = (struct abi_send_wr *)wr, *bad = first;
	int rc = QP(qp)->context->ops.post_send(QP(qp), first, &bad);
	return refused(rc, bad ? bad - first : 0);
}

uint64_t rv_post_recv(rv_h qp, uintptr_t wr)
{
	struct abi_recv_wr *first = (struct abi_recv_wr *)wr, *bad = first;
	int rc = QP(qp)->context->ops.post_recv(QP(qp), first, &bad);
	return refused(rc, bad ? bad - first : 0);
}

uint64_t rv_post_srq_recv(rv_h srq, uintptr_t wr)
{
	struct abi_recv_wr *first = (struct abi_recv_wr *)wr, *bad = first;
	int rc = SRQ(srq)->context->ops.post_srq_recv(SRQ(srq), first, &bad);
	return refused(rc, bad ? bad - first : 0);
}

int rv_create_srq(rv_h pd, uint64_t id, struct abi_srq_attr *attr, rv_h *srq)
{
	struct abi_srq_init a = {.id = (void *)(uintptr_t)id, .attr = *attr};
	struct abi_srq *s;
	MAKE(srq, s, lib.ibv_create_srq(PD(pd), &a));
	*attr = a.attr;
	return 0;
}

int rv_modify_srq_limit(rv_h srq, uint32_t limit)
{
	struct abi_srq_attr a = {.limit = limit};
	return rcode(lib.ibv_modify_srq(SRQ(srq), &a, ABI_SRQ_LIMIT));
}

int rv_query_srq(rv_h srq, struct abi_srq_attr *a) { return rcode(lib.ibv_query_srq(SRQ(srq), a)); }

int rv_destroy_srq(rv_h srq) { return rcode(lib.ibv_destroy_srq(SRQ(srq))); }

int rv_create_ah(rv_h pd, struct abi_ah_attr *a, rv_h *ah)
{
	struct abi_ah *h;
	MAKE(ah, h, lib.ibv_create_ah(PD(pd), a));
	return 0;
}

int rv_destroy_ah(rv_h ah) { return rcode(lib.ibv_destroy_ah((struct abi_ah *)ah)); }

int rv_alloc_mw(rv_h pd, uint32_t kind, rv_h *mw, uint32_t *rkey)
{
	struct abi_mw *m;
	if (!PD(pd)->context->ops.alloc_mw)
		return EOPNOTSUPP;
	MAKE(mw, m, PD(pd)->context->ops.alloc_mw(PD(pd), kind));
	*rkey = m->rkey;
	return 0;
}

int rv_dealloc_mw(rv_h mw) { return rcode(MW(mw)->context->ops.dealloc_mw(MW(mw))); }

int rv_bind_mw(rv_h qp, rv_h mw, uint64_t wr_id, unsigned send_flags, rv_h mr, uint64_t addr, uint64_t len, unsigned access, uint32_t *rkey)
{
	struct abi_mw_bind b = {
		.id = wr_id, .flags = send_flags, .span = {.mr = MR(mr), .addr = addr, .length = len, .access = access},
	};
	int rc = EINVAL; // windows of type 2 are bound by a request
	if (MW(mw)->kind == ABI_MW_TYPE_1)
		rc = rcode(MW(mw)->context->ops.bind_mw(QP(qp), MW(mw), &b));
	*rkey = MW(mw)->rkey;
	return rc;
}

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
