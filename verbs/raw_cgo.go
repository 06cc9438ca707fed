//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs

// rv_poll_cq writes completions to the caller's array, keeps no pointer to it (ibv_poll_cq
// copies from the provider's queue) and never calls back into Go, so it may be declared
// noescape, which is effective only together with nocallback. Without them, every array of
// completions on a stack would move to the heap: TestDataPathAllocatesNothing counts one
// allocation a poll without, none with. The same holds for the two functions that take an
// event: they write to the caller's variable and end in a read(2). The other functions of
// the data path take integers, for which the annotations change nothing: a crossing is 31
// to 33 ns with and without (BenchmarkCrossing).

/*
#cgo LDFLAGS: -ldl
#cgo noescape rv_poll_cq
#cgo nocallback rv_poll_cq
#cgo noescape rv_get_async_event
#cgo nocallback rv_get_async_event
#cgo noescape rv_get_cq_event
#cgo nocallback rv_get_cq_event
#include <stdlib.h>
#include "shim_linux.h"
*/
import "C"

import (
	"path/filepath"
	"syscall"
	"unsafe"
)

func errno(rc C.int) syscall.Errno { return syscall.Errno(rc) }

func rawLoad(file string) SupportInfo {
	cs := C.CString(file)
	defer C.free(unsafe.Pointer(cs))
	var l C.struct_rv_library
	rc := C.rv_load(cs, &l)
	if rc == 1 {
		return SupportInfo{Availability: NoLibrary, Detail: C.GoString(&l.text[0])}
	}
	path := C.GoString(&l.path[0])
	if full, err := filepath.EvalSymlinks(path); err == nil {
		path = full // whose name ends with the release
	}
	if rc == 0 {
		return SupportInfo{Availability: Available, Detail: path}
	}
	e := &SymbolError{Library: path, Symbol: C.GoString(l.symbol), Version: C.GoString(l.version)}
	return SupportInfo{Availability: BadLibrary, Detail: e.Error(), Missing: e}
}

func rawDevices() ([]Device, syscall.Errno) {
	ds := make([]C.struct_rv_device, 64)
	for {
		var n C.int
		if rc := C.rv_devices(&ds[0], C.int(len(ds)), &n); rc != 0 {
			return nil, errno(rc)
		}
		if int(n) > len(ds) {
			ds = make([]C.struct_rv_device, n)
			continue
		}
		out := make([]Device, n)
		for i := range out {
			d := &ds[i]
			out[i] = Device{Name: C.GoString(&d.name[0]), Path: C.GoString(&d.path[0]), GUID: ntoh64(uint64(d.guid_be)),
				NodeType: NodeType(d.node), Transport: Transport(d.transport)}
		}
		return out, 0
	}
}

func rawOpen(name string) (h uintptr, fd int, no syscall.Errno) {
	cs := C.CString(name)
	defer C.free(unsafe.Pointer(cs))
	var ctx C.rv_h
	var cfd C.int
	rc := C.rv_open(cs, &ctx, &cfd)
	return uintptr(ctx), int(cfd), errno(rc)
}

func rawClose(h uintptr) syscall.Errno { return errno(C.rv_close(C.rv_h(h))) }

