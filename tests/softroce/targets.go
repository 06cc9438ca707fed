//go:build linux

package main

import (
	"path/filepath"
	"slices"
	"strings"
)

// target is one package whose tests have a part that needs a device.
type target struct {
	pkg string // directory in the module
	// where its tests run; "guests" only if they use NODE and PEER
	topologies []string
	// script is run by sh instead of tests, with $0 the command built of pkg
	script string
	// run selects the tests that use a device, "" all
	run string
	// host lists tests that run selects, too, and that open no device: make unit runs them
	host []string
	// slow is RMA_TEST_SLOW under netem and emulation: fewer repetitions, more
	// patience
	slow string
	// alone: its tests disturb the wire themselves, so that they do not run under netem
	alone bool
	// strict: a guest does not overcommit memory while the target runs on one device
	strict bool
	omit   []omission
}

// omission describes tests that a target omits under netem.
type omission struct {
	tests string // as go test -skip
	netem string // only where the disturbance contains this word
	why   string
}

const (
	reorders  = "reorder" // in netem's spelling
	whyNAK    = "the one packet that says why a request was refused may be lost; then the request times out"
	whyRefill = "rdma_rxe counts lost packets until something is acknowledged, and here nothing is: it may give up before the time that is measured"
)

// targets lists what `make softroce` runs, in this order.
var targets = []target{
	{pkg: "tests/softroce/smoke", topologies: []string{"one", "two", "guests"}, omit: []omission{
		{tests: "!Pingpong", why: "of its tests only Pingpong moves data in both directions"},
		{tests: "TestPingpongCrossesTheWire", why: "a side of ibv_rc_pingpong whose last acknowledgement is lost repeats for ever if the other has ended: in TestPingpongOutlasted that one stays"}}},
	{pkg: "verbs", topologies: []string{"one", "two"}, omit: []omission{
		{tests: "TestDatagrams", why: "a datagram that is lost is lost"},
		{tests: "TestErrorsAreTypedAndTouchNothing|TestMemoryWindows", why: whyNAK},
		{tests: "TestReadScatters", netem: reorders, why: "rdma_rxe takes a late acknowledgement for the end of a read, see docs/softroce.md; fabric/ibv knows how to avoid it"},
	}},
	{pkg: "examples/rcpingpong", topologies: []string{"one"}},
	{pkg: "fabric/ibv", topologies: []string{"one", "two"}, slow: "8", omit: []omission{
		{tests: "(TestConformance|TestHostAtomics)/(RemoteAccess|RegionClose)|TestTargetLearnsOfARefusal", why: whyNAK},
		{tests: "TestNotificationsWithoutReceives", why: whyRefill},
		{tests: "TestProofOfTheSideThatIsFirst", why: "its device repeats a lost packet after minutes, so that the test can tell a proof from a repetition"},
		{tests: "TestConformance/NoAllocation", why: "the wire does not change what is allocated"},
		{tests: "TestConformance/(AtomicsInOrder|ExactlyOnce|Model|WakeOnCompletion)", netem: reorders,
			why: "an atomic behind a write may lose its result on rdma_rxe, which is an error of its own, see fabric/ibv"},
	}},
	{pkg: "mr", topologies: []string{"one", "two"}, run: "IBV", strict: true, omit: []omission{
		{tests: "TestIBV/.*/(one_registration|stale_keys)", why: whyNAK},
	}},
	{pkg: "eager", topologies: []string{"one", "two"}, run: "IBV", strict: true},
	{pkg: "rdv", topologies: []string{"one", "two"}, run: "IBV", omit: []omission{
		{tests: "TestIBV/scripts", netem: reorders, why: "a read of rdma_rxe may end with a local protection error that nobody caused; not understood yet, see docs/softroce.md"},
	}},
	{pkg: "sampling", topologies: []string{"one"}, run: "IBV"},
	{pkg: "internal/message", topologies: []string{"one"}, run: "IBV"},
	{pkg: "internal/links", topologies: []string{"one"}},
	{pkg: ".", topologies: []string{"one"}, run: "/ibv", slow: "3", strict: true, host: []string{
		"TestALongLineEndsWithItsPeer", "TestBarrierAndLeave", "TestCloseBesideStoppedProcess", "TestCopiesForced",
		"TestCopiesOfAJob", "TestHandleManyAtOnce", "TestHandlerBacklog", "TestHangIsTold", "TestHangTimeoutOff",
		"TestInvalidate", "TestLateRanksAreNotOverrun", "TestLeavingAcrossLosses", "TestLogIsDocumented", "TestMappingsEnd",
		"TestMemoryIsOrderedForTheRaceDetector", "TestMemoryModelNamesItsTests", "TestMessagesAcrossLosses",
		"TestPathIsNotMeasured", "TestPathsByClass", "TestPeerThatHangsBeforeItIsConnected", "TestReceiverFirst",
		"TestReceivesWithoutRegistrations", "TestResetWaitsForTheNewestConnection", "TestResetWhileThePeerTells",
		"TestSendAtOnce", "TestSilentPeersAreHeard", "TestSilentPeersHearNothingOfSleep", "TestStatsAreSums",
		"TestStatsWhileBusy", "TestTwoWaitersOfOneRequest", "TestUnexpectedIsBounded",
	}},
	{pkg: ".", topologies: []string{"two"}, run: "TestVerbsLost/silence", slow: "3", alone: true},
	// with more ranks an emulated processor serves too many
	{pkg: "coll", topologies: []string{"one"}, run: "^(TestConformance|TestFolds|TestLarge|TestPersistent)$/^ibv$/^[23]$", slow: "4"},
	{pkg: "examples/hello", topologies: []string{"one"}, run: "/ibv", host: []string{"TestEverybodyConnects", "TestSixtyFourRanks"}},
	{pkg: "examples/hello", topologies: []string{"one"}, run: "TestHello/verbs", strict: true},
	{pkg: "rmanet", topologies: []string{"one"}, run: "/ibv", host: []string{"TestAnswersAreBounded", "TestManyConnections", "TestTinyMessages"}},
	{pkg: "examples/http", topologies: []string{"one"}, run: "/ibv"},
	{pkg: "examples/kvstore", topologies: []string{"one"}, run: "/ibv", host: []string{"TestShardIsAMap"}},
	{pkg: "examples/paramserver", topologies: []string{"one"}, run: "/ibv"},
	{pkg: "internal/bench/choice", topologies: []string{"one"}, run: "TwoSided"},
	{pkg: "cmd/rmabench", topologies: []string{"guests"}, script: betweenGuests},
}

