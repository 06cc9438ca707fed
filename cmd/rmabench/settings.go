package main

import (
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/settings"
)

// setting is one line of info --settings. Name, value and origin are stable.
type setting struct {
	Name   string `json:"name"`
	Env    string `json:"variable"`
	Value  string `json:"value"` // as written; empty: see default
	Else   string `json:"otherwise,omitempty"`
	Origin string `json:"origin"` // default, file or env
	At     string `json:"at,omitempty"`
}

// writeSettings writes the settings of an engine without a Config on this machine. A wrong
// setting is written as well, and is a failure.
func writeSettings(s streams, format string) error {
	v, wrong := settings.Environment()
	_, err := links.TableOf(v)
	wrong = errors.Join(wrong, err)
	var list []setting
	for _, x := range v.All() {
		if x.Group == settings.Tests || x.Group == settings.Job && x.Origin == settings.Default {
			continue
		}
		one := setting{Name: x.Name(), Env: x.Env, Value: x.Shown(), Origin: x.Origin.String(), At: x.At}
		if x.Text == "" {
			one.Value, one.Else = "", x.Shown()
		}
		list = append(list, one)
	}
	if format == "json" {
		err = encode(s, list)
	} else {
		w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "setting\tvalue\torigin")
		for _, x := range list {
			value, origin := x.Value, x.Origin
			if value == "" {
				value = x.Else
			}
			if x.At != "" {
				origin += " (" + x.At + ")"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", x.Name, value, origin)
		}
		err = w.Flush()
	}
	v.WarnUnknown(s.err, "rmabench")
	if err == nil && wrong != nil {
		err = wrong
	}
	return err
}
