// A device with the limits and habits of another one: only in builds with the tag rma_zoo,
// where shim_linux.c includes this file. zoo_install replaces functions of the library, and
// of the providers that it opens, by ones that refuse what such a device refuses.
//
// The variable RMA_ZOO lists the quirks, separated by commas; docs/zoo.md describes them.
#include <pthread.h>
#include <time.h>

#define ZOO_NUMBERS(X) \
	X(inline) X(sge) X(sge_read) X(reads) X(mtu) X(qp) X(mr) X(cqe) X(wr) X(slow_reg)
#define ZOO_SWITCHES(X) X(no_atomics) X(no_imm) X(no_srq) X(no_resize) X(shuffle) X(unsolicited)

#define ZOO_FIELD(name) long name##_;
static struct zoo_quirks {
	ZOO_NUMBERS(ZOO_FIELD) // -1: as the device
	ZOO_SWITCHES(ZOO_FIELD)
	long gid; // one of the following
} zoo;
enum { ZOO_GID_AS_IS, ZOO_GID_V6, ZOO_GID_V1_FIRST, ZOO_GID_V1_ONLY, ZOO_GID_VLAN, ZOO_GID_LOCAL_FIRST, ZOO_GID_DEAD };
static const char *const zoo_gids[] = {"", "v6", "v1-first", "v1-only", "vlan", "local-first", "dead"};

static struct functions real; // of the library
static struct abi_context_ops real_ops; // of the provider; of all devices alike
static pthread_mutex_t zoo_mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t zoo_late_mu = PTHREAD_MUTEX_INITIALIZER; // guards zoo_qp.late, first, n; taken within zoo_mu
static long zoo_qps, zoo_mrs;

