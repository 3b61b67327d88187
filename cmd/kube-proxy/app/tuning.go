package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/sysctl"
)

const (
	// mostTracked bounds the number of tracked connections that is worked out from the number of CPUs: a machine with
	// hundreds of them would set gigabytes aside.
	mostTracked = 1 << 20
	// trackedPerBucket is how many connections share a bucket of the kernel's table when it is full.
	trackedPerBucket = 4

	trackedMax     = "net/netfilter/nf_conntrack_max"
	trackedBuckets = "net/netfilter/nf_conntrack_buckets"
)

// setting is a kernel setting and the value it should have.
type setting struct {
	name  string
	value int64
	// least tells that a greater value is as good.
	least bool
}

// trackingSettings are the settings of connection tracking that a configuration asks for, in the order in which they are
// written. cpus is the number of CPUs of the machine.
func trackingSettings(cfg *config.KubeProxyConntrackConfiguration, cpus int) []setting {
	var all []setting
	if cfg.MaxPerCore > 0 {
		limit := max(min(int64(cfg.MaxPerCore)*int64(cpus), mostTracked), int64(cfg.Min))
		all = append(all, setting{name: trackedMax, value: limit},
			setting{name: trackedBuckets, value: limit / trackedPerBucket, least: true})
	}
	seconds := func(name string, d time.Duration) {
		if d > 0 {
			all = append(all, setting{name: "net/netfilter/nf_conntrack_" + name, value: int64((d + time.Second - 1) / time.Second)})
		}
	}
	seconds("tcp_timeout_established", cfg.TCPEstablishedTimeout.Duration)
	seconds("tcp_timeout_close_wait", cfg.TCPCloseWaitTimeout.Duration)
	if cfg.TCPBeLiberal {
		all = append(all, setting{name: "net/netfilter/nf_conntrack_tcp_be_liberal", value: 1})
	}
	seconds("udp_timeout", cfg.UDPTimeout.Duration)
	seconds("udp_timeout_stream", cfg.UDPStreamTimeout.Duration)
	return all
}

// apply writes a setting unless it has its value, and tells whether it did.
func (s setting) apply(kernel sysctl.Settings) (written bool, err error) {
	text, err := kernel.Read(s.name)
	if err != nil {
		return false, err
	}
	// A value that is no number is not the wanted one.
	if have, err := strconv.ParseInt(text, 10, 64); err == nil && (have == s.value || s.least && have > s.value) {
		return false, nil
	}
	return true, kernel.Write(s.name, strconv.FormatInt(s.value, 10))
}

// tune applies all settings; one that fails does not keep the others. The error joins what failed.
func tune(ctx context.Context, kernel sysctl.Settings, settings []setting) error {
	var failed []error
	for _, s := range settings {
		written, err := s.apply(kernel)
		if err != nil {
			failed = append(failed, err)
		} else if written {
			klog.FromContext(ctx).Info("Set a kernel setting", "name", s.name, "value", s.value)
		}
	}
	return errors.Join(failed...)
}

// adjustOOMScore makes the kernel less, or more, likely to end this process when memory is short.
func adjustOOMScore(path string, score int32) error {
	if err := os.WriteFile(path, []byte(strconv.Itoa(int(score))), 0); err != nil {
		return fmt.Errorf("set oom_score_adj to %d: %w; it takes CAP_SYS_RESOURCE to lower it", score, err)
	}
	return nil
}

// cpus counts the CPUs of the machine by the kernel's list of those online, such as "0-3,8": what this process may use
// itself says nothing about how many connections the machine has.
func cpus(sys fs.FS) int {
	list, err := fs.ReadFile(sys, "devices/system/cpu/online")
	if err != nil {
		return runtime.NumCPU()
	}
	count := 0
	for span := range strings.SplitSeq(strings.TrimSpace(string(list)), ",") {
		first, last, isRange := strings.Cut(span, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || to < from {
			return runtime.NumCPU()
		}
		count += to - from + 1
	}
	return count
}

// tuneLate applies settings that did not exist at the start, once rules are there: their first mention of connection
// tracking loads its module.
func tuneLate(ctx context.Context, kernel sysctl.Settings, settings []setting) {
	if err := tune(ctx, kernel, settings); err != nil {
		klog.FromContext(ctx).Error(err, "Connection tracking is not set up as configured; Services work all the same")
	}
}

// prepareMachine does the part of the start that needs more rights than proxying: an init container may do it with
// --init-only. It returns the settings that do not exist, at least not yet (see tuneLate), and what else failed.
func prepareMachine(ctx context.Context, cfg *config.KubeProxyConfiguration, kernel sysctl.Settings) (missing []setting, failed error) {
	for _, s := range trackingSettings(&cfg.Linux.Conntrack, cpus(os.DirFS("/sys"))) {
		switch err := tune(ctx, kernel, []setting{s}); {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, s)
		case err != nil:
			failed = errors.Join(failed, err)
		}
	}
	return missing, failed
}
