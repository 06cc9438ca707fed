// Package wireup connects the ranks of a job: every rank joins a small wire-up server over a
// Unix or TCP socket and exchanges through it the data that links need before they can
// communicate themselves (addresses, keys). It is used for set-up only, not on the data
// path.
//
//	rank 0 ──┐
//	rank 1 ──┼── Server (run by rmarun, by `rmabench serve`, or inside rank 0)
//	rank n ──┘
//
// A rank holds a [Job]. It publishes values under keys ([Job.Put]), reads values of others
// ([Job.Get], which waits), withdraws its own ([Job.Take]), exchanges values with all ranks
// ([Job.AllGather], [Job.Barrier], [Job.Exchange]), sends a value to another rank
// ([Job.Send]), and is notified when a rank or the job has ended ([Job.Gone], [Job.Done]).
// [Job.Hung] reports a hung rank to the launcher. Without a job in the environment a
// process is rank 0 of 1 and everything works in the same way, in memory.
//
// # Wire format
//
// Little-endian. Every frame is
//
//	length of the rest (4) | type (1) | body
//
// and its length is bounded: 256 bytes before the peer has proved that it knows the job's
// token, [MaxValue] plus the key in frames to the server, [MaxGather] in frames to the
// rank. The handshake is
//
//	server → rank   hello    "RMAW" | version (2) | nonce (32)
//	rank → server   join     "RMAW" | version (2) | rank (4) | size (4) | nonce (32) | mac (32)
//	server → rank   welcome  mac (32)        or   refuse  code (1) | version (2) | text
//
// The macs are HMAC-SHA256 under the token over both nonces and the side's claims, so that
// each side proves knowledge of the token and neither sends it. Inside TLS ([LoadTLS]) they
// cover the session, too: a proof is not valid in another session.
//
// All data after the handshake travels in sealed records, in both directions:
//
//	length of the rest (4), top bit: the last one | AES-256-GCM of some of the frames | tag (16)
//
// The keys, one for each direction, are derived from the token and the handshake by HKDF;
// the nonces are the records' numbers. Without the token an attacker can neither read the
// exchanged data nor change, repeat, reorder or omit any of it; a stream that ends without
// its last record was truncated. An empty token proves nothing and hides nothing.
//
// # Invariants
//
//   - A request is answered exactly once, or the connection ends.
//   - An exchange of all ranks succeeds for all, or fails for all with one reason: the
//     server decides, once, and keeps its decision until every rank has received it.
//   - The server never waits for a client. It accepts no further requests of a client that
//     does not read its answers, and no rank can make it queue more than a bound for
//     another: a send is answered when the other's connection has taken it. The server drops
//     a client that exceeds a bound, never its victim. A process that is stopped keeps its
//     place as long as its host answers. A client that has not authenticated occupies one of
//     a bounded number of places for a bounded time.
//   - Every wait ends: by its value, by its context, by Config.Timeout, because the rank
//     that it waits for is gone, or because the job is torn down.
//
// # Files
//
//	codec.go    frames and messages
//	auth.go     the challenge, and the keys
//	seal.go     records
//	config.go   Config and the environment
//	job.go      the rank's side; call.go its requests; exchange.go exchanges of all
//	            ranks; send.go values sent from rank to rank
//	own.go      a rank that runs the server itself; admit.go admission
//	secret.go   tokens; tls.go certificates
//	server.go   the wire-up server; client.go its side of a rank; state.go its
//	            state; gather.go exchanges
//	errors.go   errors
//
// It may import nothing of the project. Tests live beside the code.
package wireup
