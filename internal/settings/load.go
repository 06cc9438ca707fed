package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Variables that Load itself reads.
const (
	EnvConfig = "RMA_CONFIG"
	EnvStrict = "RMA_STRICT"
)

// Source is where Load takes settings from.
type Source struct {
	// Environ has the variables, "NAME=value". Nil: the process's own.
	Environ []string

	// Fields are values of fields of rma.Config, by variable. Without the zero
	// ones, which mean the default. RMA_CONFIG here is the file if the variable
	// names none.
	Fields map[string]string

	// Named are settings from code, by their names in files (Config.Settings).
	Named map[string]string
}

// Environment loads the settings of a program that has no Config: environment
// and file.
func Environment() (*Values, error) { return Load(Source{}) }

// Load resolves all settings. An error is an Errors with everything that is
// wrong; the Values are usable all the same, with what is right.
func Load(src Source) (*Values, error) {
	l := loader{v: &Values{byEnv: map[string]Value{}}, env: map[string]string{}}
	environ := src.Environ
	if environ == nil {
		environ = os.Environ()
	}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(name, Prefix) && value != "" {
			l.env[name] = value
		}
	}
	for _, s := range All() {
		if s.Default != "" {
			l.set(s, s.Default, Default, "")
		} else {
			l.v.byEnv[s.Env] = Value{Setting: s}
		}
	}
	l.code(src)
	l.file(src)
	l.environ()
	if on, _ := l.v.Switch(EnvStrict); on {
		l.errs = append(l.errs, l.v.Unknown...)
	}
	return l.v, l.errs.err()
}

type loader struct {
	v    *Values
	env  map[string]string
	errs Errors
}

// set takes a value if it fits.
func (l *loader) set(s *Setting, text string, o Origin, where string) {
	p, err := s.Type.parse(text)
	if err != nil {
		l.errs = append(l.errs, &Error{At: shown(s, text, o, where), What: "want " + s.Type.Want(), Err: ErrInvalid})
		return
	}
	l.v.byEnv[s.Env] = Value{Setting: s, Text: text, Origin: o, At: where, parsed: p}
}

// shown is a value with its place, for errors.
func shown(s *Setting, text string, o Origin, where string) string {
	switch {
	case s.Type.Kind == Secret:
		return where
	case o == Env:
		return where + fmt.Sprintf("=%q", clip(text))
	case o == File:
		return where + fmt.Sprintf(": %s = %s", s.Name(), clip(text))
	}
	return where + fmt.Sprintf(" = %s", clip(text))
}

// code takes what the program says.
func (l *loader) code(src Source) {
	for _, env := range slices.Sorted(maps.Keys(src.Fields)) {
		s := Lookup(env)
		l.set(s, src.Fields[env], Code, "Config."+s.Field)
	}
	for _, name := range slices.Sorted(maps.Keys(src.Named)) {
		where := fmt.Sprintf("Config.Settings[%q]", name)
		if s := l.named(name, where); s != nil {
			l.set(s, src.Named[name], Code, where)
		}
	}
}

// file takes what the file says. A file that was asked for must be there.
func (l *loader) file(src Source) {
	path, by := src.Fields[EnvConfig], "Config.File"
	if p := l.env[EnvConfig]; p != "" {
		path, by = p, EnvConfig
	}
	if path == "" {
		return
	}
	text, err := readFile(path)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err // the path is said already
		}
		l.errs = append(l.errs, &Error{At: by, What: fmt.Sprintf("settings file %s: %v", path, err), Err: ErrFile})
		return
	}
	l.v.File = path
	as, es := parseFile(path, text)
	l.errs = append(l.errs, es...)
	for _, a := range as {
		if s := l.named(a.name, at(path, a.line)); s != nil {
			l.set(s, a.value, File, at(path, a.line))
		}
	}
}

// named finds the setting that a file or code names, or says what is wrong.
func (l *loader) named(name, where string) *Setting {
	s := lookupName(name)
	if s != nil && s.EnvOnly {
		l.errs = append(l.errs, &Error{At: where, What: fmt.Sprintf("%s can only be set by the variable %s", name, s.Env), Err: ErrInvalid})
		return nil
	}
	if s == nil {
		what := fmt.Sprintf("unknown setting %q", clip(name))
		if n := nearest(strings.TrimPrefix(strings.ToLower(name), "rma_"), names(false)); n != "" {
			what += ": did you mean " + n + "?"
		}
		l.errs = append(l.errs, &Error{At: where, What: what, Err: ErrUnknown})
	}
	return s
}

// names are those of settings, in files or, with all, of variables as well.
func names(all bool) []string {
	var out []string
	for _, s := range All() {
		if all || !s.EnvOnly {
			out = append(out, s.Name())
		}
	}
	return out
}

// environ takes the variables. Those that describe the job or belong to tests are
// noted, and judged by who reads them: a program that brings its own job may run
// inside another one.
func (l *loader) environ() {
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		s := Lookup(name)
		switch {
		case s == nil:
			if !Known(name) {
				what := "unknown variable"
				if n := nearest(strings.TrimPrefix(name, Prefix), names(true)); n != "" {
					what += ": did you mean " + Prefix + strings.ToUpper(n) + "?"
				}
				l.v.Unknown = append(l.v.Unknown, &Error{At: name, What: what, Err: ErrUnknown})
			}
		case s.Group >= Job:
			l.v.byEnv[name] = Value{Setting: s, Text: l.env[name], Origin: Env, At: name}
		default:
			l.set(s, l.env[name], Env, name)
		}
	}
}

// service matches the variables that Kubernetes sets in a container for every
// service of the namespace: one called "rma" or "rma-root" begins with RMA_, too.
var service = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// Known reports whether a variable that begins with RMA_ is a setting, or somebody
// else's.
func Known(name string) bool { return Lookup(name) != nil || exempt(name) }

// exempt reports whether an unknown variable is somebody else's.
func exempt(name string) bool {
	return strings.HasPrefix(name, TestPrefix) || service.MatchString("_"+strings.TrimPrefix(name, Prefix))
}
