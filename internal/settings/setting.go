package settings

import (
	"slices"
	"strings"
	"sync"
)

// Prefix begins the name of every variable of this module.
const Prefix = "RMA_"

// TestPrefix begins variables by which tests configure their child processes:
// they are neither declared nor reported.
const TestPrefix = "RMA_TEST_"

// Group says what a setting is about, and who reads it.
type Group uint8

// Groups, in the order of the reference page.
const (
	Engine Group = iota // what rma.Config holds
	Links               // single links, for experts
	Job                 // which process this is: set by launchers
	Tests               // read by tests and their harness only
	numGroups
)

// Setting declares one setting.
type Setting struct {
	Env   string // variable; Name is derived from it
	Field string // of rma.Config; empty if it has none
	Group Group
	Type  Type

	// Default is the value without any other, written as in a file. Where there
	// is none, Else says in words what happens.
	Default, Else string

	What  string // what it does, a clause
	Why   string // why that default, a clause; empty where nothing is to be said
	Where string // the package that acts on it
	Since string // version that had it first

	// EnvOnly is set for what describes one process or is needed before a file
	// is read: it is not taken from files or code.
	EnvOnly bool
}

// Name is the setting's name in files: the variable without its prefix, in lower
// case.
func (s *Setting) Name() string { return strings.ToLower(strings.TrimPrefix(s.Env, Prefix)) }

// All returns every setting in the order of the reference page. Not to be changed.
var All = sync.OnceValue(func() []*Setting {
	var all []*Setting
	for _, list := range [][]Setting{engineSettings, linkSettings, jobSettings, testSettings} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	slices.SortStableFunc(all, func(a, b *Setting) int { return int(a.Group) - int(b.Group) })
	return all
})

var byEnv = sync.OnceValue(func() map[string]*Setting {
	m := make(map[string]*Setting)
	for _, s := range All() {
		m[s.Env] = s
	}
	return m
})

// Lookup finds the setting of a variable; nil if there is none.
func Lookup(env string) *Setting { return byEnv()[env] }

// lookupName finds a setting by its name in files.
func lookupName(name string) *Setting {
	s := Lookup(Prefix + strings.ToUpper(name))
	if s == nil || s.Name() != name {
		return nil // written in capitals
	}
	return s
}
