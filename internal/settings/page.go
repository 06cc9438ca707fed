package settings

import (
	"fmt"
	"strings"
)

const pageHead = `<!-- Generated from internal/settings by "go generate ./internal/settings": change it there. -->

# Configuration

Every setting there is. Most have a field in [rma.Config](../config.go); all have a variable, and all but those
that describe a single process a name in settings files. Nothing needs to be set: a nil Config is usable.

## Where a value comes from

Later origins override earlier ones:

| origin | meaning | for |
|---|---|---|
| default | this page | everybody |
| code | a field of ` + "`rma.Config`; `Config.Settings[\"name\"]`" + ` for settings without a field. The zero value of a field means the default | the program's author |
| file | a line in the file that ` + "`RMA_CONFIG`, else `Config.File`" + `, names | who runs the machine |
| env | the variable, if it is not empty | the user who starts this run |

The author of a program knows least about the machine that it will run on, the user who starts it most: an operator can
change everything without a new binary, and a single run without editing the file. ` + "`rmabench info --settings`" + ` prints
the settings in effect in the present environment, with their origins; an engine logs those that are not defaults
("rma: setting", [observability.md](observability.md#log)).

## Files

    # comments begin a line, or follow a space
    fabric       = tcp
    tcp_bind     = 10.0.0.7      # the fast network
    peer_timeout = 500ms
    profiles     = "/var/lib/rma # figures"

One setting per line, ` + "`name = value`" + `. The name is the variable's without ` + "`RMA_`" + `, in lower case. A value that needs a #
after a space, or spaces at its ends, stands in double quotes, as a Go string. A name may appear once. UTF-8, at most
256 KiB. A file that is named and cannot be read is an error.

## Errors

An invalid value is an error of ` + "`Open`" + `, not ignored; all are reported together, each with its place:

    rma: open: config: 3 settings are wrong:
    	Config.Depth = 70000: want a number of requests, 16 … 65536
    	/etc/rma.conf:4: unknown setting "fabrik": did you mean fabric?
    	RMA_PEER_TIMEOUT="2": want a duration, such as 50ms or 2s, at least 1ms

Variables that begin with ` + "`RMA_`" + ` and are not on this page are usually misspelt. They are a warning in the log, with the
nearest name; under ` + "`RMA_STRICT=1`" + ` they are errors, too. Not reported are ` + "`RMA_TEST_*`" + `, which tests use for their child
processes, and the variables that Kubernetes sets for services with names such as "rma" (` + "`RMA_SERVICE_HOST`, `RMA_PORT_7471_TCP`" + `).

## Values

Durations are written as in Go (` + "`50ms`, `2s`, `1m30s`" + `), sizes with K, M and G for powers of 1024, switches as 1 or 0
(also true, false, on, off, yes, no).
`

const foreignHead = `
Variables of others that are read, never set, where ` + "`RMA_RANK`" + ` is not; [launching.md](launching.md) tells which of them
count:

| variable | set by | what is taken from it |
|---|---|---|
`

var groupHeads = [numGroups]string{
	Engine: "## Engine\n",
	Links: `## Links

For experts. In code: ` + "`Config.Settings: map[string]string{\"ibv_gid_index\": \"3\"}`" + `.
`,
	Job: `## Job

Which process of which job this is ([launching.md](launching.md)): launchers set these, and Config.Job overrides them. They
are not read from files or Config.Settings.
`,
	Tests: `## Tests

Read by the project's tests and by the SoftRoCE harness ([softroce.md](softroce.md)) only, from the environment.
`,
}

// Page is the reference page, docs/configuration.md.
func Page() string {
	var b strings.Builder
	b.WriteString(pageHead)
	group := numGroups
	for _, s := range All() {
		if s.Group != group {
			if group == Job {
				foreign(&b)
			}
			group = s.Group
			b.WriteString("\n" + groupHeads[group] + "\n")
			if group <= Links {
				b.WriteString("| setting | value | default | effect; reason for the default |\n|---|---|---|---|\n")
			} else {
				b.WriteString("| variable | value | default | meaning |\n|---|---|---|---|\n")
			}
		}
		s.row(&b)
	}
	return b.String()
}

// foreign lists what launchers say.
func foreign(b *strings.Builder) {
	b.WriteString(foreignHead)
	for _, f := range ForeignVars {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", f.Env, f.By, f.What)
	}
}

func (s *Setting) row(b *strings.Builder) {
	fmt.Fprintf(b, "| `%s`", s.Env)
	if s.Group <= Links && !s.EnvOnly {
		fmt.Fprintf(b, "<br>`%s`", s.Name())
	}
	if s.Field != "" {
		fmt.Fprintf(b, "<br>`Config.%s`", s.Field)
	}
	def := s.Else
	if s.Default != "" {
		def = "`" + s.Default + "`"
	}
	fmt.Fprintf(b, " | %s | %s | %s", s.Type.page(), def, s.What)
	if s.Why != "" {
		fmt.Fprintf(b, ". *Why:* %s", s.Why)
	}
	fmt.Fprintf(b, " (`%s`, since %s) |\n", s.Where, s.Since)
}

// page is Want for the reference page.
func (t *Type) page() string {
	if t.Kind == Enum {
		return "`" + strings.Join(t.Values, "`, `") + "`"
	}
	return t.Want()
}
