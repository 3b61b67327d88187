//go:build linux

package restart

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// trouble is a fault of the programs that kube-proxy runs, while a file exists.
type trouble struct {
	mode string
	// script replaces the programs with these suffixes; FAULT is the path of the file.
	script map[string]string
	// disturb makes kube-proxy need the programs.
	disturb func(r *trial, n *node)
	// unserved means that the Services are not served meanwhile, because of disturb; alive that /livez need not fail.
	unserved, alive bool
	// lock is held while the file exists.
	lock bool
}

const (
	hang    = "while [ -e FAULT ]; do sleep 0.1; done; exec $real \"$@\""
	garbage = "if [ -e FAULT ]; then printf '*nat\\n\\001\\377 not a rule\\n'; exit 0; fi; exec $real \"$@\""
)

// troubles are the faults by name.
func troubles() map[string]trouble {
	fewer := func(r *trial, _ *node) { r.write(1, r.pods[1:]) }
	return map[string]trouble{
		"nft hangs":              {mode: nftables, script: map[string]string{"nft": hang}, disturb: func(_ *trial, n *node) { n.must("nft", "delete table ip6 kube-proxy") }},
		"iptables-restore hangs": {mode: legacy, script: map[string]string{"-restore": hang}, disturb: fewer},
		"iptables hangs": {mode: legacy, script: map[string]string{"-legacy": hang}, unserved: true, alive: true,
			disturb: func(_ *trial, n *node) {
				n.must("iptables-legacy", "--wait", "--table", "nat", "--flush", "PREROUTING")
			}},
		"the lock is held": {mode: legacy, disturb: fewer, lock: true},
		"iptables-save prints garbage": {mode: legacy, script: map[string]string{"-save": garbage}, disturb: func(r *trial, _ *node) {
			if err := r.proxy.Kill(); err != nil { // it reads all rules when it starts
				r.t.Fatal(err)
			}
			r.start("iptables")
		}},
	}
}

// faultLasts is how long a fault lasts: seconds, or what the variable HANG says.
func faultLasts(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("HANG")
	if text == "" {
		return 8 * time.Second
	}
	lasts, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("HANG=%s: %v", text, err)
	}
	return lasts
}

// TestKernelTroubledPrograms lets the real programs hang, wait for a lock that is really held, or print garbage: what was
// programmed is served meanwhile, /livez fails, and afterwards a few syncs put everything right.
func TestKernelTroubledPrograms(t *testing.T) {
	t.Parallel()
	for name, trouble := range troubles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trouble.run(t, faultLasts(t))
		})
	}
}

func (of trouble) run(t *testing.T, lasts time.Duration) {
	r, probes := newTrial(t)
	r.dual = true
	r.write(0, r.pods)
	fault := filepath.Join(t.TempDir(), "fault")
	// In no folder of the test's own: a program that outlives the proxy by a moment may create it again.
	lock := filepath.Join(os.TempDir(), strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())+".lock")
	t.Cleanup(func() { os.Remove(lock) })
	script := map[string]string{}
	for suffix, text := range of.script {
		script[suffix] = strings.ReplaceAll(text, "FAULT", fault)
	}
	variant := map[string]string{nftables: "nft", legacy: "legacy"}[of.mode]
	n := newNode(t, r.lab.Node1.Host, variant)
	r.programs(script)
	r.env = append(r.env, "XTABLES_LOCKFILE="+lock)
	mode, _, _ := strings.Cut(of.mode, " ")
	r.args = []string{"--iptables-sync-period", "1s", "--iptables-min-sync-period", "100ms"} // of all modes
	r.start(mode)
	r.serves(probes)

	traffic := streams{}
	if !of.unserved {
		traffic = r.stream(probes[:2])
	}
	if err := os.WriteFile(fault, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	release := func() {}
	if of.lock {
		release = held(t, lock)
	}
	of.disturb(r, n)
	failed := false
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		status, _ := r.page("127.0.0.1:10256", "/livez")
		failed = failed || status == http.StatusServiceUnavailable
	}
	if !failed && !of.alive {
		t.Errorf("/livez did not fail within %v", lasts)
	}
	before := strings.Count(r.log.String(), "\n")
	if lines := before; lines > 60 {
		t.Errorf("%d lines:\n%s", lines, r.log.String())
	}
	at := time.Now()
	if err := os.Remove(fault); err != nil {
		t.Fatal(err)
	}
	release()
	synced := r.resynced(at)
	r.serves(probes)
	r.live()
	t.Logf("all families programmed %v after a fault of %v, and seen to be served after %v", synced.Round(time.Millisecond), lasts, time.Since(at).Round(time.Millisecond))
	traffic.stop(t)
}

// resynced waits until a sync of each family has succeeded after a time, and returns how long that took.
func (r *trial) resynced(at time.Time) (took time.Duration) {
	r.t.Helper()
	for _, family := range netns.Families() {
		for !r.syncedAt(family).After(at) {
			if time.Since(at) > time.Minute {
				r.t.Fatalf("%s is not programmed again:\n%s", family, r.log.String())
			}
			time.Sleep(10 * time.Millisecond)
		}
		took = max(took, r.syncedAt(family).Sub(at))
	}
	return took
}

// held takes a file's lock until release is called.
func held(t *testing.T, path string) (release func()) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}

// live waits until /livez and /healthz answer 200.
func (r *trial) live() {
	r.t.Helper()
	var livez, healthz int
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		livez, _ = r.page("127.0.0.1:10256", "/livez")
		healthz, _ = r.page("127.0.0.1:10256", "/healthz")
		if livez == http.StatusOK && healthz == http.StatusOK {
			return
		}
	}
	r.t.Errorf("/livez is %d, /healthz %d:\n%s", livez, healthz, r.log.String())
}