// zoo_parse returns the quirk that it does not know, or NULL.
static const char *zoo_parse(char *list)
{
	char *save = NULL;
#define ZOO_UNSET(name) zoo.name##_ = -1;
	ZOO_NUMBERS(ZOO_UNSET)
	for (char *q = strtok_r(list, ",", &save); q; q = strtok_r(NULL, ",", &save)) {
		char *value = strchr(q, '=');
		size_t n = value ? (size_t)(value - q) : strlen(q);
		int known = 0;
#define ZOO_NUMBER(name) \
	if (value && n == strlen(#name) && !strncmp(q, #name, n)) \
		zoo.name##_ = atol(value + 1), known = 1;
#define ZOO_SWITCH(name) \
	if (!value && !strcmp(q, #name)) \
		zoo.name##_ = 1, known = 1;
		ZOO_NUMBERS(ZOO_NUMBER)
		ZOO_SWITCHES(ZOO_SWITCH)
		for (size_t i = 1; value && !strncmp(q, "gid=", 4) && i < sizeof zoo_gids / sizeof *zoo_gids; i++)
			if (!strcmp(value + 1, zoo_gids[i]))
				zoo.gid = (long)i, known = 1;
		if (!known)
			return q;
	}
	return NULL;
}

static int zoo_over(long limit, long n) { return limit >= 0 && n > limit; }

#define ZOO_LOWER(field, limit) \
	if (zoo_over(limit, (long)(field))) \
		field = limit

static int zoo_query_device(struct abi_context *c, struct abi_device_attr *a)
{
	int rc = real.ibv_query_device(c, a);
	if (rc)
		return rc;
	ZOO_LOWER(a->max_sge, zoo.sge_);
	ZOO_LOWER(a->max_sge_read, zoo.sge_);
	ZOO_LOWER(a->max_sge_read, zoo.sge_read_);
	ZOO_LOWER(a->max_reads_target, zoo.reads_);
	ZOO_LOWER(a->max_reads_initiate, zoo.reads_);
	ZOO_LOWER(a->max_qp, zoo.qp_);
	ZOO_LOWER(a->max_mr, zoo.mr_);
	ZOO_LOWER(a->max_cqe, zoo.cqe_);
	ZOO_LOWER(a->max_qp_wr, zoo.wr_);
	if (zoo.no_atomics_)
		a->atomic_cap = 0;
	if (zoo.no_srq_)
		a->max_srq = a->max_srq_wr = a->max_srq_sge = 0;
	return 0;
}

static int zoo_query_port(struct abi_context *c, uint8_t port, struct abi_port_attr_1_1 *p)
{
	struct abi_port_attr *a = (struct abi_port_attr *)p;
	int rc = real.ibv_query_port(c, port, p);
	if (!rc && zoo.mtu_ > 0) {
		unsigned code = 1; // 256
		while (code < 5 && 256L << (code - 1) < zoo.mtu_)
			code++;
		ZOO_LOWER(a->active_mtu, (long)code);
		ZOO_LOWER(a->max_mtu, (long)code);
	}
	return rc;
}

// The table of GIDs. An entry that the device does not have refuses a connection, or, one of
// a VLAN that leads nowhere, loses every packet.
enum { ZOO_REFUSES = 100, ZOO_LOSES = 101 };
static int zoo_real_index[16]; // of the entries shown
static int zoo_v4_index;

static int zoo_show(struct abi_gid_entry *out, int k, struct abi_gid_entry e, int real_index)
{
	e.index = (uint32_t)k;
	out[k] = e;
	zoo_real_index[k] = real_index;
	return k + 1;
}

static ssize_t zoo_query_gid_table(struct abi_context *c, struct abi_gid_entry *e, size_t max, uint32_t flags, size_t size)
{
	ssize_t n = real._ibv_query_gid_table(c, e, max, flags, size);
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	if (n <= 0 || zoo.gid == ZOO_GID_AS_IS)
		return n;
	struct abi_gid_entry v4 = {0}, local = {0}, made;
	for (ssize_t i = 0; i < n; i++) {
		if (!memcmp(e[i].gid.raw, mapped, 12) && !v4.port)
			v4 = e[i];
		if (e[i].gid.raw[0] == 0xfe && !local.port)
			local = e[i];
	}
	if (!v4.port || !local.port || max < 4)
		return n;
	int k = 0, v4_index = (int)v4.index, local_index = (int)local.index;
	pthread_mutex_lock(&zoo_mu);
	zoo_v4_index = v4_index;
	switch (zoo.gid) {
	case ZOO_GID_V6:
		k = zoo_show(e, k, local, local_index);
		break;
	case ZOO_GID_V1_FIRST:
	case ZOO_GID_V1_ONLY:
		for (int i = 0; i < 2; i++) {
			made = i ? v4 : local;
			made.kind = 1; // RoCE v1
			k = zoo_show(e, k, made, zoo.gid == ZOO_GID_V1_ONLY && i ? v4_index : ZOO_REFUSES);
		}
		if (zoo.gid == ZOO_GID_V1_FIRST)
			k = zoo_show(e, k, v4, v4_index);
		break;
	case ZOO_GID_VLAN:
		for (int i = 0; i < 2; i++) {
			made = v4;
			made.gid.raw[13] ^= (uint8_t)(0x40 + i);
			k = zoo_show(e, k, made, i ? ZOO_REFUSES : ZOO_LOSES);
		}
		k = zoo_show(e, k, v4, v4_index);
		break;
	case ZOO_GID_DEAD:
		k = zoo_show(e, k, v4, ZOO_LOSES);
		break;
	case ZOO_GID_LOCAL_FIRST:
		for (int i = 0; i < 3; i++)
			k = zoo_show(e, k, local, local_index);
		k = zoo_show(e, k, v4, v4_index);
		break;
	}
	pthread_mutex_unlock(&zoo_mu);
	return k;
}

static int zoo_query_gid(struct abi_context *c, uint8_t port, int index, union abi_gid *gid)
{
	(void)c, (void)port, (void)index, (void)gid;
	return errno = ENODATA, -1; // the table has all
}

static void zoo_slow(size_t len)
{
	if (zoo.slow_reg_ > 0) { // microseconds a MiB
		long us = zoo.slow_reg_ * (1 + (long)(len >> 20));
		nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
	}
}

// zoo_take counts an object; it is an error if there are limit of them.
static int zoo_take(long *count, long limit)
{
	pthread_mutex_lock(&zoo_mu);
	int none = zoo_over(limit, *count + 1);
	*count += !none;
	pthread_mutex_unlock(&zoo_mu);
	if (none)
		errno = ENOMEM;
	return none;
}

static void zoo_drop(long *count)
{
	pthread_mutex_lock(&zoo_mu);
	--*count;
	pthread_mutex_unlock(&zoo_mu);
}

// zoo_regions are the regions of this process, to tell a write that will be refused: a
// device refuses it before a part of it lands.
static struct zoo_region {
	struct abi_mr *mr;
	uint64_t addr, len;
} zoo_regions[4096];

static struct zoo_region *zoo_region_of(const struct abi_mr *m)
{
	for (size_t i = 0; i < sizeof zoo_regions / sizeof *zoo_regions; i++)
		if (zoo_regions[i].mr == m)
			return &zoo_regions[i];
	return NULL;
}

static void zoo_note(struct abi_mr *m, uint64_t addr, uint64_t len)
{
	pthread_mutex_lock(&zoo_mu);
	struct zoo_region *r = zoo_region_of(NULL);
	if (r)
		*r = (struct zoo_region){m, addr, len};
	pthread_mutex_unlock(&zoo_mu);
}

static int zoo_outside(uint32_t rkey, uint64_t addr, uint64_t len)
{
	int out = 0;
	pthread_mutex_lock(&zoo_mu);
	for (size_t i = 0; i < sizeof zoo_regions / sizeof *zoo_regions; i++) {
		struct zoo_region *r = &zoo_regions[i];
		if (r->mr && r->mr->rkey == rkey)
			out = addr < r->addr || len > r->len || addr - r->addr > r->len - len;
	}
	pthread_mutex_unlock(&zoo_mu);
	return out;
}

#define ZOO_REG(start, call) \
	struct abi_mr *m = NULL; \
	if (zoo_take(&zoo_mrs, zoo.mr_)) \
		return NULL; \
	zoo_slow(len); \
	if (!(m = call)) \
		zoo_drop(&zoo_mrs); \
	else \
		zoo_note(m, start, len); \
	return m

// Rights of atomics are refused by devices without them.
static int zoo_refuses(unsigned access)
{
	if (!zoo.no_atomics_ || !(access & 8))
		return 0;
	errno = EOPNOTSUPP;
	return 1;
}

static struct abi_mr *zoo_reg_mr(struct abi_pd *pd, void *addr, size_t len, int access)
{
	if (zoo_refuses((unsigned)access))
		return NULL;
	ZOO_REG((uintptr_t)addr, real.ibv_reg_mr(pd, addr, len, access));
}

static struct abi_mr *zoo_reg_mr_iova(struct abi_pd *pd, void *addr, size_t len, uint64_t iova, int access)
{
	if (zoo_refuses((unsigned)access))
		return NULL;
	ZOO_REG(iova, real.ibv_reg_mr_iova(pd, addr, len, iova, access));
}

static struct abi_mr *zoo_reg_mr_iova2(struct abi_pd *pd, void *addr, size_t len, uint64_t iova, unsigned access)
{
	if (zoo_refuses(access))
		return NULL;
	ZOO_REG(iova, real.ibv_reg_mr_iova2(pd, addr, len, iova, access));
}

static int zoo_dereg_mr(struct abi_mr *m)
{
	struct zoo_region *r;
	pthread_mutex_lock(&zoo_mu);
	int rc = real.ibv_dereg_mr(m);
	if (!rc && (r = zoo_region_of(m)))
		r->mr = NULL;
	zoo_mrs -= !rc;
	pthread_mutex_unlock(&zoo_mu);
	return rc;
}

static struct abi_cq *zoo_create_cq(struct abi_context *c, int n, void *id, struct abi_channel *ch, int vector)
{
	if (zoo_over(zoo.cqe_, n))
		return errno = EINVAL, NULL;
	struct abi_cq *q = real.ibv_create_cq(c, n, id, ch, vector);
	if (q && zoo_over(zoo.cqe_, q->entries))
		q->entries = (int)zoo.cqe_;
	return q;
}

static int zoo_resize_cq(struct abi_cq *q, int n)
{
	if (zoo.no_resize_)
		return EOPNOTSUPP;
	return zoo_over(zoo.cqe_, n) ? EINVAL : real.ibv_resize_cq(q, n);
}

static struct abi_srq *zoo_create_srq(struct abi_pd *pd, struct abi_srq_init *a)
{
	return zoo.no_srq_ ? (errno = EOPNOTSUPP, NULL) : real.ibv_create_srq(pd, a);
}

// ZOO_PIECES is the number of requests that a shuffled write becomes, at most.
enum { ZOO_PIECES = 8 };

// zoo_qp is what a queue pair of the zoo remembers.
struct zoo_qp {
	struct abi_qp *qp;
	uint32_t max_inline;
	uint32_t seed;
	struct zoo_piece { // the pieces of a write that have not landed yet
		struct abi_send_wr wr;
		struct abi_sge sgl[32];
	} late[ZOO_PIECES];
	int first, n; // late[first:n]
	struct zoo_recv { // receives posted last, by ID; only where some are posted again
		uint64_t id;
		struct abi_sge sge;
		int pieces;
	} *recvs;
};
enum { ZOO_RECVS = 4096 };
static struct zoo_qp *zoo_list[4096];

static struct zoo_qp *zoo_find(struct abi_qp *q)
{
	struct zoo_qp *z = NULL;
	pthread_mutex_lock(&zoo_mu);
	for (size_t i = 0; !z && i < sizeof zoo_list / sizeof *zoo_list; i++)
		if (zoo_list[i] && zoo_list[i]->qp == q)
			z = zoo_list[i];
	pthread_mutex_unlock(&zoo_mu);
	return z;
}

static struct abi_qp *zoo_create_qp(struct abi_pd *pd, struct abi_qp_init *a)
{
	struct abi_cap want = a->cap;
	if (zoo_over(zoo.sge_, want.max_send_sge) || zoo_over(zoo.sge_, want.max_recv_sge) || zoo_over(zoo.inline_, want.max_inline) ||
	    zoo_over(zoo.wr_, want.max_send_wr) || zoo_over(zoo.wr_, want.max_recv_wr) || (zoo.no_srq_ && a->srq))
		return errno = EINVAL, NULL;
	if (zoo_take(&zoo_qps, zoo.qp_))
		return NULL;
	if (zoo.shuffle_)
		a->cap.max_send_wr *= ZOO_PIECES;
	struct abi_qp *q = real.ibv_create_qp(pd, a);
	struct zoo_qp *z = q ? calloc(1, sizeof *z) : NULL;
	if (!z) {
		zoo_drop(&zoo_qps);
		return NULL;
	}
	if (zoo.shuffle_)
		a->cap.max_send_wr = want.max_send_wr;
	ZOO_LOWER(a->cap.max_inline, zoo.inline_);
	ZOO_LOWER(a->cap.max_send_sge, zoo.sge_);
	struct zoo_recv *recvs = zoo.unsolicited_ ? calloc(ZOO_RECVS, sizeof *recvs) : NULL;
	*z = (struct zoo_qp){.recvs = recvs, .qp = q, .max_inline = a->cap.max_inline, .seed = q->num};
	pthread_mutex_lock(&zoo_mu);
	for (size_t i = 0; i < sizeof zoo_list / sizeof *zoo_list; i++)
		if (!zoo_list[i]) {
			zoo_list[i] = z;
			break;
		}
	pthread_mutex_unlock(&zoo_mu);
	return q;
}

static int zoo_destroy_qp(struct abi_qp *q)
{
	pthread_mutex_lock(&zoo_mu); // the poll of another thread posts to no queue pair that is gone
	int rc = real.ibv_destroy_qp(q);
	for (size_t i = 0; !rc && i < sizeof zoo_list / sizeof *zoo_list; i++)
		if (zoo_list[i] && zoo_list[i]->qp == q) {
			free(zoo_list[i]->recvs);
			free(zoo_list[i]);
			zoo_list[i] = NULL;
		}
	zoo_qps -= !rc;
	pthread_mutex_unlock(&zoo_mu);
	return rc;
}

enum { ZOO_ATTR_ACCESS = 1 << 3, ZOO_ATTR_AH = 1 << 7, ZOO_ATTR_READS = 1 << 13, ZOO_ATTR_READS_DEST = 1 << 17 };

static int zoo_modify_qp(struct abi_qp *q, struct abi_qp_attr *a, int mask)
{
	struct abi_qp_attr b = *a;
	if ((mask & ZOO_ATTR_READS && zoo_over(zoo.reads_, a->max_reads)) ||
	    (mask & ZOO_ATTR_READS_DEST && zoo_over(zoo.reads_, a->max_reads_dest)))
		return EINVAL;
	if (mask & ZOO_ATTR_ACCESS && zoo_refuses(a->access))
		return EOPNOTSUPP;
	if (mask & ZOO_ATTR_AH && zoo.gid != ZOO_GID_AS_IS && a->ah.global && a->ah.route.sgid_index < 16) {
		int at = zoo_real_index[a->ah.route.sgid_index];
		if (at == ZOO_REFUSES)
			return ENETUNREACH;
		if (at == ZOO_LOSES) {
			b.dest_qpn = 0xfffffe;
			at = zoo_v4_index;
		}
		b.ah.route.sgid_index = (uint8_t)at;
		if (a->ah.route.dgid.raw[13] & 0x40 && zoo.gid == ZOO_GID_VLAN)
			b.ah.route.dgid.raw[13] &= (uint8_t)~0x41;
	}
	return real.ibv_modify_qp(q, &b, mask);
}

enum { ZOO_WRITE = 0, ZOO_WRITE_IMM = 1, ZOO_SEND_IMM = 3, ZOO_READ = 4, ZOO_CMP_SWAP = 5, ZOO_FETCH_ADD = 6 };
enum { ZOO_SIGNALED = 2, ZOO_INLINE = 8 };

static int zoo_post_one(struct abi_qp *q, struct abi_send_wr *w)
{
	struct abi_send_wr one = *w, *bad;
	one.next = NULL;
	return real_ops.post_send(q, &one, &bad);
}

// zoo_land posts the pieces that have not landed yet. A poll of any thread does, of the pieces of
// all queue pairs. Under zoo_late_mu.
static int zoo_land(struct zoo_qp *z)
{
	int rc = 0;
	for (; z->first < z->n && !rc; z->first++)
		rc = zoo_post_one(z->qp, &z->late[z->first].wr);
	z->first = z->n = 0;
	return rc;
}

// zoo_cut stores the pieces of bytes [from, to) of a list, and returns their number.
static int zoo_cut(struct abi_sge *out, const struct abi_send_wr *w, uint64_t from, uint64_t to)
{
	int n = 0;
	uint64_t at = 0;
	for (int i = 0; i < w->num_sge && at < to; at += w->sgl[i++].length) {
		uint64_t a = from > at ? from - at : 0, b = to - at < w->sgl[i].length ? to - at : w->sgl[i].length;
		if (a < b)
			out[n++] = (struct abi_sge){w->sgl[i].addr + a, (uint32_t)(b - a), w->sgl[i].lkey};
	}
	return n;
}

// zoo_shuffle posts a write as pieces of whole cache lines in another order, the last line
// first. The rest lands when the caller enters the library again. Under zoo_late_mu.
static int zoo_shuffle(struct zoo_qp *z, struct abi_send_wr *w, uint64_t bytes)
{
	uint64_t lines = (bytes + 63) / 64;
	int parts = lines < ZOO_PIECES ? (int)lines : ZOO_PIECES, order[ZOO_PIECES];
	for (int i = 0; i < parts; i++)
		order[i] = parts - 1 - i;
	for (int i = parts - 1; i > 1; i--) {
		z->seed = z->seed * 1664525 + 1013904223;
		int j = 1 + (int)((z->seed >> 16) % (uint32_t)i), t = order[i];
		order[i] = order[j];
		order[j] = t;
	}
	for (int i = 0; i < parts; i++) {
		uint64_t from = lines * (uint64_t)order[i] / (uint64_t)parts * 64, to = lines * (uint64_t)(order[i] + 1) / (uint64_t)parts * 64;
		struct zoo_piece *p = &z->late[i];
		p->wr = *w;
		p->wr.sgl = p->sgl;
		p->wr.num_sge = zoo_cut(p->sgl, w, from, to < bytes ? to : bytes);
		p->wr.remote += from;
		if (i < parts - 1)
			p->wr.flags &= ~(uint32_t)ZOO_SIGNALED;
	}
	z->first = 1;
	z->n = parts;
	int rc = zoo_post_one(z->qp, &z->late[0].wr);
	if (!rc && w->flags & ZOO_INLINE) // its memory is the caller's again
		rc = zoo_land(z);
	return rc;
}

static int zoo_post_send(struct abi_qp *q, struct abi_send_wr *w, struct abi_send_wr **bad)
{
	struct zoo_qp *z = zoo_find(q);
	int rc = z ? 0 : EINVAL;
	for (; w && !rc; w = w->next) {
		uint64_t bytes = 0;
		*bad = w;
		for (int i = 0; i < w->num_sge; i++)
			bytes += w->sgl[i].length;
		if ((zoo.no_imm_ && (w->op == ZOO_WRITE_IMM || w->op == ZOO_SEND_IMM)) ||
		    (zoo.no_atomics_ && (w->op == ZOO_CMP_SWAP || w->op == ZOO_FETCH_ADD)))
			return EOPNOTSUPP;
		if (zoo_over(zoo.sge_, w->num_sge) || (w->flags & ZOO_INLINE && bytes > z->max_inline) ||
		    (w->op == ZOO_READ && zoo_over(zoo.sge_read_, w->num_sge)))
			return EINVAL;
		int cut = zoo.shuffle_ && w->op == ZOO_WRITE && bytes > 64 && !zoo_outside(w->rkey, w->remote, bytes);
		pthread_mutex_lock(&zoo_late_mu);
		if (!(rc = zoo_land(z)))
			rc = cut ? zoo_shuffle(z, w, bytes) : zoo_post_one(q, w);
		pthread_mutex_unlock(&zoo_late_mu);
	}
	return rc;
}

static void zoo_land_all(void)
{
	if (!zoo.shuffle_)
		return;
	pthread_mutex_lock(&zoo_mu);
	pthread_mutex_lock(&zoo_late_mu);
	for (size_t i = 0; i < sizeof zoo_list / sizeof *zoo_list; i++)
		if (zoo_list[i] && zoo_list[i]->n)
			zoo_land(zoo_list[i]);
	pthread_mutex_unlock(&zoo_late_mu);
	pthread_mutex_unlock(&zoo_mu);
}

enum { ZOO_RECV_IMM = 129 };

static int zoo_post_recv(struct abi_qp *q, struct abi_recv_wr *w, struct abi_recv_wr **bad)
{
	struct zoo_qp *z = zoo.unsolicited_ ? zoo_find(q) : NULL;
	for (struct abi_recv_wr *r = w; z && z->recvs && r; r = r->next) {
		struct zoo_recv *to = &z->recvs[r->id % ZOO_RECVS];
		*to = (struct zoo_recv){.id = r->id, .pieces = r->num_sge > 0};
		if (to->pieces)
			to->sge = *r->sgl;
	}
	return real_ops.post_recv(q, w, bad);
}

// A write with immediate takes no receive: its completion names none.
static int zoo_poll_cq(struct abi_cq *q, int n, struct abi_wc *wc)
{
	zoo_land_all();
	int got = real_ops.poll_cq(q, n, wc);
	for (int i = 0; zoo.unsolicited_ && i < got; i++) {
		if (wc[i].status || wc[i].op != ZOO_RECV_IMM)
			continue;
		struct abi_recv_wr back = {.id = wc[i].id}, *bad;
		struct abi_qp *on = NULL;
		struct abi_sge sge;
		pthread_mutex_lock(&zoo_mu);
		for (size_t k = 0; k < sizeof zoo_list / sizeof *zoo_list; k++)
			if (zoo_list[k] && zoo_list[k]->qp->num == wc[i].qpn) {
				struct zoo_recv *r = zoo_list[k]->recvs ? &zoo_list[k]->recvs[back.id % ZOO_RECVS] : NULL;
				on = zoo_list[k]->qp;
				if (r && r->id == back.id && r->pieces) {
					sge = r->sge;
					back.sgl = &sge;
					back.num_sge = 1;
				}
			}
		pthread_mutex_unlock(&zoo_mu);
		if (on && !real_ops.post_recv(on, &back, &bad))
			wc[i].id = 0;
	}
	return got;
}

static int zoo_req_notify_cq(struct abi_cq *q, int solicited)
{
	zoo_land_all();
	return real_ops.req_notify_cq(q, solicited);
}

static struct abi_context *zoo_open_device(struct abi_device *d)
{
	struct abi_context *c = real.ibv_open_device(d);
	if (c) {
		real_ops = c->ops;
		c->ops.post_send = zoo_post_send;
		c->ops.post_recv = zoo_post_recv;
		c->ops.poll_cq = zoo_poll_cq;
		c->ops.req_notify_cq = zoo_req_notify_cq;
	}
	return c;
}

// zoo_install reports false, and says why, if RMA_ZOO is not understood. Without the
// variable nothing changes.
static int zoo_install(struct functions *f, char *why, size_t size)
{
	const char *list = getenv("RMA_ZOO"), *unknown;
	if (!list || !*list)
		return 1;
	char *copy = strdup(list);
	if (!copy || (unknown = zoo_parse(copy))) {
		snprintf(why, size, "RMA_ZOO: no quirk %s", copy ? unknown : "");
		free(copy);
		return 0;
	}
	free(copy);
	real = *f;
#define ZOO_REPLACE(name) f->ibv_##name = zoo_##name;
	ZOO_REPLACE(query_device)
	ZOO_REPLACE(query_port)
	ZOO_REPLACE(reg_mr)
	ZOO_REPLACE(dereg_mr)
	ZOO_REPLACE(create_cq)
	ZOO_REPLACE(resize_cq)
	ZOO_REPLACE(create_srq)
	ZOO_REPLACE(create_qp)
	ZOO_REPLACE(destroy_qp)
	ZOO_REPLACE(modify_qp)
	ZOO_REPLACE(open_device)
	if (f->ibv_reg_mr_iova)
		ZOO_REPLACE(reg_mr_iova)
	if (f->ibv_reg_mr_iova2)
		ZOO_REPLACE(reg_mr_iova2)
	if (zoo.gid != ZOO_GID_AS_IS && f->_ibv_query_gid_table) {
		f->_ibv_query_gid_table = zoo_query_gid_table;
		ZOO_REPLACE(query_gid)
	}
	return 1;
}
