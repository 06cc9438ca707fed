package verbs

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests check abi_linux.h and the constants of this package against the system's
// header: a C program that includes both prints the differences.

// constants maps every exported constant of the types of the library's numbers to the
// library's name of it.
var constants = map[string]string{
	"AccessLocalWrite": "IBV_ACCESS_LOCAL_WRITE", "AccessRemoteWrite": "IBV_ACCESS_REMOTE_WRITE",
	"AccessRemoteRead": "IBV_ACCESS_REMOTE_READ", "AccessRemoteAtomic": "IBV_ACCESS_REMOTE_ATOMIC",
	"AccessMWBind": "IBV_ACCESS_MW_BIND", "AccessZeroBased": "IBV_ACCESS_ZERO_BASED",
	"AccessOnDemand": "IBV_ACCESS_ON_DEMAND", "AccessHugeTLB": "IBV_ACCESS_HUGETLB",
	"AccessRelaxedOrdering": "IBV_ACCESS_RELAXED_ORDERING",

	"RC": "IBV_QPT_RC", "UC": "IBV_QPT_UC", "UD": "IBV_QPT_UD",
	"StateReset": "IBV_QPS_RESET", "StateInit": "IBV_QPS_INIT", "StateRTR": "IBV_QPS_RTR", "StateRTS": "IBV_QPS_RTS",
	"StateSQD": "IBV_QPS_SQD", "StateSQE": "IBV_QPS_SQE", "StateErr": "IBV_QPS_ERR",
	"MTU256": "IBV_MTU_256", "MTU512": "IBV_MTU_512", "MTU1024": "IBV_MTU_1024", "MTU2048": "IBV_MTU_2048", "MTU4096": "IBV_MTU_4096",
	"MWType1": "IBV_MW_TYPE_1", "MWType2": "IBV_MW_TYPE_2",

	"PortNOP": "IBV_PORT_NOP", "PortDown": "IBV_PORT_DOWN", "PortInit": "IBV_PORT_INIT", "PortArmed": "IBV_PORT_ARMED",
	"PortActive": "IBV_PORT_ACTIVE", "PortActiveDefer": "IBV_PORT_ACTIVE_DEFER",
	"LinkUnspecified": "IBV_LINK_LAYER_UNSPECIFIED", "LinkInfiniBand": "IBV_LINK_LAYER_INFINIBAND", "LinkEthernet": "IBV_LINK_LAYER_ETHERNET",
	"TransportUnknown": "IBV_TRANSPORT_UNKNOWN", "TransportIB": "IBV_TRANSPORT_IB", "TransportIWARP": "IBV_TRANSPORT_IWARP",
	"AtomicNone": "IBV_ATOMIC_NONE", "AtomicHCA": "IBV_ATOMIC_HCA", "AtomicGlobal": "IBV_ATOMIC_GLOB",
	"GIDInfiniBand": "IBV_GID_TYPE_IB", "GIDRoCEv1": "IBV_GID_TYPE_ROCE_V1", "GIDRoCEv2": "IBV_GID_TYPE_ROCE_V2",

	"EventCQErr": "IBV_EVENT_CQ_ERR", "EventQPFatal": "IBV_EVENT_QP_FATAL", "EventQPReqErr": "IBV_EVENT_QP_REQ_ERR",
	"EventQPAccessErr": "IBV_EVENT_QP_ACCESS_ERR", "EventCommEst": "IBV_EVENT_COMM_EST", "EventSQDrained": "IBV_EVENT_SQ_DRAINED",
	"EventPathMig": "IBV_EVENT_PATH_MIG", "EventPathMigErr": "IBV_EVENT_PATH_MIG_ERR", "EventDeviceFatal": "IBV_EVENT_DEVICE_FATAL",
	"EventPortActive": "IBV_EVENT_PORT_ACTIVE", "EventPortErr": "IBV_EVENT_PORT_ERR", "EventLIDChange": "IBV_EVENT_LID_CHANGE",
	"EventPKeyChange": "IBV_EVENT_PKEY_CHANGE", "EventSMChange": "IBV_EVENT_SM_CHANGE", "EventSRQErr": "IBV_EVENT_SRQ_ERR",
	"EventSRQLimitReached": "IBV_EVENT_SRQ_LIMIT_REACHED", "EventQPLastWQEReached": "IBV_EVENT_QP_LAST_WQE_REACHED",
	"EventClientReregister": "IBV_EVENT_CLIENT_REREGISTER", "EventGIDChange": "IBV_EVENT_GID_CHANGE", "EventWQFatal": "IBV_EVENT_WQ_FATAL",

	"AttrState": "IBV_QP_STATE", "AttrCurState": "IBV_QP_CUR_STATE", "AttrSQDNotify": "IBV_QP_EN_SQD_ASYNC_NOTIFY",
	"AttrAccess": "IBV_QP_ACCESS_FLAGS", "AttrPKeyIndex": "IBV_QP_PKEY_INDEX", "AttrPort": "IBV_QP_PORT", "AttrQKey": "IBV_QP_QKEY",
	"AttrAV": "IBV_QP_AV", "AttrPathMTU": "IBV_QP_PATH_MTU", "AttrTimeout": "IBV_QP_TIMEOUT", "AttrRetryCount": "IBV_QP_RETRY_CNT",
	"AttrRNRRetry": "IBV_QP_RNR_RETRY", "AttrRQPSN": "IBV_QP_RQ_PSN", "AttrMaxReads": "IBV_QP_MAX_QP_RD_ATOMIC",
	"AttrAltPath": "IBV_QP_ALT_PATH", "AttrMinRNRTimer": "IBV_QP_MIN_RNR_TIMER", "AttrSQPSN": "IBV_QP_SQ_PSN",
	"AttrMaxReadsDest": "IBV_QP_MAX_DEST_RD_ATOMIC", "AttrPathMigration": "IBV_QP_PATH_MIG_STATE", "AttrCap": "IBV_QP_CAP",
	"AttrDestQPN": "IBV_QP_DEST_QPN",

	"OpWrite": "IBV_WR_RDMA_WRITE", "OpWriteWithImm": "IBV_WR_RDMA_WRITE_WITH_IMM", "OpSend": "IBV_WR_SEND",
	"OpSendWithImm": "IBV_WR_SEND_WITH_IMM", "OpRead": "IBV_WR_RDMA_READ", "OpCmpSwap": "IBV_WR_ATOMIC_CMP_AND_SWP",
	"OpFetchAdd": "IBV_WR_ATOMIC_FETCH_AND_ADD", "OpLocalInv": "IBV_WR_LOCAL_INV", "OpBindMW": "IBV_WR_BIND_MW",
	"OpSendWithInv": "IBV_WR_SEND_WITH_INV",
	"SendFence":     "IBV_SEND_FENCE", "SendSignaled": "IBV_SEND_SIGNALED", "SendSolicited": "IBV_SEND_SOLICITED", "SendInline": "IBV_SEND_INLINE",

	"WCWithGRH": "IBV_WC_GRH", "WCWithImm": "IBV_WC_WITH_IMM", "WCCsumOK": "IBV_WC_IP_CSUM_OK", "WCWithInv": "IBV_WC_WITH_INV",
	"WCSend": "IBV_WC_SEND", "WCWrite": "IBV_WC_RDMA_WRITE", "WCRead": "IBV_WC_RDMA_READ", "WCCompSwap": "IBV_WC_COMP_SWAP",
	"WCFetchAdd": "IBV_WC_FETCH_ADD", "WCBindMW": "IBV_WC_BIND_MW", "WCLocalInv": "IBV_WC_LOCAL_INV", "WCTSO": "IBV_WC_TSO",
	"WCRecv": "IBV_WC_RECV", "WCRecvWithImm": "IBV_WC_RECV_RDMA_WITH_IMM",

	"WCSuccess": "IBV_WC_SUCCESS", "WCLocLenErr": "IBV_WC_LOC_LEN_ERR", "WCLocQPOpErr": "IBV_WC_LOC_QP_OP_ERR",
	"WCLocEECOpErr": "IBV_WC_LOC_EEC_OP_ERR", "WCLocProtErr": "IBV_WC_LOC_PROT_ERR", "WCFlushErr": "IBV_WC_WR_FLUSH_ERR",
	"WCMWBindErr": "IBV_WC_MW_BIND_ERR", "WCBadRespErr": "IBV_WC_BAD_RESP_ERR", "WCLocAccessErr": "IBV_WC_LOC_ACCESS_ERR",
	"WCRemInvReqErr": "IBV_WC_REM_INV_REQ_ERR", "WCRemAccessErr": "IBV_WC_REM_ACCESS_ERR", "WCRemOpErr": "IBV_WC_REM_OP_ERR",
	"WCRetryExcErr": "IBV_WC_RETRY_EXC_ERR", "WCRNRRetryExcErr": "IBV_WC_RNR_RETRY_EXC_ERR", "WCLocRDDViolErr": "IBV_WC_LOC_RDD_VIOL_ERR",
	"WCRemInvRDReqErr": "IBV_WC_REM_INV_RD_REQ_ERR", "WCRemAbortErr": "IBV_WC_REM_ABORT_ERR", "WCInvEECNErr": "IBV_WC_INV_EECN_ERR",
	"WCInvEECStateErr": "IBV_WC_INV_EEC_STATE_ERR", "WCFatalErr": "IBV_WC_FATAL_ERR", "WCRespTimeoutErr": "IBV_WC_RESP_TIMEOUT_ERR",
	"WCGeneralErr": "IBV_WC_GENERAL_ERR", "WCTMErr": "IBV_WC_TM_ERR", "WCTMRndvIncomplete": "IBV_WC_TM_RNDV_INCOMPLETE",
}

