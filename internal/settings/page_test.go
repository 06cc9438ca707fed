package settings

import (
	"fmt"
	"strings"
)

const pageHead = `<!-- Generated from internal/settings by "go generate ./internal/settings": change it there. -->

# Configuration

For users and administrators of programs that use rma: all settings. Each setting is an environment variable. Most are also a
field of [rma.Config](../config.go), and all that do not describe a single process can stand in a settings file. No setting is
required: a nil Config is usable.

## Where a value comes from

Later origins override earlier ones:

| origin | meaning | used by |
|---|---|---|
| default | this page | |
| code | a field of ` + "`rma.Config`; `Config.Settings[\"name\"]`" + ` for settings without a field. The zero value of a field means the default | the program's author |
| file | a line in the file that ` + "`RMA_CONFIG`, else `Config.File`" + `, names | the administrator of the machine |
| env | the variable, if it is not empty | the user who starts this run |

Thus an administrator can change all settings without a new binary, and a user can change them for one run without editing
the file. ` + "`rmabench info --settings`" + ` prints
the settings in effect in the present environment, with their origins; an engine logs those that are not defaults
("rma: setting", [observability.md](observability.md#log)).

## Files

    # comments begin a line, or follow a space
    fabric       = tcp
    tcp_bind     = 10.0.0.7      # the fast network
    peer_timeout = 500ms
    profiles     = "/var/lib/rma # figures"

One setting per line, ` + "`name = value`" + `. The name is the variable's without ` + "`RMA_`" + `, in lower case. A value that needs a #
after a space, or spaces at its ends, is written in double quotes, as a Go string. A name may appear once. The file is UTF-8,
at most 256 KiB. It is an error if the named file cannot be read.

## Errors

` + "`Open`" + ` fails if a value is invalid, except for that of ` + "`RMA_COLL_ALGORITHM`" + `. The error lists all invalid values with their places:

    rma: open: config: 3 settings are wrong:
    	Config.Depth = 70000: want a number of requests, 16 … 65536
    	/etc/rma.conf:4: unknown setting "fabrik": did you mean fabric?
    	RMA_PEER_TIMEOUT="2": want a duration, such as 50ms or 2s, at least 1ms

A variable that begins with ` + "`RMA_`" + ` and is not on this page is usually misspelt. It causes a warning in the log with the
nearest name, and an error with ` + "`RMA_STRICT=1`" + `. Exceptions are ` + "`RMA_TEST_*`" + `, which tests use for their child
processes, and the variables that Kubernetes sets for services with names such as "rma" (` + "`RMA_SERVICE_HOST`, `RMA_PORT_7471_TCP`" + `).

## Values

Durations are written as in Go (` + "`50ms`, `2s`, `1m30s`" + `), sizes with K, M and G (or KiB, MiB and GiB) for powers of 1024, switches as 1 or 0
(also true, false, on, off, yes, no).
`

const foreignHead = `
Variables of launchers that are read, and never set, if ` + "`RMA_RANK`" + ` is not set. [launching.md](launching.md) describes their
precedence:

| variable | set by | use |
|---|---|---|
`

var groupHeads = [numGroups]string{
	Engine: "## Engine\n",
	Links: `## Links

For experiments and unusual networks. In code: ` + "`Config.Settings: map[string]string{\"ibv_gid_index\": \"3\"}`" + `.
`,
	Job: `## Job

They identify the process and its job ([launching.md](launching.md)). Launchers set them; Config.Job overrides them. They
are not read from files or Config.Settings.
`,
	Tests: `## Tests

Environment variables that only the project's tests and the SoftRoCE harness ([softroce.md](softroce.md)) read.
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

// foreign lists the variables of launchers.
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
