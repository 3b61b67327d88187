//go:build linux

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// perService is the number of endpoints of a Service in TestKernelAlteredElement.
const perService = 50

// drifts passes on what is found.
type drifts struct {
	proxy.Ignore
	found chan backend.Drift
}

func (d drifts) Drifted(found backend.Drift) { d.found <- found }

// object returns the nth Service and its endpoints.
func object(n int) (*corev1.Service, *discoveryv1.EndpointSlice) {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("service-", n)}
	address := clusters.AddrAt(172<<24, n).String()
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		ClusterIP: address, ClusterIPs: []string{address}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
	}}
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080)), Name: new("")}}}
	for i := range perService {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{clusters.AddrAt(10<<24, n*perService+i).String()}})
	}
	return service, slice
}

// TestKernelAlteredElement has another program alter the last of 20,000 endpoints, or of the number in the variable ENDPOINTS,
// first as the only writer, and then while a third program writes its own table all the time. The element is found and
// repaired each time, and from the second time on the program is named. The log has the times.
func TestKernelAlteredElement(t *testing.T) {
	endpoints := 20_000
	if text := os.Getenv("ENDPOINTS"); text != "" {
		var err error
		if endpoints, err = strconv.Atoi(text); err != nil {
			t.Fatalf("ENDPOINTS=%s: %v", text, err)
		}
	}
	lab := netns.Start(t, netns.Options{})
	builder, found, last := cluster.NewBuilder("node"), drifts{found: make(chan backend.Drift, 100)}, endpoints/perService-1
	if err := builder.Update(func(u *cluster.Update) {
		for n := range last + 1 {
			service, slice := object(n)
			u.SetService(service)
			u.SetEndpointSlice(slice)
		}
	}); err != nil {
		t.Fatal(err)
	}
	var other, watched nft.Table
	var running *proxy.Proxy
	if err := lab.Node1.Do(func() error {
		opened, err := openNFT()
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = opened.Close() })
		running = proxy.New(proxy.Config{Sources: []source.Source{complete{}}, Builder: builder, Backend: proxy.NewQuarantine(opened), Plan: &plan.Options{},
			Observers: []proxy.Observer{found}, MinSyncPeriod: time.Second, SyncPeriod: syncPeriod, CheckPeriod: 250 * time.Millisecond, Measure: host.MeasureCPU})
		var failed [2]error
		other, failed[0] = nft.Open(nf.IPv4, nftables.TableName)
		watched, failed[1] = nft.Open(nf.IPv4, nftables.TableName)
		return errors.Join(failed[:]...)
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- lab.Node1.Do(func() error { return running.Run(ctx) }) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	key := slotKey(last)
	right := value(t, watched, key)
	for i, name := range []string{"alone", "alone again", "while a third program writes", "while a third program writes, again"} {
		stop := func() {}
		if i >= 2 {
			stop = elsewhere(t, lab)
			time.Sleep(time.Second)
		}
		alter(t, other, key, slices.Repeat([]byte{1}, len(right)))
		at := time.Now()
		drift := <-found.found
		took := time.Since(at)
		for !bytes.Equal(value(t, watched, key), right) {
			if time.Since(at) > time.Minute {
				t.Fatalf("%s: the element is not repaired", name)
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Logf("%s: one of %d found after %v, repaired after %v", name, endpoints, took.Round(time.Millisecond), time.Since(at).Round(time.Millisecond))
		stop()
		time.Sleep(time.Second) // a write while the repair is written may be the proxy's own, and has no name
		if i > 0 && drift.Writer == "" {
			t.Errorf("%s: %+v has no writer", name, drift)
		}
	}
}

// slotKey is the key of the first endpoint of the nth Service.
func slotKey(n int) []byte {
	address := clusters.AddrAt(172<<24, n).As4()
	return append(address[:], unix.IPPROTO_TCP, 0, 0, 0, 0, 80, 0, 0, 0, 0, 0, 0)
}

// value returns the value of an endpoint's element; it waits until there is one.
func value(t *testing.T, table nft.Table, key []byte) []byte {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for e, err := range table.Find(t.Context(), "endpoints", slices.Values([][]byte{key})) {
			if err == nil {
				return bytes.Clone(e.Value)
			}
		}
	}
	t.Fatalf("there is no element %x", key)
	return nil
}

// alter replaces an endpoint, so that the number of elements stays.
func alter(t *testing.T, table nft.Table, key, value []byte) {
	t.Helper()
	batch := table.NewBatch()
	batch.Delete("endpoints", key)
	batch.Add("endpoints", &nf.Element{Key: key, Value: value})
	if err := table.Commit(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

// elsewhere has a program write its own table all the time until stop is called.
func elsewhere(t *testing.T, lab *netns.Lab) (stop func()) {
	t.Helper()
	fighter := lab.Node1.Command("sh", "-c", "while :; do nft 'add table inet elsewhere; delete table inet elsewhere'; sleep 0.1; done")
	if err := fighter.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := fighter.Kill(); err != nil {
			t.Error(err)
		}
	}
}