// Types of exported constants that are not numbers of the library.
var ownTypes = map[string]bool{"Availability": true, "untyped int": true, "uint64": true}

// goConstants returns the lines of the C program that check the constants of this package.
func goConstants(t *testing.T, names map[string]string) string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") || strings.HasPrefix(f, "raw_") {
			continue
		}
		p, err := parser.ParseFile(fset, f, nil, 0)
		require.NoError(t, err)
		parsed = append(parsed, p)
	}
	// Constants have values even if imports are not resolved.
	pkg, _ := (&types.Config{Error: func(error) {}}).Check("verbs", fset, parsed, nil)
	var out strings.Builder
	found := 0
	for _, n := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(n).(*types.Const)
		if !ok || !c.Exported() || ownTypes[types.TypeString(c.Type(), func(*types.Package) string { return "" })] {
			continue
		}
		sys, ok := names[n]
		require.True(t, ok, "constant %s of type %s has no counterpart here", n, c.Type())
		v, exact := constant.Int64Val(constant.ToInt(c.Val()))
		require.True(t, exact, n)
		fmt.Fprintf(&out, "VALUE(%q, %d, %s)\n", n, v, sys)
		found++
	}
	require.Equal(t, len(names), found, "constants and their counterparts")
	return out.String()
}

var (
	headerValue    = regexp.MustCompile(`^#define (ABI_\w+) \d+ // (\w+)$`)
	headerOpen     = regexp.MustCompile(`^((?:struct|union) abi_\w+) \{ // (\w+)(\.\.\.)?$`)
	headerMember   = regexp.MustCompile(`^\t+((?:const )?(?:struct |union )?\w+ \*?)(\w+)(\[\w+\])?; // (\S+)$`)
	headerPointer  = regexp.MustCompile(`^\t+(.+\()\*(\w+)(\)\(.+\)); // (\S+)$`)
	headerFunction = regexp.MustCompile(`^\tX\([\d.]+, (.+?), (\w+), (\(.*\))\)(?: \\)?$`)
	headerOpaque   = regexp.MustCompile(`^(struct abi_\w+); // (\w+)$`)
	headerTag      = regexp.MustCompile(`(struct|union) abi_\w+`)
	headerRest     = regexp.MustCompile(`^(//.*|#ifndef \w+|#define RMA_\w+|#include <(stddef|stdint|sys/types)\.h>|#endif|struct abi_\w+;( // \w+)?|` +
		`#define ABI_\w+\(X\) \\|\t+(union|struct) \{|\t+\};|)$`)
)

