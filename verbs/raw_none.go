//go:build !(linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x))

package verbs

import (
	"syscall"
)

// The crossing into C on platforms without it: rawLoad reports that, and nothing calls the
// rest because nothing can be opened.

const nosys = syscall.ENOSYS

func rawLoad(file string) SupportInfo { return SupportInfo{} }

func rawDevices() ([]Device, syscall.Errno) { return nil, nosys }

func rawOpen(name string) (h uintptr, fd int, no syscall.Errno) {
	no = nosys
	return
}

func rawClose(h uintptr) syscall.Errno { return nosys }

func rawQueryDevice(h uintptr) (DeviceAttr, syscall.Errno) { return DeviceAttr{}, nosys }

func rawQueryPort(h uintptr, port uint8) (PortAttr, syscall.Errno) { return PortAttr{}, nosys }

func rawGIDTable(h uintptr, max int) ([]rawGID, syscall.Errno) { return nil, nosys }

func rawQueryGID(h uintptr, port uint8, index int) (g [16]byte, no syscall.Errno) {
	no = nosys
	return
}

func rawQueryPKey(h uintptr, port uint8, index int) (uint16, syscall.Errno) { return 0, nosys }

func rawAsyncEvent(h uintptr) (AsyncEvent, syscall.Errno) { return AsyncEvent{}, nosys }

func rawAllocPD(h uintptr) (uintptr, syscall.Errno) { return 0, nosys }

func rawDeallocPD(h uintptr) syscall.Errno { return nosys }

func rawRegMR(pd, addr uintptr, n int, iova uint64, access Access) (h uintptr, lkey, rkey uint32, no syscall.Errno) {
	no = nosys
	return
}

func rawDeregMR(h uintptr) syscall.Errno { return nosys }

func rawCreateChannel(h uintptr) (ch uintptr, fd int, no syscall.Errno) {
	no = nosys
	return
}

func rawDestroyChannel(h uintptr) syscall.Errno { return nosys }

func rawCQEvent(ch uintptr) (id uint64, no syscall.Errno) {
	no = nosys
	return
}

func rawCreateCQ(h uintptr, n int, id uint64, ch uintptr) (cq uintptr, got int, no syscall.Errno) {
	no = nosys
	return
}

func rawResizeCQ(cq uintptr, n int) (int, syscall.Errno) { return 0, nosys }

func rawDestroyCQ(h uintptr) syscall.Errno { return nosys }

func rawReqNotify(cq uintptr, solicited bool) syscall.Errno { return nosys }

func rawPollCQ(cq uintptr, wcs []WC) int { return -1 }

func rawCreateQP(pd, scq, rcq, srq uintptr, t QPType, sigAll bool, c QPCap) (h uintptr, num uint32, got QPCap, no syscall.Errno) {
	no = nosys
	return
}

func rawDestroyQP(h uintptr) syscall.Errno { return nosys }

func rawModifyQP(h uintptr, a *QPAttr, mask AttrMask) syscall.Errno { return nosys }

func rawQueryQP(h uintptr, mask AttrMask) (QPAttr, syscall.Errno) { return QPAttr{}, nosys }

func rawPostSend(qp, wr uintptr) uint64 { return uint64(nosys) }

func rawPostRecv(qp, wr uintptr) uint64 { return uint64(nosys) }

func rawPostSRQRecv(s, wr uintptr) uint64 { return uint64(nosys) }

func rawCreateSRQ(pd uintptr, id uint64, a SRQAttr) (h uintptr, got SRQAttr, no syscall.Errno) {
	no = nosys
	return
}

func rawSetSRQLimit(h uintptr, n uint32) syscall.Errno { return nosys }

func rawQuerySRQ(h uintptr) (SRQAttr, syscall.Errno) { return SRQAttr{}, nosys }

func rawDestroySRQ(h uintptr) syscall.Errno { return nosys }

func rawCreateAH(pd uintptr, a *AHAttr) (uintptr, syscall.Errno) { return 0, nosys }

func rawDestroyAH(h uintptr) syscall.Errno { return nosys }

func rawAllocMW(pd uintptr, t MWType) (h uintptr, rkey uint32, no syscall.Errno) {
	no = nosys
	return
}

func rawDeallocMW(h uintptr) syscall.Errno { return nosys }

func rawBindMW(qp, mw uintptr, id uint64, flags SendFlags, mr uintptr, addr, n uint64, access Access) (uint32, syscall.Errno) {
	return 0, nosys
}

func rawCalloc(n int) uintptr { return 0 }

func rawFree(p uintptr) {}

func rawNop(p uintptr) uint64 { return 0 }
