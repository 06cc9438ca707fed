package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/ibv"
	"github.com/seed33544411/rma/internal/bench/host"
	"github.com/seed33544411/rma/internal/links"
)

// system returns the machine that info and doctor examine.
func system() host.System {
	s := host.Real()
	s.Verbs = verbsInfo
	s.Links = func() []host.Link {
		var out []host.Link
		_, o, err := links.FromEnv(links.Options{})
		for _, st := range links.Probe(o) {
			l := host.Link{Name: links.Kind(st.Name), Usable: st.Usable}
			if st.Reason != nil {
				l.Why = st.Reason.Error()
			}
			if err != nil {
				l.Detail = err.Error()
			}
			out = append(out, l)
		}
		return out
	}
	return s
}

func infoCommand(s streams) *cobra.Command {
	var format string
	var showSettings bool
	cmd := &cobra.Command{
		Use: "info", Short: "Show links, RDMA devices, caches and processors of this machine",
		Long: "Show the links that work on this host, the reasons why others do not, RDMA devices with\n" +
			"their ports and GID tables and the entry that would be chosen, and the facts of\n" +
			"the machine that measurements depend on.\n\n" +
			"With --settings, instead: show every setting in effect in this environment and its\n" +
			"origin; exit code 1 if a setting is invalid.",
		Example: "  rmabench info\n  rmabench info --format json\n  RMA_CONFIG=/etc/rma.conf rmabench info --settings", Args: noArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			if err := textOrJSON(format); err != nil {
				return err
			}
			if showSettings {
				return writeSettings(s, format)
			}
			in := host.Collect(system())
			if format == "json" {
				return encode(s, in)
			}
			return in.WriteText(s.out)
		},
	}
	cmd.Flags().StringVar(&format, "format", "text", "text or json")
	cmd.Flags().BoolVar(&showSettings, "settings", false, "show the settings, their values and sources instead")
	return cmd
}

// doctorReport is what doctor --full writes: everything that a report of a problem needs.
type doctorReport struct {
	Info     host.Info         `json:"info"`
	Findings []host.Finding    `json:"findings"`
	Device   host.DeviceReport `json:"device"`
}

// fullReport examines the machine and one RDMA device of it.
func fullReport(device string) (r doctorReport, failed bool) {
	sys := system()
	r = doctorReport{Info: host.Collect(sys), Findings: host.Diagnose(sys)}
	r.Device = host.CheckDevice(func() (fabric.Link, string, error) {
		l, err := ibv.Open(ibv.Options{Device: device})
		if err != nil {
			return nil, "", err
		}
		return l, l.Choice(), nil
	})
	return r, host.Failed(r.Findings) || host.Failed(r.Device.Checks)
}

func (r *doctorReport) write(s streams) error {
	if err := errors.Join(r.Info.WriteText(s.out), host.WriteFindings(s.out, r.Findings)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.out, "\n%s\n%+v\n", r.Device.Choice, r.Device.Caps); err != nil {
		return err
	}
	return host.WriteFindings(s.out, r.Device.Checks)
}

// runFull prints the report in the format and writes it as JSON to a file, if one is named.
func runFull(s streams, device, format, file string) error {
	r, failed := fullReport(device)
	if file != "" {
		b, err := json.MarshalIndent(r, "", "  ")
		if err == nil {
			err = writeFile(file, append(b, '\n'))
		}
		if err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	var err error
	if format == "json" {
		err = encode(s, r)
	} else {
		err = r.write(s)
	}
	if err == nil && failed {
		err = errSilent
	}
	return err
}

func doctorCommand(s streams) *cobra.Command {
	var format, device, file string
	var full bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find obstacles for the links on this host, with their remedies",
		Long: "Check limits, permissions and settings that slow the links down or stop them;\n" +
			"print the command that resolves each problem. Nothing is changed.\n\n" +
			"With --full: also move data between two connections on an RDMA device, in every way\n" +
			"that the engine uses, and show what the machine and the device are. --out writes all\n" +
			"of it as JSON to a file, to be sent with a question.\n\n" +
			"Exit code: 0 if nothing fails (warnings are allowed), 1 otherwise.",
		Example: "  rmabench doctor\n  rmabench doctor --format json\n  rmabench doctor --full --device mlx5_0 --out report.json", Args: noArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			if err := textOrJSON(format); err != nil {
				return err
			}
			if full {
				return runFull(s, device, format, file)
			}
			if device != "" || file != "" {
				return usage(errors.New("--device and --out are for --full"))
			}
			fs := host.Diagnose(system())
			var err error
			if format == "json" {
				err = encode(s, fs)
			} else {
				err = host.WriteFindings(s.out, fs)
			}
			if err == nil && host.Failed(fs) {
				err = errSilent
			}
			return err
		},
	}
	cmd.Flags().StringVar(&format, "format", "text", "text or json")
	cmd.Flags().BoolVar(&full, "full", false, "also check an RDMA device, and show the machine")
	cmd.Flags().StringVar(&device, "device", "", "with --full: the RDMA device; default: the first usable one")
	cmd.Flags().StringVar(&file, "out", "", "with --full: write the report as JSON to this `file`")
	return cmd
}

func textOrJSON(format string) error {
	if format != "text" && format != "json" {
		return usage(fmt.Errorf("--format %q: want text or json", format))
	}
	return nil
}

func encode(s streams, v any) error {
	e := json.NewEncoder(s.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