// headerChecks returns the lines of the C program that check abi_linux.h. A line of the
// header that is not understood is an error: nothing goes unchecked.
func headerChecks(header string) (string, error) {
	var out strings.Builder
	tags := map[string]string{} // tag here: tag of the system
	lines := strings.Split(header, "\n")
	for _, l := range lines {
		if m := headerOpen.FindStringSubmatch(l); m != nil {
			tags[m[1]] = strings.Fields(m[1])[0] + " " + m[2]
		} else if m := headerOpaque.FindStringSubmatch(l); m != nil {
			tags[m[1]] = "struct " + m[2]
		}
	}
	var bad error
	theirs := func(typ string) string {
		return headerTag.ReplaceAllStringFunc(typ, func(tag string) string {
			if tags[tag] == "" {
				bad = fmt.Errorf("%s has no counterpart", tag)
			}
			return tags[tag]
		})
	}
	ours, sys, longer := "", "", false
	for i, l := range lines {
		if m := headerValue.FindStringSubmatch(l); m != nil {
			fmt.Fprintf(&out, "VALUE(%q, %s, %s)\n", m[1], m[1], m[2])
		} else if m := headerOpen.FindStringSubmatch(l); m != nil {
			ours, sys, longer = m[1], tags[m[1]], m[3] != ""
		} else if l == "};" {
			check := "SIZE"
			if longer {
				check = "PREFIX"
			}
			fmt.Fprintf(&out, "%s(%s, %s)\nALIGN(%s, %s)\n", check, ours, sys, ours, sys)
		} else if m := headerMember.FindStringSubmatch(l); m != nil {
			typ, name, array, field := strings.TrimSpace(m[1]), m[2], m[3], m[4]
			if field == "-" {
				continue
			}
			fmt.Fprintf(&out, "MEMBER(%s, %s, %s, %s)\n", ours, name, sys, field)
			switch {
			case strings.HasSuffix(typ, "*") || strings.Contains(typ, " "):
				fmt.Fprintf(&out, "TYPE(%s, %s, %s, %s, %s)\n", ours, name, theirs(typ), sys, field)
			case array != "":
				fmt.Fprintf(&out, "SIGN(%s, %s[0], %s, %s[0])\n", ours, name, sys, field)
			default:
				fmt.Fprintf(&out, "SIGN(%s, %s, %s, %s)\n", ours, name, sys, field)
			}
		} else if m := headerPointer.FindStringSubmatch(l); m != nil {
			fmt.Fprintf(&out, "MEMBER(%s, %s, %s, %s)\n", ours, m[2], sys, m[4])
			fmt.Fprintf(&out, "TYPE(%s, %s, COMMAS(%s*%s), %s, %s)\n", ours, m[2], theirs(m[1]), theirs(m[3]), sys, m[4])
		} else if m := headerFunction.FindStringSubmatch(l); m != nil {
			fmt.Fprintf(&out, "FUNCTION(%s, %s %s)\n", m[2], theirs(m[1]), theirs(m[3]))
		} else if !headerRest.MatchString(l) {
			return "", fmt.Errorf("line %d of the header is not understood: %s", i+1, l)
		}
	}
	return out.String(), bad
}