func rawQueryDevice(h uintptr) (DeviceAttr, syscall.Errno) {
	var a C.struct_abi_device_attr
	if rc := C.rv_query_device(C.rv_h(h), &a); rc != 0 {
		return DeviceAttr{}, errno(rc)
	}
	a.firmware[len(a.firmware)-1] = 0
	return DeviceAttr{
		Firmware: C.GoString(&a.firmware[0]), NodeGUID: ntoh64(uint64(a.node_guid_be)),
		SysImageGUID: ntoh64(uint64(a.image_guid_be)), MaxMRSize: uint64(a.max_mr_size), PageSizes: uint64(a.page_sizes),
		VendorID: uint32(a.vendor), VendorPartID: uint32(a.part), HWVersion: uint32(a.hw_version), CapFlags: uint32(a.caps),
		MaxQP: int(a.max_qp), MaxQPWR: int(a.max_qp_wr), MaxSGE: int(a.max_sge), MaxSGERead: int(a.max_sge_read),
		MaxCQ: int(a.max_cq), MaxCQE: int(a.max_cqe), MaxMR: int(a.max_mr), MaxPD: int(a.max_pd),
		MaxReadTarget: int(a.max_reads_target), MaxReadInitiate: int(a.max_reads_initiate),
		MaxReadTotal: int(a.max_reads_total), AtomicCap: AtomicCap(a.atomic_cap), MaxMW: int(a.max_mw),
		MaxAH: int(a.max_ah), MaxSRQ: int(a.max_srq), MaxSRQWR: int(a.max_srq_wr), MaxSRQSGE: int(a.max_srq_sge),
		MaxMulticast: int(a.max_mcast_groups), MaxPKeys: int(a.max_pkeys), AckDelay: uint8(a.ack_delay), Ports: int(a.ports),
	}, 0
}

func rawQueryPort(h uintptr, port uint8) (PortAttr, syscall.Errno) {
	var a C.struct_abi_port_attr
	if rc := C.rv_query_port(C.rv_h(h), C.uint8_t(port), &a); rc != 0 {
		return PortAttr{}, errno(rc)
	}
	return PortAttr{
		State: PortState(a.state), MaxMTU: MTU(a.max_mtu), ActiveMTU: MTU(a.active_mtu), GIDs: int(a.gids),
		CapFlags: uint32(a.caps), MaxMessage: uint32(a.max_message), BadPKeys: uint32(a.bad_pkeys),
		BadQKeys: uint32(a.bad_qkeys), PKeys: int(a.pkeys), LID: uint16(a.lid), SMLID: uint16(a.sm_lid),
		LMC: uint8(a.lmc), MaxVLs: uint8(a.max_vls), SMSL: uint8(a.sm_sl), SubnetTimeout: uint8(a.subnet_timeout),
		ActiveWidth: uint8(a.width), ActiveSpeed: uint8(a.speed), PhysState: uint8(a.phys_state),
		LinkLayer: LinkLayer(a.link_layer),
	}, 0
}

func rawGIDTable(h uintptr, most int) ([]rawGID, syscall.Errno) {
	es := make([]C.struct_abi_gid_entry, most)
	var n C.int
	if rc := C.rv_query_gid_table(C.rv_h(h), &es[0], C.int(most), &n); rc != 0 {
		return nil, errno(rc)
	}
	out := make([]rawGID, n)
	for i := range out {
		e := &es[i]
		out[i] = rawGID{gid: e.gid, index: uint32(e.index), port: uint32(e.port), typ: uint32(e.kind), ifindex: uint32(e.ifindex)}
	}
	return out, 0
}

func rawQueryGID(h uintptr, port uint8, index int) (g [16]byte, no syscall.Errno) {
	var u C.union_abi_gid
	rc := C.rv_query_gid(C.rv_h(h), C.uint8_t(port), C.int(index), &u)
	return u, errno(rc)
}

func rawQueryPKey(h uintptr, port uint8, index int) (uint16, syscall.Errno) {
	var k C.uint16_t
	rc := C.rv_query_pkey(C.rv_h(h), C.uint8_t(port), C.int(index), &k)
	return uint16(k), errno(rc)
}

func rawAsyncEvent(h uintptr) (AsyncEvent, syscall.Errno) {
	var e C.struct_rv_async_event
	if rc := C.rv_get_async_event(C.rv_h(h), &e); rc != 0 {
		return AsyncEvent{}, errno(rc)
	}
	return AsyncEvent{Type: EventType(e._type), QPN: uint32(e.qpn), Port: int(e.port), ID: uint64(e.id)}, 0
}

