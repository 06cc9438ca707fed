package main

// suite is the tests of another project, or of a package of the standard library.
type suite struct {
	name    string
	module  string   // path@version; empty: of the standard library
	pkgs    []string // below the module, or of the standard library
	skip    string   // tests that need the internet, or take very long
	edits   []edit
	differs map[string]string // tests that may fail over rmanet and not over sockets, and why
}

// edit replaces text in a file of the suite.
type edit struct{ file, old, new string }

const (
	aSocket   = "asserts that it has a socket"
	noFIPS    = "under GODEBUG=fips140=only no engine opens: the job's server is spoken to in AES-GCM with counted nonces"
	closeHalf = "interface{ CloseWrite() error }"
)

// suites are what rmanet is held against. Versions are those that the exceptions are
// known for.
var suites = []suite{
	{name: "net/http", pkgs: []string{"net/http"}, skip: "TestLinuxSendfile|TestOmitHTTP2$", // a socket's call; a run of all others
		edits: []edit{
			{"net/http/serve_test.go", "(*net.TCPConn).CloseWrite()", "(" + closeHalf + ").CloseWrite()"},
			{"net/http/main_test.go", `strings.Contains(stack, "created by net.startServer") ||`, `strings.Contains(stack, "created by net.startServer") || strings.Contains(stack, "seed33544411") ||`},
		},
		differs: map[string]string{
			"TestTransportRequestWriteRoundTrip": aSocket, "TestHijackAfterCloseNotifier": aSocket,
		}},
	{name: "net/http/httputil", pkgs: []string{"net/http/httputil"},
		differs: map[string]string{"TestReverseProxyWebSocketHalfTCP": aSocket}},
	{name: "net/http/httptest", pkgs: []string{"net/http/httptest"}},
	{name: "net/rpc", pkgs: []string{"net/rpc", "net/rpc/jsonrpc"},
		edits: []edit{{"net/rpc/server_test.go", "(*net.TCPConn).CloseWrite()", "(" + closeHalf + ").CloseWrite()"}}},
	{name: "net/smtp", pkgs: []string{"net/smtp"}},
	{name: "net/textproto", pkgs: []string{"net/textproto"}},
	{name: "crypto/tls", pkgs: []string{"crypto/tls"},
		skip: "TestBogoSuite|TestVerifyHostname|TestRealResumption",
		differs: map[string]string{
			"TestFIPSServerProtocolVersion": noFIPS, "TestFIPSServerCipherSuites": noFIPS, "TestFIPSServerCurves": noFIPS,
			"TestFIPSServerSignatureAndHash": noFIPS, "TestFIPSClientHello": noFIPS, "TestFIPSCertAlgs": noFIPS,
		}},
	{name: "x/crypto/ssh", module: "golang.org/x/crypto@v0.48.0", pkgs: []string{"ssh", "ssh/agent"}},
	{name: "x/net/http2", module: "golang.org/x/net@v0.50.0", pkgs: []string{"http2", "http2/h2c"}},
	{name: "x/net/websocket", module: "golang.org/x/net@v0.50.0", pkgs: []string{"websocket"}},
	{name: "yamux", module: "github.com/hashicorp/yamux@v0.1.2", pkgs: []string{"."}},
	{name: "smux", module: "github.com/xtaci/smux@v1.5.34", pkgs: []string{"."}},
	{name: "grpc", module: "google.golang.org/grpc@v1.79.0", pkgs: []string{".", "internal/transport", "test"},
		edits: []edit{{"internal/leakcheck/leakcheck.go", `"testing.(*M).",`, `"testing.(*M).", "seed33544411",`}},
		differs: map[string]string{
			"Test/TCPUserTimeout": aSocket, "Test/CZSocketMetricsSocketOption": aSocket,
		}},
	{name: "raft", module: "github.com/hashicorp/raft@v1.7.3", pkgs: []string{"."}, skip: "TestRaft_Integ|TestRaft_",
		edits: []edit{
			{"tcp_transport.go", "listener  *net.TCPListener", "listener  net.Listener"},
			{"tcp_transport.go", "list.(*net.TCPListener)", "list"},
		},
		differs: map[string]string{
			"TestTCPTransport_BadAddr":                                "the hook says 127.0.0.1 for 0.0.0.0",
			"TestTCPTransport_EmptyAddr":                              "the hook says 127.0.0.1 for 0.0.0.0",
			"TestNetworkTransport_AppendEntriesPipeline_CloseStreams": "a race of the test, which fails over sockets, too: it does not wait for the other side's goroutine",
		}},
}