const abiProgram = `
#include <infiniband/verbs.h>
#include "abi.h"
#include <stdio.h>
%s
#define OF(s, f) (((s *)0)->f)
#define SAME(what, a, b, fmt, ...) do { \
	long long x = (long long)(a), y = (long long)(b); \
	if (x != y) printf(fmt ": " what " %%lld, the system's %%lld\n", __VA_ARGS__, x, y); } while (0);
#define VALUE(name, ours, theirs) SAME("value", ours, theirs, "%%s", name)
#define SIZE(s, t) SAME("size", sizeof(s), sizeof(t), "%%s", #s)
#define PREFIX(s, t) if (sizeof(s) > sizeof(t)) SIZE(s, t)
#define ALIGN(s, t) SAME("alignment", _Alignof(s), _Alignof(t), "%%s", #s)
#define MEMBER(s, f, t, g) \
	SAME("offset", offsetof(s, f), offsetof(t, g), "%%s.%%s", #s, #f) \
	SAME("size", sizeof OF(s, f), sizeof OF(t, g), "%%s.%%s", #s, #f)
#define SIGN(s, f, t, g) \
	SAME("negative", (__typeof__(OF(s, f)))-1 < 0, (__typeof__(OF(t, g)))-1 < 0, "%%s.%%s", #s, #f)
#define COMMAS(...) __VA_ARGS__
#define TYPE(s, f, type, t, g) \
	SAME("type", 1, __builtin_types_compatible_p(type, __typeof__(OF(t, g))), "%%s.%%s", #s, #f)
#define FUNCTION(f, ...) SAME("type", 1, __builtin_types_compatible_p(__VA_ARGS__, __typeof__(f)), "%%s", #f)
int main(void)
{
%s
	return 0;
}
`