func rawAllocPD(h uintptr) (uintptr, syscall.Errno) {
	var pd C.rv_h
	rc := C.rv_alloc_pd(C.rv_h(h), &pd)
	return uintptr(pd), errno(rc)
}

func rawDeallocPD(h uintptr) syscall.Errno { return errno(C.rv_dealloc_pd(C.rv_h(h))) }

func rawRegMR(pd, addr uintptr, n int, iova uint64, access Access) (h uintptr, lkey, rkey uint32, no syscall.Errno) {
	var mr C.rv_h
	var l, r C.uint32_t
	rc := C.rv_reg_mr(C.rv_h(pd), C.uintptr_t(addr), C.size_t(n), C.uint64_t(iova), C.uint(access), &mr, &l, &r)
	return uintptr(mr), uint32(l), uint32(r), errno(rc)
}

func rawDeregMR(h uintptr) syscall.Errno { return errno(C.rv_dereg_mr(C.rv_h(h))) }

func rawCreateChannel(h uintptr) (ch uintptr, fd int, no syscall.Errno) {
	var c C.rv_h
	var f C.int
	rc := C.rv_create_channel(C.rv_h(h), &c, &f)
	return uintptr(c), int(f), errno(rc)
}

func rawDestroyChannel(h uintptr) syscall.Errno { return errno(C.rv_destroy_channel(C.rv_h(h))) }

func rawCQEvent(ch uintptr) (id uint64, no syscall.Errno) {
	var i C.uint64_t
	rc := C.rv_get_cq_event(C.rv_h(ch), &i)
	return uint64(i), errno(rc)
}

func rawCreateCQ(h uintptr, n int, id uint64, ch uintptr) (cq uintptr, got int, no syscall.Errno) {
	var c C.rv_h
	var g C.int
	rc := C.rv_create_cq(C.rv_h(h), C.int(n), C.uint64_t(id), C.rv_h(ch), 0, &c, &g)
	return uintptr(c), int(g), errno(rc)
}

func rawResizeCQ(cq uintptr, n int) (int, syscall.Errno) {
	var g C.int
	rc := C.rv_resize_cq(C.rv_h(cq), C.int(n), &g)
	return int(g), errno(rc)
}

func rawDestroyCQ(h uintptr) syscall.Errno { return errno(C.rv_destroy_cq(C.rv_h(h))) }

func rawReqNotify(cq uintptr, solicited bool) syscall.Errno {
	return errno(C.rv_req_notify_cq(C.rv_h(cq), cbool(solicited)))
}

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func rawPollCQ(cq uintptr, wcs []WC) int {
	return int(C.rv_poll_cq(C.rv_h(cq), C.int(len(wcs)), (*C.struct_abi_wc)(unsafe.Pointer(&wcs[0]))))
}

func capIn(c QPCap) C.struct_abi_cap {
	return C.struct_abi_cap{max_send_wr: C.uint32_t(c.MaxSendWR), max_recv_wr: C.uint32_t(c.MaxRecvWR),
		max_send_sge: C.uint32_t(c.MaxSendSGE), max_recv_sge: C.uint32_t(c.MaxRecvSGE), max_inline: C.uint32_t(c.MaxInline)}
}

func capOut(c *C.struct_abi_cap) QPCap {
	return QPCap{int(c.max_send_wr), int(c.max_recv_wr), int(c.max_send_sge), int(c.max_recv_sge), int(c.max_inline)}
}

func rawCreateQP(pd, scq, rcq, srq uintptr, t QPType, sigAll bool, c QPCap) (h uintptr, num uint32, got QPCap, no syscall.Errno) {
	cc := capIn(c)
	var qp C.rv_h
	var n C.uint32_t
	rc := C.rv_create_qp(C.rv_h(pd), C.rv_h(scq), C.rv_h(rcq), C.rv_h(srq), C.uint32_t(t), cbool(sigAll), &cc, &qp, &n)
	return uintptr(qp), uint32(n), capOut(&cc), errno(rc)
}

