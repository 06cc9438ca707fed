package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// talker is a conversation that has something to say as often as news is set.
type talker struct {
	polled
	polls int
	news  int
	done  bool // nothing more is to come
	deaf  bool // writes do not wake this side
	slept bool // was told that this side sleeps
	rest  time.Duration
}

func (k *talker) step() (did, more bool) {
	k.polls++
	if did = k.news > 0; did {
		k.news--
	}
	return did, !k.done
}

func (k *talker) sleep(on bool) (waits bool, rest time.Duration) {
	if k.deaf || !on {
		k.slept = on
	}
	return k.deaf, k.rest
}

// conversations are n talkers on a list.
func conversations(n int) (*pollList, []*talker) {
	l, ks := new(pollList), make([]*talker, n)
	for i := range ks {
		ks[i] = &talker{}
		ks[i].it = ks[i]
		l.add(&ks[i].polled)
	}
	return l, ks
}

// check says whether the list is what it claims to be.
func (l *pollList) check(t *testing.T) {
	t.Helper()
	require.LessOrEqual(t, l.warm, len(l.list))
	for i, p := range l.list {
		require.True(t, p.on)
		require.Equal(t, i, p.at)
	}
}

// A list whose conversations are silent polls few of them in a step, each in its turn, and
// one that speaks is heard within as many steps as it takes to come round, then at once.
func TestSilentConversationsArePolledSeldom(t *testing.T) {
	const n = 3 * warmFew
	l, ks := conversations(n)
	for range coldAfter + 10 {
		require.False(t, l.step())
	}
	l.check(t)
	require.Zero(t, l.warm)
	before := 0
	for _, k := range ks {
		before += k.polls
		k.polls = 0
	}
	require.Positive(t, before)
	for range n / coldPolls {
		l.step()
	}
	for i, k := range ks {
		require.Equal(t, 1, k.polls, "%d", i)
	}
	for _, i := range []int{n - 1, 0, n / 2} {
		ks[i].news = 2
		steps := 1
		for ; !l.step(); steps++ {
			require.LessOrEqual(t, steps, n/coldPolls)
		}
		require.Equal(t, 1, ks[i].news)
		require.True(t, l.step(), "one that has spoken is polled in each step")
		l.check(t)
	}
	require.LessOrEqual(t, l.warm, 3)
}

// A conversation that never pauses keeps no other from being heard.
func TestBusyConversationKeepsNoOtherUnheard(t *testing.T) {
	const n = 3 * warmFew
	l, ks := conversations(n)
	ks[0].news = 1 << 30
	for range coldAfter + n {
		l.step()
	}
	require.Equal(t, 1, l.warm)
	for _, k := range ks[1:] {
		k.news = 1
	}
	for range n {
		require.True(t, l.step())
	}
	for i, k := range ks[1:] {
		require.Zero(t, k.news, "%d", i+1)
	}
	l.check(t)
}

// Before a sleep and after it nobody is left out; a conversation with nothing to do is
// dropped, and hears that this side is awake.
func TestNobodyIsLeftOutBeforeSleep(t *testing.T) {
	const n = 3 * warmFew
	l, ks := conversations(n)
	for range coldAfter + 10 {
		l.step()
	}
	waits, rest := l.sleep()
	require.False(t, waits)
	require.Zero(t, rest, "for ever")
	ks[3].deaf, ks[5].rest, ks[n-1].rest = true, time.Second, time.Minute
	waits, rest = l.sleep()
	require.True(t, waits)
	require.Equal(t, time.Second, rest, "the shortest")
	require.True(t, ks[3].slept)
	for _, k := range ks {
		k.polls = 0
	}
	ks[3].done = true
	l.step()
	for i, k := range ks {
		require.Positive(t, k.polls, "%d", i)
	}
	require.False(t, ks[3].slept)
	require.False(t, ks[3].on)
	require.Len(t, l.list, n-1)
	l.check(t)
	l.add(&ks[3].polled)
	require.Equal(t, 1, l.warm)
	l.check(t)
}
