package verbs_test

import (
	"fmt"
	"log"
	"net/netip"

	"github.com/seed33544411/rma/verbs"
)

// Prints the devices of this host and their ports. Without a library or a device the list
// is empty, and Support returns the reason.
func Example() {
	if s := verbs.Support(); s.Availability != verbs.Available {
		fmt.Println("verbs:", s)
		return
	}
	devices, err := verbs.Devices()
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range devices {
		ctx, err := verbs.Open(d.Name)
		if err != nil {
			log.Print(err)
			continue
		}
		if port, err := ctx.QueryPort(1); err == nil {
			fmt.Println(d.Name, port.State, port.ActiveMTU)
		}
		_ = ctx.Close()
	}
}

// A RoCE port sends from a routable address of version 2.
func ExampleChooseGID() {
	gid := func(s string) verbs.GID { return verbs.GID(netip.MustParseAddr(s).As16()) }
	c, err := verbs.ChooseGID([]verbs.GIDEntry{
		{Index: 0, GID: gid("fe80::5054:ff:fe12:3456"), Type: verbs.GIDRoCEv1, NetDev: "eth0"},
		{Index: 1, GID: gid("fe80::5054:ff:fe12:3456"), Type: verbs.GIDRoCEv2, NetDev: "eth0"},
		{Index: 2, GID: gid("::ffff:10.0.0.7"), Type: verbs.GIDRoCEv1, NetDev: "eth0"},
		{Index: 3, GID: gid("::ffff:10.0.0.7"), Type: verbs.GIDRoCEv2, NetDev: "eth0"},
	}, -1)
	fmt.Println(c.Chosen.Index, c.Chosen.GID.Addr(), c.Chosen.Type, err)
	for _, v := range c.Verdicts {
		fmt.Println(v.Index, v.Score)
	}
	// Output:
	// 3 10.0.0.7 RoCE v2 <nil>
	// 0 10
	// 1 100
	// 2 65
	// 3 155
}
