// Package links opens the links of this process by name, says which of them
// work here, chooses one for a peer, and joins two endpoints through the job.
//
// [Open] knows "shm", "tcp" and "ibv" (also called "verbs"); [Probe] tries
// them all and gives the reason where one does not work; two ranks exchange an
// [Offer] and [Choose] from both the same link; [Connect] exchanges the
// endpoints' addresses through the job and connects.
//
// What a user may set is declared in internal/settings; [FromSettings] and
// [FromEnv] make [Options] of it.
//
// # Files
//
//	links.go     names, Options, Open, Probe; one open_*.go file a link
//	env.go       settings
//	choose.go    Offer, Choose
//	connect.go   Connect, Loopback
//
// It may import fabric and its links, internal/settings, and internal/wireup.
package links