func rawDestroyQP(h uintptr) syscall.Errno { return errno(C.rv_destroy_qp(C.rv_h(h))) }

func ahIn(a *AHAttr) C.struct_abi_ah_attr {
	return C.struct_abi_ah_attr{
		route: C.struct_abi_route{dgid: a.DGID, flow_label: C.uint32_t(a.FlowLabel), sgid_index: C.uint8_t(a.SGIDIndex),
			hop_limit: C.uint8_t(a.HopLimit), traffic_class: C.uint8_t(a.TrafficClass)},
		dlid: C.uint16_t(a.DLID), sl: C.uint8_t(a.SL), src_path_bits: C.uint8_t(a.SrcPathBits),
		static_rate: C.uint8_t(a.StaticRate), global: C.uint8_t(cbool(a.Global)), port: C.uint8_t(a.Port),
	}
}

func ahOut(a *C.struct_abi_ah_attr) AHAttr {
	r := &a.route
	return AHAttr{
		DGID: r.dgid, FlowLabel: uint32(r.flow_label), SGIDIndex: uint8(r.sgid_index), HopLimit: uint8(r.hop_limit),
		TrafficClass: uint8(r.traffic_class), DLID: uint16(a.dlid), SL: uint8(a.sl), SrcPathBits: uint8(a.src_path_bits),
		StaticRate: uint8(a.static_rate), Global: a.global != 0, Port: uint8(a.port),
	}
}

func rawModifyQP(h uintptr, a *QPAttr, mask AttrMask) syscall.Errno {
	c := C.struct_abi_qp_attr{
		state: C.uint32_t(a.State), cur_state: C.uint32_t(a.CurState), path_mtu: C.uint32_t(a.PathMTU),
		migration: C.uint32_t(a.PathMigration), qkey: C.uint32_t(a.QKey), rq_psn: C.uint32_t(a.RQPSN),
		sq_psn: C.uint32_t(a.SQPSN), dest_qpn: C.uint32_t(a.DestQPN), access: C.uint32_t(a.Access),
		cap: capIn(a.Cap), ah: ahIn(&a.AH), alt_ah: ahIn(&a.AltAH), pkey_index: C.uint16_t(a.PKeyIndex),
		alt_pkey_index: C.uint16_t(a.AltPKeyIndex), sqd_notify: C.uint8_t(cbool(a.SQDNotify)),
		max_reads: C.uint8_t(a.MaxReads), max_reads_dest: C.uint8_t(a.MaxReadsDest),
		min_rnr_timer: C.uint8_t(a.MinRNRTimer), port: C.uint8_t(a.Port), timeout: C.uint8_t(a.Timeout),
		retry_count: C.uint8_t(a.RetryCount), rnr_retry: C.uint8_t(a.RNRRetry), alt_port: C.uint8_t(a.AltPort),
		alt_timeout: C.uint8_t(a.AltTimeout),
	}
	return errno(C.rv_modify_qp(C.rv_h(h), &c, C.int(mask)))
}

func rawQueryQP(h uintptr, mask AttrMask) (QPAttr, syscall.Errno) {
	var c C.struct_abi_qp_attr
	if rc := C.rv_query_qp(C.rv_h(h), &c, C.int(mask)); rc != 0 {
		return QPAttr{}, errno(rc)
	}
	return QPAttr{
		State: QPState(c.state), CurState: QPState(c.cur_state), PathMTU: MTU(c.path_mtu), PathMigration: int32(c.migration),
		QKey: uint32(c.qkey), RQPSN: uint32(c.rq_psn), SQPSN: uint32(c.sq_psn), DestQPN: uint32(c.dest_qpn),
		Access: Access(c.access), Cap: capOut(&c.cap), AH: ahOut(&c.ah), AltAH: ahOut(&c.alt_ah),
		PKeyIndex: uint16(c.pkey_index), AltPKeyIndex: uint16(c.alt_pkey_index), SQDNotify: c.sqd_notify != 0,
		SQDraining: c.sq_draining != 0, MaxReads: uint8(c.max_reads), MaxReadsDest: uint8(c.max_reads_dest),
		MinRNRTimer: uint8(c.min_rnr_timer), Port: uint8(c.port), Timeout: uint8(c.timeout),
		RetryCount: uint8(c.retry_count), RNRRetry: uint8(c.rnr_retry), AltPort: uint8(c.alt_port),
		AltTimeout: uint8(c.alt_timeout),
	}, 0
}

