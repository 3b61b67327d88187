//go:build linux

// Package ipvs tests the removal of ipvs mode's leftovers, on a kernel with the modules of ipvs mode.
package ipvs

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
)

func TestMain(m *testing.M) { kubeproxy.Main(m) }

// patience limits the wait for a condition, on an emulated processor.
const patience = 3 * time.Minute

// sh runs a shell script and returns its output.
func sh(t *testing.T, script string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// foreign are objects of other programs, which must remain.
const foreign = `set -e
/sbin/ip link add other0 type dummy
/sbin/ip addr add 198.51.100.1/32 dev other0
ipvsadm -A -t 198.51.100.1:80 -s rr
ipset create OTHER hash:ip
ipset create KUBE-ROUTER hash:ip
iptables -N OTHER
iptables -A INPUT -m set --match-set OTHER src -j OTHER
iptables -t nat -A PREROUTING -d 198.51.100.1 -j ACCEPT
`

// state lists all objects that ipvs mode creates, and those of others. It omits tables, which exist once they were
// read, and their built-in chains.
func state(t *testing.T) string {
	t.Helper()
	text := sh(t, `/sbin/ip -o addr | cut -d' ' -f2-7; ipvsadm -S -n | grep -v -e ' -r '; ipset list -n; for p in iptables ip6tables; do $p-save; done`)
	return unimportant.ReplaceAllString(text, "")
}

// unimportant matches lines about tables, and counters.
var unimportant = regexp.MustCompile(`(?m)^([#*].*|COMMIT|:[A-Z]+ ACCEPT.*|)\n| \[\d+:\d+\]`)

// ipvs matches what only ipvs mode creates.
var ipvs = regexp.MustCompile(`kube-ipvs0|(?m)^-A -[tu] 10\.\S+|KUBE-(6-)?(LOOP-BACK|CLUSTER-IP|EXTERNAL-IP|LOAD-BALANCER|NODE-PORT|HEALTH-CHECK|IPVS|SOURCE-RANGES)\S*`)

// leave creates the leftovers of ipvs mode: with Kubernetes' own kube-proxy (PEER) if it is given, otherwise by hand.
func leave(t *testing.T, url string) {
	t.Helper()
	peer := os.Getenv("PEER")
	if peer == "" {
		sh(t, byHand)
		return
	}
	runUntil(t, func() bool {
		now := state(t)
		return strings.Count(now, "-A -t ") > 10 && strings.Contains(now, "-A PREROUTING") && strings.Contains(now, "KUBE-NODE-PORT")
	}, func() string { return state(t) }, peer, "--proxy-mode=ipvs", "--master="+url, "--hostname-override=node1", "--cluster-cidr=10.244.0.0/16",
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0")
}

// byHand creates the leftovers of ipvs mode for one Service.
const byHand = `set -e
/sbin/ip link add kube-ipvs0 type dummy
/sbin/ip addr add 10.96.0.10/32 dev kube-ipvs0
/sbin/ip addr add fd00:10:96::10/128 dev kube-ipvs0
ipvsadm -A -t 10.96.0.10:80 -s rr
ipvsadm -a -t 10.96.0.10:80 -r 10.244.0.2:8080 -m
ipvsadm -A -u 10.96.0.10:53 -s rr
ipvsadm -A -t [fd00:10:96::10]:80 -s rr
ipvsadm -A -t 10.9.8.7:30080 -s rr
ipset create KUBE-CLUSTER-IP hash:ip,port
ipset add KUBE-CLUSTER-IP 10.96.0.10,tcp:80
ipset create KUBE-6-CLUSTER-IP hash:ip,port family inet6
ipset create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
ipset add KUBE-NODE-PORT-TCP 30080
for p in iptables ip6tables; do
  six=$(echo $p | grep -o 6 || true)
  set=KUBE-${six:+6-}CLUSTER-IP
  for c in KUBE-SERVICES KUBE-POSTROUTING KUBE-MARK-MASQ KUBE-LOAD-BALANCER KUBE-NODE-PORT; do $p -t nat -N $c; done
  for c in KUBE-FORWARD KUBE-NODE-PORT KUBE-PROXY-FIREWALL KUBE-SOURCE-RANGES-FIREWALL KUBE-IPVS-FILTER KUBE-IPVS-OUT-FILTER; do $p -N $c; done
  $p -t nat -A PREROUTING -j KUBE-SERVICES
  $p -t nat -A OUTPUT -j KUBE-SERVICES
  $p -t nat -A POSTROUTING -j KUBE-POSTROUTING
  $p -t nat -A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
  $p -t nat -A KUBE-SERVICES -m set --match-set $set dst,dst -j ACCEPT
  $p -A INPUT -j KUBE-IPVS-FILTER
  $p -A INPUT -j KUBE-PROXY-FIREWALL
  $p -A INPUT -j KUBE-NODE-PORT
  $p -A FORWARD -j KUBE-FORWARD
  $p -A OUTPUT -j KUBE-IPVS-OUT-FILTER
  $p -A KUBE-IPVS-FILTER -m set --match-set $set dst,dst -j RETURN
done
`

// wait waits until a condition holds.
func wait(t *testing.T, holds func() bool, describe func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			t.Fatalf("not after %v:\n%s", patience, describe())
		}
	}
}

