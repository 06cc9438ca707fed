package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/seed33544411/rma/internal/bench/compare"
	"github.com/seed33544411/rma/internal/bench/host"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/verbs"
)

// verbsInfo queries libibverbs and every device.
func verbsInfo() host.Verbs {
	sup := verbs.Support()
	v := host.Verbs{Usable: sup.Availability == verbs.Available, Reason: sup.String()}
	if !v.Usable {
		return v
	}
	devs, err := verbs.Devices()
	if err != nil {
		v.Usable, v.Reason = false, err.Error()
		return v
	}
	for _, d := range devs {
		v.Devices = append(v.Devices, deviceInfo(d))
	}
	return v
}

func deviceInfo(d verbs.Device) host.Device {
	out := host.Device{Name: d.Name, NetDev: d.NetDevs}
	ctx, err := verbs.Open(d.Name)
	if err != nil {
		out.Err = err.Error()
		return out
	}
	defer ctx.Close()
	a, err := ctx.QueryDevice()
	if err != nil {
		out.Err = err.Error()
		return out
	}
	out.Limits = fmt.Sprintf("%d SGE, %d requests a queue, %d completions a queue, %d reads in flight, atomics: %v",
		a.MaxSGE, a.MaxQPWR, a.MaxCQE, a.MaxReadInitiate, a.AtomicCap)
	for n := 1; n <= a.Ports; n++ {
		out.Ports = append(out.Ports, portInfo(ctx, n))
	}
	return out
}

func portInfo(ctx *verbs.Context, n int) host.Port {
	out := host.Port{Number: n}
	p, err := ctx.QueryPort(n)
	if err != nil {
		out.Choice = err.Error()
		return out
	}
	out.State, out.LinkLayer, out.MTU = p.State.String(), p.LinkLayer.String(), p.ActiveMTU.String()
	table, err := ctx.GIDs(n)
	if err != nil {
		out.Choice = err.Error()
		return out
	}
	forced := -1
	if s := os.Getenv(links.EnvGIDIndex); s != "" {
		if i, err := strconv.Atoi(s); err == nil {
			forced = i
		}
	}
	c, err := verbs.ChooseGID(table, forced)
	out.Choice = c.Reason
	if err != nil {
		out.Choice = err.Error()
	}
	for _, e := range c.Verdicts {
		out.GIDs = append(out.GIDs, host.GID{
			Index: e.Index, GID: e.GID.String(), Type: e.Type.String(), NetDev: e.NetDev,
			Chosen: err == nil && e.Index == c.Chosen.Index, Why: e.Reason,
		})
	}
	return out
}

// verbsPlace returns the adapter, and its GID, that the link to ranks of this host uses: the
// adapter that the environment names, else the first.
func verbsPlace() (compare.Place, error) {
	device := os.Getenv(links.EnvDevice)
	if device == "" {
		devs, err := verbs.Devices()
		if err != nil {
			return compare.Place{}, err
		}
		if len(devs) > 0 {
			device = devs[0].Name
		}
	}
	return gidOf(device)
}

// gidOf returns port 1 of a device with its GID.
func gidOf(device string) (at compare.Place, err error) {
	ctx, err := verbs.Open(device)
	if err != nil {
		return at, err
	}
	defer ctx.Close()
	table, err := ctx.GIDs(1)
	if err != nil {
		return at, err
	}
	forced := -1
	if i, err := strconv.Atoi(os.Getenv(links.EnvGIDIndex)); err == nil {
		forced = i
	}
	c, err := verbs.ChooseGID(table, forced)
	return compare.Place{Device: device, DevicePort: 1, GID: c.Chosen.Index}, err
}
