//go:build linux

package restart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mounted are file systems on which nothing can be written, as commands of the shell that are run in a mount namespace. /run has
// iptables' lock, and TMPDIR is below /var/lib.
var mounted = map[string]string{
	"full disk": `for dir in /run /var/lib; do
	mount -t tmpfs -o size=4k,nr_inodes=3 full $dir && > $dir/xtables.lock && head -c 4096 /dev/zero > $dir/full || exit 1
	if (echo more > $dir/other) 2> /dev/null; then exit 1; fi
done`,
	"read-only file system": `for dir in /run /var/lib; do mount -t tmpfs -o ro empty $dir || exit 1; done`,
}

// onDisk returns a script that runs a program where the commands have been run.
func onDisk(t *testing.T, program, commands string) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "run")
	text := "#!/bin/sh\nexec unshare --mount --propagation private sh -c '" + commands + "\nTMPDIR=/var/lib exec " + program + " \"$@\"' sh \"$@\"\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return script
}

// TestKernelNoDisk runs kube-proxy where no file can be written: it serves, and programs changes. Only the legacy variant of
// iptables must be able to open the lock of its tables for writing: on a read-only file system its rules stay as they were, and
// the log says what is missing. Writing the configuration ends with an error that names the file, which stays as it was.
func TestKernelNoDisk(t *testing.T) {
	t.Parallel()
	for name, commands := range mounted {
		for _, of := range []string{nftables, iptables, legacy} {
			t.Run(of+", "+name, func(t *testing.T) {
				t.Parallel()
				r, probes := newTrial(t)
				mode, program := r.prepare(of), r.program
				r.start(mode)
				r.serves(probes)
				r.ended()
				r.program = onDisk(t, program, commands)
				r.start(mode)
				if of != legacy || name == "full disk" {
					r.switched(0)
					r.ended()
					return
				}
				r.write(1, r.pods[:1])
				r.counts(`kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family="IPv4"}`, 3)
				r.serves(probes)
				r.ended("can't open lock file /run/xtables.lock", "the lock must be the host's")
				r.program = program
				r.start(mode)
				r.answeredBy(r.pods[0].host)
			})
		}
		t.Run("configuration, "+name, func(t *testing.T) {
			r, _ := newTrial(t)
			const file = "/var/lib/config.yaml"
			out, err := r.lab.Node1.Command(onDisk(t, r.program, commands), "--write-config-to", file).CombinedOutput()
			if err == nil || !strings.Contains(string(out), file+" is not written") {
				t.Errorf("%v, want an error that names the file: %s", err, out)
			}
		})
	}
}