// TestKernelLeftovers creates the leftovers of ipvs mode. --cleanup must remove all of them, and so must a start in either
// mode; objects of other programs must remain.
func TestKernelLeftovers(t *testing.T) {
	if os.Getenv("KERNELS") == "" {
		t.Skip("needs the modules dummy, ip_vs and ip_set, and changes this machine: run make kernels")
	}
	program := kubeproxy.Path(t)
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := synthetic.Serve(listener, synthetic.New(synthetic.Size{Services: 30, Endpoints: 2}, "node1"), synthetic.Options{})
	defer server.Close()
	sh(t, "/sbin/modprobe dummy numdummies=0; /sbin/ip link add uplink type veth peer name far; /sbin/ip addr add 10.9.8.7/24 dev uplink; "+
		"/sbin/ip link set uplink up; /sbin/ip link set far up; /sbin/ip route add default via 10.9.8.1")
	sh(t, foreign)
	manifests := t.TempDir()
	if err := os.WriteFile(filepath.Join(manifests, "node.yaml"), []byte("apiVersion: v1\nkind: Node\nmetadata: {name: node1}\n"+
		"status: {addresses: [{type: InternalIP, address: 10.9.8.7}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := state(t)
	t.Logf("what others made:\n%s", before)
	for _, test := range []struct {
		name string
		args []string
	}{
		{"cleanup", []string{"--cleanup"}},
		{"nftables", []string{"--proxy-mode=nftables"}},
		{"iptables", []string{"--proxy-mode=iptables", "--iptables-localhost-nodeports=false"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			leave(t, "http://"+listener.Addr().String())
			left := state(t)
			if !ipvs.MatchString(left) {
				t.Fatalf("nothing is left that could be removed:\n%s", left)
			}
			t.Logf("left behind:\n%s", left)
			if test.name != "cleanup" {
				serve(t, program, append(test.args, "--manifests="+manifests, "--hostname-override=node1"))
				if found := ipvs.FindAllString(state(t), -1); found != nil {
					t.Errorf("there is still %q", found)
				}
			}
			if out, err := exec.Command(program, "--cleanup").CombinedOutput(); err != nil {
				t.Errorf("--cleanup: %v\n%s", err, out)
			}
			if after := state(t); after != before {
				t.Errorf("after --cleanup there is\n%s\nwant what others made\n%s", after, before)
			}
		})
	}
}

// serve runs kube-proxy until nothing of ipvs mode is left.
func serve(t *testing.T, program string, args []string) {
	t.Helper()
	runUntil(t, func() bool { return !ipvs.MatchString(state(t)) },
		func() string { return fmt.Sprintf("%q", ipvs.FindAllString(state(t), -1)) }, program, args...)
}

// runUntil runs a program until a condition holds, and kills it. describe returns the state for the error if the
// condition never holds.
func runUntil(t *testing.T, holds func() bool, describe func() string, program string, args ...string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s", log.String())
		}
	}()
	wait(t, holds, describe)
}
