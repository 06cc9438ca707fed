// Package links opens the links of this process by name, reports which of them work here,
// chooses one for a peer, and connects two endpoints through the job.
//
// [Open] takes "shm", "tcp" and "ibv" (also called "verbs"). [Probe] tries all links and
// returns the reason if one does not work. Two ranks exchange an [Offer], and [Choose]
// derives the same link from both on either side. [Connect] exchanges the endpoints'
// addresses through the job and connects.
//
// The settings are declared in internal/settings; [FromSettings] and [FromEnv] convert them
// to [Options].
//
// # Files
//
//	links.go     names, Options, Open, Probe; open.go what each link makes of Options
//	env.go       settings
//	choose.go    Offer, Choose
//	rails.go     OpenRail: further links of a kind
//	connect.go   Connect, Loopback
//
// It may import fabric and its links, internal/settings, and internal/wireup.
package links
