//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// following is a proxy with a configuration file that logs in JSON, in node1.
type following struct {
	*trial
	cmd *netns.Cmd
	log bytes.Buffer
}

// follow starts a proxy with the configuration file at path, and waits for its first sync.
func (w *trial) follow(path string) *following {
	w.Helper()
	f := &following{trial: w}
	f.cmd = w.lab.Node1.Command(w.program, "--manifests", w.dir, "--hostname-override", "node1", "--config", path)
	f.cmd.Stdout, f.cmd.Stderr = &f.log, &f.log
	if err := f.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := f.cmd.Kill(); err != nil {
			w.Error(err)
		}
	})
	f.wait(`kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv6"}`, func(value string) bool { return value != "" })
	f.wait("serviceproxy_config_differs", func(value string) bool { return value == "0" })
	return f
}

// wait waits until a metric has a value.
func (f *following) wait(sample string, met func(value string) bool) {
	f.Helper()
	for began := time.Now(); !met(f.metric(sample)); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > patience {
			f.Fatalf("%s is %q after %s", sample, f.metric(sample), time.Since(began))
		}
	}
}

// end waits for the process's end and returns its exit code and the lines of its log.
func (f *following) end() (code int, lines []map[string]any) {
	f.Helper()
	var exit *exec.ExitError
	if err := f.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		f.Fatal(err)
	}
	for line := range strings.Lines(f.log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			f.Errorf("not JSON: %s", line)
		}
		lines = append(lines, fields)
	}
	return f.cmd.ProcessState.ExitCode(), lines
}

// logged finds the line with a message.
func logged(lines []map[string]any, message string) map[string]any {
	i := slices.IndexFunc(lines, func(line map[string]any) bool {
		text, _ := line["msg"].(string)
		return strings.HasPrefix(text, message)
	})
	if i < 0 {
		return nil
	}
	return lines[i]
}

// TestKernelFollowConfig checks that a ConfigMap's swap does not end the process, that SIGTERM ends it with 0 and a line in
// the log, that a file written in place ends it with 1, and that all of it is logged in JSON, the fatal error too.
func TestKernelFollowConfig(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	text := func(mode string) string {
		return kubeproxy.LatestHead + "mode: nftables\nlogging: {format: json, verbosity: 2}\nnodeIPOverride: [" + w.lab.Node1.IPv4.String() + "]\n" + mode
	}
	directory := t.TempDir()
	put := func(version, more string) {
		t.Helper()
		kubeproxy.Must(os.Mkdir(filepath.Join(directory, version), 0o700))
		kubeproxy.MustWrite(filepath.Join(directory, version, "config.conf"), text(more))
		kubeproxy.Must(os.Symlink(version, filepath.Join(directory, "..data_tmp")))
		kubeproxy.Must(os.Rename(filepath.Join(directory, "..data_tmp"), filepath.Join(directory, "..data")))
	}
	put("..1", "")
	path := filepath.Join(directory, "config.conf")
	kubeproxy.Must(os.Symlink(filepath.Join("..data", "config.conf"), path))

	f := w.follow(path)
	put("..2", "syncPeriod: 20s\n")
	f.wait("serviceproxy_config_differs", func(value string) bool { return value == "1" })
	if err := f.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	code, lines := f.end()
	if signal := logged(lines, "Received a signal"); code != 0 || signal["signal"] != "terminated" || logged(lines, "The configuration file was swapped") == nil {
		t.Errorf("after SIGTERM: exit code %d, log:\n%s", code, f.log.String())
	}
	if diff := cmp.Diff([]any{"IPv4", "IPv6"}, logged(lines, "Serving")["families"]); diff != "" {
		t.Errorf("the families in the log are no array (-want +got):\n%s", diff)
	}
	if status := logged(lines, "Serving")["status"]; status != "http://127.0.0.1:10249/" {
		t.Errorf("the status page is said to be at %v", status)
	}
	if node := logged(lines, "Node addresses"); node["addresses"] == nil || node["nodePortAddresses"] == nil {
		t.Errorf("the line with the node's addresses is %v", node)
	}
	if synced := logged(lines, "Synced"); synced["results"] != nil || synced["elementsWritten"] == nil {
		t.Errorf("the line of a sync is %v", synced)
	}

	plain := filepath.Join(t.TempDir(), "config.conf")
	kubeproxy.MustWrite(plain, text(""))
	f = w.follow(plain)
	kubeproxy.MustWrite(plain, text("syncPeriod: 20s\n"))
	code, lines = f.end()
	if ended := logged(lines, "kube-proxy ends on purpose, to be started again"); code != app.ExitFailure || ended == nil ||
		!strings.Contains(ended["reason"].(string), "configuration file was changed") || logged(lines, "kube-proxy failed") != nil {
		t.Errorf("written in place: exit code %d, log:\n%s", code, f.log.String())
	}
}
