package apiserver

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// full starts a server with twenty Services of ten endpoints each, and a Source that has listed them.
func full(t *testing.T, options Options, configure ...func(*fakeAPI)) (b *bench, objects []runtime.Object) {
	api := newFakeAPI(t, configure...)
	for i := range 20 {
		name := fmt.Sprintf("s%02d", i)
		objects = append(objects, service(name), slice(name, 10))
	}
	api.put(objects...)
	b = run(t, api, options).complete()
	b.want(all(20))
	return b, objects
}

// all returns the first Services of full in the format of bench.known.
func all(services int) string {
	var names []string
	for i := range services {
		names = append(names, fmt.Sprintf("s%02d=10", i))
	}
	return strings.Join(names, " ")
}

// wantHeld checks that OnHeld was called once for each of these resources, with all 200 endpoints lost.
func (b *bench) wantHeld(resources ...string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var got []string
	for _, line := range b.log {
		if strings.Contains(line, `"lostEndpoints"=200 `) {
			got = append(got, regexp.MustCompile(`"resource"="(\w+)"`).FindStringSubmatch(line)[1])
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(resources, got); diff != "" || b.held != len(resources) {
		b.Errorf("held back %d times (-want +got):\n%s", b.held, diff)
	}
}

// bothKinds runs a test with a server that streams lists and one that does not.
func bothKinds(t *testing.T, test func(t *testing.T, kind func(*fakeAPI))) {
	for _, kind := range []string{"streams, protobuf", "lists in pages"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, servers[kind])
		})
	}
}

// TestGuardSecondList checks that deletions by an empty list are held back until a second one, and additions are not.
func TestGuardSecondList(t *testing.T) {
	bothKinds(t, func(t *testing.T, kind func(*fakeAPI)) {
		b, objects := full(t, Options{}, kind)
		b.api.lose(objects...)
		b.api.put(service("new"), slice("new", 3))
		b.relisted(b.api.restart)
		b.want("new=3 " + all(20))
		b.waitLog("lacks almost all known endpoints", `"lostEndpoints"=200`, "endpointslices")
		b.waitLog("lacks almost all known endpoints", `"lostEndpoints"=200`, "services")

		b.relisted(b.api.restart)
		b.want("new=3")
		b.waitLog("two lists of the API server lacked", "endpointslices")
		b.wantHeld("endpointslices", "services")
	})
}

// TestGuardForeignSlices has many endpoints of Services that are for another proxy: they do not hide that all others are lost.
func TestGuardForeignSlices(t *testing.T) {
	bothKinds(t, func(t *testing.T, kind func(*fakeAPI)) {
		b, objects := full(t, Options{}, kind, func(f *fakeAPI) {
			foreign := slice("foreign", 3000)
			foreign.Labels[cluster.LabelServiceProxyName] = "other"
			f.put(foreign)
		})
		b.api.lose(objects...)
		b.relisted(b.api.restart)
		b.want(all(20))
		b.wantHeld("endpointslices", "services")
	})
}

// TestGuardTimeout checks that a list is applied after a minute.
func TestGuardTimeout(t *testing.T) {
	bothKinds(t, func(t *testing.T, kind func(*fakeAPI)) {
		b, objects := full(t, Options{}, kind)
		b.api.lose(objects...)
		b.relisted(b.api.restart)
		b.clock.Step(holdTime - 1)
		b.api.put(service("new"))
		b.want("new=0 " + all(20))
		b.api.remove(service("new"))
		b.want(all(20))
		b.clock.Step(1)
		b.want("")
		b.waitLog("the timeout has expired")
	})
}

// TestGuardContradicted checks that nothing is deleted if a second list contains the objects again.
func TestGuardContradicted(t *testing.T) {
	b, objects := full(t, Options{})
	b.api.lose(objects...)
	b.relisted(b.api.restart)
	b.api.put(objects...)
	b.relisted(b.api.restart)
	b.clock.Step(2 * holdTime)
	b.relisted(b.api.restart)
	b.want(all(20))
}

// TestGuardEvents checks that events of a watch are never held back, even while removals by a list are.
func TestGuardEvents(t *testing.T) {
	b, objects := full(t, Options{})
	b.api.remove(objects...)
	b.want("")
	b.wantHeld()

	b.api.put(objects...)
	b.want(all(20))
	b.api.lose(objects...)
	b.relisted(b.api.restart)
	b.want(all(20))
	b.api.remove(objects[0], objects[1]) // so the server knows them
	b.want(strings.TrimPrefix(all(20), "s00=10 "))
	b.api.put(objects[2], slice("s01", 4))
	b.want("s01=4" + strings.TrimPrefix(all(20), "s00=10 s01=10"))
	b.clock.Step(holdTime)
	b.want("s01=4") // objects with an event are not held back
}