// compareABI returns the differences between a header, constants and the system's header.
func compareABI(t *testing.T, header, constants string) []string {
	t.Helper()
	checks, err := headerChecks(header)
	if err != nil {
		return []string{err.Error()}
	}
	var undef strings.Builder // the system's header defines some functions as macros
	for _, l := range strings.Split(header, "\n") {
		if m := headerFunction.FindStringSubmatch(l); m != nil {
			fmt.Fprintf(&undef, "#undef %s\n", m[2])
		}
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/abi.h", []byte(header), 0o600))
	require.NoError(t, os.WriteFile(dir+"/compare.c", fmt.Appendf(nil, abiProgram, undef.String(), checks+constants), 0o600))
	out, err := exec.Command("cc", "-w", "-o", dir+"/compare", dir+"/compare.c").CombinedOutput()
	if err != nil {
		return []string{fmt.Sprintf("does not compile: %v: %s", err, out)}
	}
	out, err = exec.Command(dir + "/compare").CombinedOutput()
	require.NoError(t, err)
	if out = bytes.TrimSpace(out); len(out) == 0 {
		return nil
	}
	return strings.Split(string(out), "\n")
}

// skipInGuest skips tests that do not depend on a device and that a guest's emulated
// processor makes slow: the host ran them.
func skipInGuest(t *testing.T) {
	t.Helper()
	if os.Getenv("RMA_SOFTROCE") != "" {
		t.Skip("compiles C: for the host")
	}
}

// needSystemHeader skips the test if the system's header is not installed.
func needSystemHeader(t *testing.T) string {
	t.Helper()
	skipInGuest(t)
	why := ""
	if _, err := exec.LookPath("cc"); err != nil {
		why = "no C compiler (gcc, libc6-dev)"
	} else {
		c := exec.Command("cc", "-fsyntax-only", "-x", "c", "-")
		c.Stdin = strings.NewReader("#include <infiniband/verbs.h>\n")
		if out, err := c.CombinedOutput(); err != nil {
			why = fmt.Sprintf("no <infiniband/verbs.h> (libibverbs-dev): %s", out)
		}
	}
	if why == "" {
		b, err := os.ReadFile("abi_linux.h")
		require.NoError(t, err)
		return string(b)
	}
	why = "abi_linux.h was not compared with the system's header: " + why
	if os.Getenv("RMA_REQUIRE_RDMA") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}

// The program compiles the same with and without the RDMA headers: Go's build cache would
// not notice their installation.
func TestNoHeaderOfRDMAIsIncluded(t *testing.T) {
	files, err := filepath.Glob("*_linux.[ch]")
	require.NoError(t, err)
	require.Len(t, files, 4)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		require.NotRegexp(t, `(#\s*include|__has_include).*(infiniband|rdma)/`, string(b), f)
	}
}

