package ibv

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/verbs"
)

// statusOf translates a completion status. vendor is the device's code, or the
// status itself where the seam has no word for it.
func statusOf(s verbs.WCStatus, vendorErr uint32) (st fabric.Status, vendor uint32) {
	switch s {
	case verbs.WCSuccess:
		return fabric.StatusOK, 0
	case verbs.WCLocLenErr:
		return fabric.StatusLocalLength, vendorErr
	case verbs.WCLocProtErr, verbs.WCLocAccessErr, verbs.WCMWBindErr:
		return fabric.StatusLocalProtection, vendorErr
	case verbs.WCLocQPOpErr:
		// Nothing that Post lets through is wrong for a queue pair of this
		// kind, except a local key (rdma_rxe of Linux 6.1).
		return fabric.StatusLocalProtection, vendorErr
	case verbs.WCFlushErr:
		return fabric.StatusFlushed, vendorErr
	case verbs.WCRemAccessErr:
		return fabric.StatusRemoteAccess, vendorErr
	case verbs.WCRemInvReqErr, verbs.WCBadRespErr:
		return fabric.StatusRemoteInvalid, vendorErr
	case verbs.WCRemOpErr, verbs.WCRemAbortErr:
		return fabric.StatusRemoteOp, vendorErr
	case verbs.WCRetryExcErr, verbs.WCRespTimeoutErr:
		return fabric.StatusPeerGone, vendorErr
	case verbs.WCRNRRetryExcErr:
		return fabric.StatusNotReady, vendorErr
	}
	if vendorErr == 0 {
		vendorErr = uint32(s)
	}
	return fabric.StatusUnknown, vendorErr
}