func rawPostSend(qp, wr uintptr) uint64 { return uint64(C.rv_post_send(C.rv_h(qp), C.uintptr_t(wr))) }
func rawPostRecv(qp, wr uintptr) uint64 { return uint64(C.rv_post_recv(C.rv_h(qp), C.uintptr_t(wr))) }
func rawPostSRQRecv(s, wr uintptr) uint64 {
	return uint64(C.rv_post_srq_recv(C.rv_h(s), C.uintptr_t(wr)))
}

func rawCreateSRQ(pd uintptr, id uint64, a SRQAttr) (h uintptr, got SRQAttr, no syscall.Errno) {
	c := C.struct_abi_srq_attr{max_wr: C.uint32_t(a.MaxWR), max_sge: C.uint32_t(a.MaxSGE), limit: C.uint32_t(a.Limit)}
	var s C.rv_h
	rc := C.rv_create_srq(C.rv_h(pd), C.uint64_t(id), &c, &s)
	return uintptr(s), SRQAttr{MaxWR: int(c.max_wr), MaxSGE: int(c.max_sge), Limit: a.Limit}, errno(rc)
}

func rawSetSRQLimit(h uintptr, n uint32) syscall.Errno {
	return errno(C.rv_modify_srq_limit(C.rv_h(h), C.uint32_t(n)))
}

func rawQuerySRQ(h uintptr) (SRQAttr, syscall.Errno) {
	var c C.struct_abi_srq_attr
	rc := C.rv_query_srq(C.rv_h(h), &c)
	return SRQAttr{MaxWR: int(c.max_wr), MaxSGE: int(c.max_sge), Limit: int(c.limit)}, errno(rc)
}

func rawDestroySRQ(h uintptr) syscall.Errno { return errno(C.rv_destroy_srq(C.rv_h(h))) }

func rawCreateAH(pd uintptr, a *AHAttr) (uintptr, syscall.Errno) {
	c := ahIn(a)
	var h C.rv_h
	rc := C.rv_create_ah(C.rv_h(pd), &c, &h)
	return uintptr(h), errno(rc)
}

func rawDestroyAH(h uintptr) syscall.Errno { return errno(C.rv_destroy_ah(C.rv_h(h))) }

func rawAllocMW(pd uintptr, t MWType) (h uintptr, rkey uint32, no syscall.Errno) {
	var m C.rv_h
	var k C.uint32_t
	rc := C.rv_alloc_mw(C.rv_h(pd), C.uint32_t(t), &m, &k)
	return uintptr(m), uint32(k), errno(rc)
}

func rawDeallocMW(h uintptr) syscall.Errno { return errno(C.rv_dealloc_mw(C.rv_h(h))) }

func rawBindMW(qp, mw uintptr, id uint64, flags SendFlags, mr uintptr, addr, n uint64, access Access) (uint32, syscall.Errno) {
	var k C.uint32_t
	rc := C.rv_bind_mw(C.rv_h(qp), C.rv_h(mw), C.uint64_t(id), C.uint(flags), C.rv_h(mr), C.uint64_t(addr), C.uint64_t(n), C.uint(access), &k)
	return uint32(k), errno(rc)
}

func rawCalloc(n int) uintptr { return uintptr(C.rv_calloc(C.size_t(n))) }
func rawFree(p uintptr)       { C.rv_free(C.uintptr_t(p)) }
func rawNop(p uintptr) uint64 { return uint64(C.rv_nop(C.uintptr_t(p))) }