// strictly runs its arguments while the kernel grants no memory beyond nine tenths of what
// it has. It does not change the settings of a host.
const strictly = `[ "$RMA_SOFTROCE" != native ] || exec "$@"
cd /proc/sys/vm
echo 90 >overcommit_ratio
echo 2 >overcommit_memory
cd "$OLDPWD"
"$@"
code=$?
echo 0 >/proc/sys/vm/overcommit_memory
exit $code
`

// betweenGuests measures, and validates every byte, from the second guest to the
// first, which may not listen yet when the second starts.
const betweenGuests = `set -e
export RMA_TOKEN=5eed5eed5eed5eed5eed5eed5eed5eed
if [ "$NODE" = 0 ]; then exec "$0" serve --once "$ME:7471"; fi
until "$0" lat --connect "$PEER:7471" --fabric verbs --op "${OP:-put}" --sizes 8,4K,64K --time 100ms --validate --quiet 2>err; do
	grep -q "connection refused" err || { cat err >&2; exit 1; }
	sleep 0.1 # the other guest is still on its way
done
`

// defaultNetem disturbs a wire often enough that a short run has retransmissions and duplicates,
// but seldom enough that rdma_rxe, which goes back to the first packet lost and counts failures
// until the next acknowledgement, neither gives up nor takes minutes. A list has one pass for each
// of its disturbances. Reordering, "delay 300us reorder 99% loss 0.3% duplicate 0.3%", needs the
// delay: packets that are not delayed overtake the others.
const defaultNetem = "loss 0.5% duplicate 0.5%"

// passes splits a list of disturbances; "" yields no pass.
func passes(netem string) (out []string) {
	for p := range strings.SplitSeq(netem, ";") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

// without returns the tests that t omits, under netem if it is not empty: as values of
// -test.run and -test.skip, and in words.
func (t target) without(netem string) (run, skip string, words []string) {
	var tests []string
	if len(t.host) > 0 {
		tests = append(tests, "^("+strings.Join(t.host, "|")+")$")
		words = append(words, "tests that open no device: make unit runs them")
	}
	for _, o := range t.omit {
		if netem == "" || !strings.Contains(netem, o.netem) {
			continue
		}
		if only, ok := strings.CutPrefix(o.tests, "!"); ok {
			run = only
			words = append(words, "all but "+only+": "+o.why)
			continue
		}
		tests = append(tests, o.tests)
		words = append(words, o.tests+": "+o.why)
	}
	return run, strings.Join(tests, "|"), words
}

// step returns the step of t under netem ("" for none) in topology topo.
func (t target) step(root, bin, topo, netem string, o suiteOptions) Step {
	s := Step{
		Name: t.pkg + ", " + describe(topo), Netem: netem, Timeout: stepTimeout,
		Dir: filepath.Join(root, t.pkg), Env: []string{"RMA_REQUIRE_RDMA=1"},
	}
	exe := filepath.Join(bin, t.binaryName())
	if netem != "" {
		s.Name += ", netem " + netem
	}
	if t.slow != "" && (netem != "" || o.emulated) {
		s.Env = append(s.Env, "RMA_TEST_SLOW="+t.slow)
	}
	if t.script != "" {
		s.Argv, s.Dir = []string{"sh", "-c", t.script, exe}, guestHome
		return s
	}
	s.Argv = []string{exe, "-test.v", "-test.timeout=" + (stepTimeout - stepGrace).String()}
	run, skip, words := t.without(netem)
	if run == "" {
		run = t.run
	}
	for _, w := range words {
		s.Notes = append(s.Notes, "left out: "+w)
	}
	if netem != "" || o.emulated {
		s.Argv = append(s.Argv, "-test.short")
	}
	if o.Run != "" {
		run = o.Run
	}
	if run != "" {
		s.Argv = append(s.Argv, "-test.run="+run)
	}
	if skip != "" {
		s.Argv = append(s.Argv, "-test.skip="+skip)
	}
	if t.strict && topo == "one" && !o.Race { // the race detector maps terabytes
		s.Name += ", memory not overcommitted"
		s.Argv = append([]string{"sh", "-c", strictly, "sh"}, s.Argv...)
	}
	return s
}

// suiteSteps lists the steps of one topology: every target, then again under each
// disturbance if there is a wire to disturb, but for those that are alone.
func suiteSteps(root, bin, topo string, chosen []target, o suiteOptions) []Step {
	var steps []Step
	disturbances := []string{""}
	if topo != "one" {
		disturbances = append(disturbances, passes(o.Netem)...)
	}
	for _, netem := range disturbances {
		for _, t := range chosen {
			if slices.Contains(t.topologies, topo) && (netem == "" || !t.alone) {
				steps = append(steps, t.step(root, bin, topo, netem, o))
			}
		}
	}
	return steps
}
