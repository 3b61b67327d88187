//go:build linux

package rolling

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelDrainSCTP takes over from ipvs mode with associations of the kernel's SCTP, which the lab's own only imitates: none that exists
// may break, and no new one fail.
func TestKernelDrainSCTP(t *testing.T) {
	if os.Getenv("KERNELS") == "" {
		t.Skip("needs the modules ip_vs and sctp: run make kernels")
	}
	w := newWorld(t, 1, netns.SCTP)
	w.node("modprobe -a ip_vs ip_vs_rr ip_set dummy sctp")
	for _, p := range w.pods {
		for _, family := range netns.Families() {
			w.must(echoes(p.Host, netip.AddrPortFrom(p.Addr(family), endpointPort)))
		}
		w.becomes(p, ready)
	}
	w.byHand()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() { cancel(); all.Wait() }()
	var mu sync.Mutex
	counts := map[string]count{}
	counted := func(what string, err error) {
		mu.Lock()
		defer mu.Unlock()
		c := counts[what].plus(count{sent: 1})
		if err != nil {
			c.failed++
			t.Errorf("%s: %v", what, err)
		}
		counts[what] = c
	}
	for i, family := range netns.Families() {
		for _, service := range services {
			from, to := w.lab.Node1.Pods[1], netip.AddrPortFrom(netip.MustParseAddr(service.clusterIPs[i]), servicePort)
			kept, err := associate(from, from.Addr(family), to)
			w.must(err)
			all.Go(func() {
				defer unix.Close(kept)
				for ; ctx.Err() == nil; time.Sleep(time.Second) {
					counted("kept "+family.String(), echo(kept))
				}
			})
			all.Go(func() {
				for ; ctx.Err() == nil; time.Sleep(300 * time.Millisecond) {
					fd, err := associate(from, from.Addr(family), to)
					if err == nil {
						err = echo(fd)
					}
					unix.Close(fd)
					counted("new "+family.String(), err)
				}
			})
		}
	}
	w.after(5 * time.Second)
	defer w.cleanup(kubeproxy.Path(w))
	end := w.begin(kubeproxy.Path(w), "nftables", "DrainIPVSMode: true")
	defer func() {
		end()
		if w.Failed() {
			w.Log(w.log.String())
		}
	}()
	w.healthy()
	w.after(100 * time.Second) // the drain has looked at them several times
	if left := w.node("ipvsadm -S -n"); !strings.Contains(left, "--sctp") || strings.Contains(left, "-w 1") {
		t.Errorf("in use:\n%s", left)
	}
	cancel()
	all.Wait()
	w.Logf("associations and requests that failed: %v", counts)
	w.drained()
}

// sctp opens a socket of an address in a host.
func sctp(host *netns.Host, at netip.AddrPort) (fd int, err error) {
	domain := unix.AF_INET6
	if at.Addr().Is4() {
		domain = unix.AF_INET
	}
	err = host.Do(func() (err error) {
		fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("open a socket in %s: %w", host, err)
	}
	limit := unix.NsecToTimeval(int64(patience))
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err == nil {
			err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit)
		}
	}
	if err == nil {
		err = unix.Bind(fd, sockaddr(at)) // otherwise the other end learns of all addresses
	}
	return fd, err
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
}

// echoes answers all associations to an address in the background.
func echoes(host *netns.Host, at netip.AddrPort) error {
	listener, err := sctp(host, at)
	if err == nil {
		err = unix.Listen(listener, 128)
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", at, err)
	}
	go func() {
		for {
			fd, _, err := unix.Accept(listener)
			if err != nil {
				continue // a limit of time
			}
			go func() {
				defer unix.Close(fd)
				for buffer := make([]byte, 16); ; {
					n, err := unix.Read(fd, buffer)
					if errors.Is(err, unix.EINTR) {
						continue
					}
					if err != nil || n == 0 {
						return
					}
					if _, err := unix.Write(fd, buffer[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return nil
}

// associate connects an address of a host.
func associate(from *netns.Host, source netip.Addr, to netip.AddrPort) (fd int, err error) {
	err = uninterrupted(func() error {
		if fd, err = sctp(from, netip.AddrPortFrom(source, 0)); err != nil {
			return err
		}
		if err = unix.Connect(fd, sockaddr(to)); err != nil {
			unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("connect to %s: %w", to, err)
	}
	return fd, nil
}

// echo sends a request, and waits for its answer.
func echo(fd int) error {
	err := uninterrupted(func() error {
		_, err := unix.Write(fd, []byte("ping"))
		return err
	})
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	buffer, n := make([]byte, 16), 0
	err = uninterrupted(func() (err error) {
		n, err = unix.Read(fd, buffer)
		return err
	})
	if err != nil || string(buffer[:n]) != "ping" {
		return fmt.Errorf("read %q: %w", buffer[:max(n, 0)], err)
	}
	return nil
}

// uninterrupted repeats a system call that a signal of Go's runtime interrupts.
func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
