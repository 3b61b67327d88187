package logonce

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// TestCondition walks one condition through its life. Each step comes some time after the one before; an empty state is
// its absence.
func TestCondition(t *testing.T) {
	type step struct {
		after time.Duration
		state string
		logs  bool
	}
	for _, test := range []struct {
		name      string
		condition Condition
		steps     []step
	}{
		{"never again", Condition{}, []step{
			{0, "", false}, {0, "a", true}, {0, "a", false}, {time.Hour, "a", false}, {0, "b", true}, {0, "a", true},
			{0, "", true}, {0, "", false}, {0, "a", true},
		}},
		{"again", Condition{Again: time.Minute}, []step{
			{0, "a", true}, {59 * time.Second, "a", false}, {time.Second, "a", true}, {59 * time.Second, "a", false},
			{0, "b", true}, {59 * time.Second, "b", false}, {time.Second, "b", true},
		}},
		{"comes and goes", Condition{Settle: time.Minute}, []step{
			{0, "a", true}, {time.Second, "", false}, {59 * time.Second, "", false}, {0, "a", false},
			{0, "", false}, {59 * time.Second, "", false}, {time.Second, "", true}, {time.Hour, "", false}, {0, "a", true},
		}},
		{"changes all the time", Condition{Calm: time.Minute}, []step{
			{0, "a1", true}, {time.Second, "a2", false}, {58 * time.Second, "a3", false}, {time.Second, "a4", true},
			{time.Second, "a5", false}, {0, "", true}, {0, "a6", true},
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			for i, s := range test.steps {
				time.Sleep(s.after)
				logs := test.condition.Ended
				if s.state != "" {
					logs = func() bool { return test.condition.Changed(s.state) }
				}
				if got := logs(); got != s.logs {
					t.Errorf("%s: step %d (%q): got %t, want %t", test.name, i, s.state, got, s.logs)
				}
			}
		})
	}
}

func TestConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Conditions[string]{Again: time.Minute}
		if c.Ended("a") {
			t.Error("a condition ended that had not begun")
		}
		for _, key := range []string{"a", "b", "c"} {
			if !c.Changed(key, "x") || c.Changed(key, "x") {
				t.Errorf("condition %s: want it logged once", key)
			}
		}
		if !c.Ended("b") || !c.Changed("b", "x") {
			t.Error("want b logged again after its end")
		}
		time.Sleep(time.Minute)
		if !c.Changed("a", "x") {
			t.Error("want a logged again after a minute")
		}
		ended := c.EndedExcept(func(key string) bool { return key == "a" })
		slices.Sort(ended)
		if !slices.Equal(ended, []string{"b", "c"}) || c.Changed("a", "x") || !c.Changed("c", "x") {
			t.Errorf("ended %v, want b and c, and that a is not forgotten", ended)
		}
	})
}

// TestRate lets conditions come and go all the time: a group logs a bounded number of lines, and counts the others.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Conditions[string]{Rate: Rate{Burst: 3, Every: time.Minute}, Group: func(key string) string { return key[:1] }}
		logged, counted := 0, 0
		for i := range 1000 {
			key := string([]byte{'a', byte(i % 7)})
			if c.Changed(key, strconv.Itoa(i)) {
				logged++
				counted += c.NotLogged(key)
			}
			if i%2 == 0 {
				c.Ended(key)
			}
		}
		if logged != 3 || counted != 0 {
			t.Errorf("%d lines at once and %d counted, want 3 and 0", logged, counted)
		}
		c.Ended("a\x00")
		if c.Ended("a\x00") {
			t.Error("a condition that was not logged ended")
		}
		if !c.Changed("b", "x") || c.NotLogged("b") != 0 {
			t.Error("want the conditions of another group logged")
		}
		time.Sleep(time.Minute)
		if !c.Changed("a1", "x") || c.NotLogged("a1") != 997 || c.NotLogged("a1") != 0 || c.Changed("a2", "x") {
			t.Error("want one line after a minute, and the others counted in it")
		}
		time.Sleep(time.Minute)
		if !c.Changed("a2", "x") || c.NotLogged("a2") != 1 {
			t.Error("want a line about a condition that had none, when it is noticed again")
		}
		time.Sleep(time.Hour)
		c.Changed("c", "x")
		if len(c.groups) != 1 {
			t.Errorf("%d groups, want those that logged nothing for long forgotten", len(c.groups))
		}
	})
}
