package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/internal/bench/host"
	"github.com/seed33544411/rma/internal/bench/session"
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
			l := host.Link{Name: session.Display(st.Name), Usable: st.Usable}
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

func doctorCommand(s streams) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find obstacles for the links on this host, with their remedies",
		Long: "Check limits, permissions and settings that slow the links down or stop them;\n" +
			"print the command that resolves each problem. Nothing is changed.\n\n" +
			"Exit code: 0 if nothing fails (warnings are allowed), 1 otherwise.",
		Example: "  rmabench doctor\n  rmabench doctor --format json", Args: noArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			if err := textOrJSON(format); err != nil {
				return err
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