func TestABI(t *testing.T) {
	require.Empty(t, compareABI(t, needSystemHeader(t), goConstants(t, constants)))
}

// TestABIDifferencesAreFound feeds wrong layouts to the comparison of TestABI.
func TestABIDifferencesAreFound(t *testing.T) {
	system := needSystemHeader(t)
	wrong := []struct{ name, old, new, want string }{
		{"a member missing", "\tuint32_t bad_pkeys; // bad_pkey_cntr\n", "", "struct abi_port_attr.bad_qkeys: offset"},
		{"members swapped", "uint32_t rq_psn; // rq_psn\n\tuint32_t sq_psn; // sq_psn", "uint32_t rq_psn; // sq_psn\n\tuint32_t sq_psn; // rq_psn",
			"struct abi_qp_attr.rq_psn: offset"},
		{"a member too narrow before padding", "uint64_t addr; // addr\n\tuint32_t length", "uint32_t addr; // addr\n\tuint32_t length", "struct abi_sge.addr: size"},
		{"another sign", "int32_t max_cqe; // max_cqe", "uint32_t max_cqe; // max_cqe", "struct abi_device_attr.max_cqe: negative"},
		{"a structure too short", "\tuint32_t rate_limit; // rate_limit\n", "", "struct abi_qp_attr: size"},
		{"a structure too long", "\tuint32_t handle; // handle\n\tuint32_t num;", "\tuint32_t handle; // handle\n\tuint64_t more[99]; // -\n\tuint32_t num;",
			"struct abi_qp: size"},
		{"a pointer to another", "struct abi_cq *recv_cq; // recv_cq\n\tstruct abi_srq *srq; // srq\n\tuint32_t", "struct abi_qp *recv_cq; // recv_cq\n\tstruct abi_srq *srq; // srq\n\tuint32_t",
			"struct abi_qp.recv_cq: type"},
		{"an operation at another place", "void *unused2[7]; // -", "void *unused2[6]; // -", "struct abi_context_ops.post_send: offset"},
		{"an operation of other arguments", "(*poll_cq)(struct abi_cq *, int, ", "(*poll_cq)(struct abi_cq *, long, ", "struct abi_context_ops.poll_cq: type"},
		{"a function of other arguments", "ibv_resize_cq, (struct abi_cq *, int)", "ibv_resize_cq, (struct abi_cq *, long)", "ibv_resize_cq: type"},
		{"a function of another result", "X(1.1, int, ibv_dealloc_pd", "X(1.1, void, ibv_dealloc_pd", "ibv_dealloc_pd: type"},
		{"another alignment", "\tuint64_t words[2]; // -\n", "", "struct abi_route: alignment"},
		{"another number", "#define ABI_EVENT_SRQ_ERR 14", "#define ABI_EVENT_SRQ_ERR 15", "ABI_EVENT_SRQ_ERR: value 15, the system's 14"},
	}
	header, constants := system, goConstants(t, constants)
	for _, c := range wrong {
		require.Equal(t, 1, strings.Count(header, c.old), c.name)
		header = strings.Replace(header, c.old, c.new, 1)
	}
	constants = strings.Replace(constants, "IBV_QPT_RC", "IBV_QPT_UC", 1)
	found := strings.Join(compareABI(t, header, constants), "\n")
	require.Contains(t, found, "RC: value 2, the system's 3", "a constant of Go")
	for _, c := range wrong {
		require.Contains(t, found, c.want, c.name)
	}
	require.Contains(t, compareABI(t, strings.Replace(system, "// lmc", "// lmcc", 1), constants)[0], "does not compile", "a name that the system lacks")
	require.Contains(t, compareABI(t, strings.Replace(system, "lmc; // lmc", "lmc;", 1), constants)[0], "is not understood", "a line without a counterpart")
}