// TestGuardLimits checks lists that remove 90 % or less, and clusters with fewer than 100 endpoints.
func TestGuardLimits(t *testing.T) {
	t.Run("90 percent", func(t *testing.T) {
		b, objects := full(t, Options{})
		b.api.lose(objects[2*2:]...)
		b.relisted(b.api.restart)
		b.want(all(2))
		b.wantHeld()
	})
	t.Run("95 percent", func(t *testing.T) {
		b, objects := full(t, Options{})
		b.api.lose(objects[1*2:]...)
		b.relisted(b.api.restart)
		b.want(all(20))
	})
	for endpoints, want := range map[int]string{99: "", 100: "few=100"} {
		t.Run(fmt.Sprint(endpoints), func(t *testing.T) {
			api := newFakeAPI(t)
			objects := []runtime.Object{service("few"), slice("few", endpoints)}
			api.put(objects...)
			b := run(t, api, Options{}).complete()
			api.lose(objects...)
			b.relisted(api.restart)
			b.want(want)
		})
	}
}

// TestGuardFirstList checks that the first list after a start is applied at once.
func TestGuardFirstList(t *testing.T) {
	b := run(t, newFakeAPI(t), Options{}).complete()
	b.want("")
	b.wantHeld()
}

// TestGuardOff checks that TrustLists turns the guard off.
func TestGuardOff(t *testing.T) {
	b, objects := full(t, Options{TrustLists: true})
	b.api.lose(objects...)
	b.relisted(b.api.restart)
	b.want("")
	b.wantHeld()
}

// TestRolledBack gives the server an earlier state, as an etcd that was restored: what it lacks and what is new arrives, although
// its versions are earlier than those that were sent. A server that only hangs up is not asked for lists.
func TestRolledBack(t *testing.T) {
	bothKinds(t, func(t *testing.T, kind func(*fakeAPI)) {
		b, objects := full(t, Options{}, kind)
		lists := func() int { return b.api.count("stream services") + b.api.count("list services") }
		before := lists()
		b.api.put(service("later"), slice("later", 1)) // a Reflector lists again after a watch without an event
		b.want("later=1 " + all(20))
		watches := func(r *resource) int { return b.api.count("stream "+r.Name) + b.api.count("watch "+r.Name) }
		var watched []int
		for _, r := range resources("n1") {
			watched = append(watched, watches(r))
		}
		b.api.hangUp()
		b.api.put(slice("later", 2))
		b.want("later=2 " + all(20))
		for i, r := range resources("n1") {
			b.until("another watch of "+r.Name, func() bool { return watches(r) > watched[i] })
		}
		b.until("a request for the version", func() bool { return b.api.count("check services") > 0 }) // follows the watch
		if n := lists() - before; n > 0 {
			t.Errorf("%d lists after the server hung up", n)
		}
		b.api.lose(service("later"), slice("later", 0), objects[0], objects[1])
		b.relisted(b.api.rollBack)
		b.waitLog("an earlier state than before", "endpointslices")
		b.want(strings.TrimPrefix(all(20), "s00=10 "))
		b.api.put(service("new"), slice("new", 3))
		b.want("new=3 " + strings.TrimPrefix(all(20), "s00=10 "))
	})
}

// TestNodeMissing distinguishes a Node that was deleted from one that a list lacks, for which the API server may be at fault.
func TestNodeMissing(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	b, _ := full(t, Options{})
	state := func() [2]bool {
		n := b.builder.Snapshot().Node
		return [2]bool{n.Exists, n.Draining}
	}
	for i, step := range []struct {
		do   func()
		want [2]bool
	}{
		{func() { b.api.put(node) }, [2]bool{true, false}},
		{func() { b.api.lose(node); b.api.restart() }, [2]bool{false, false}},
		{func() { b.api.put(node) }, [2]bool{true, false}},
		{func() { b.api.remove(node) }, [2]bool{false, true}},
		{func() { b.api.put(node) }, [2]bool{true, false}},
	} {
		step.do()
		b.until(fmt.Sprintf("step %d: exists and draining %v", i, step.want), func() bool { return state() == step.want })
	}
}
