//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
)

// bareCost are the lower bounds of what a proxy that programs nf_tables does; 0 is unknown.
type bareCost struct {
	// read is for reading all objects, write for writing as many elements, dump for reading these from the kernel.
	read, write, dump time.Duration
	// service and endpoint are for one transaction that adds a Service, or replaces an endpoint, when all others are
	// there.
	service, endpoint time.Duration
}

// The names of the bare costs of a start.
const (
	bareWrite = "bare write of as many elements"
	bareRead  = "bare read of the same objects"
	bareDump  = "bare dump of as many elements"
)

// bareCosts measures the lower bounds for a proxy that programs nf_tables: reading the same objects and writing the same
// elements, and nothing else; and transactions for that many changes of each kind. It calls add with each figure.
func (b *bench) bareCosts(changes int, add func(name, unit string, value float64)) (err error) {
	if b.run.Mode != "nftables" {
		return nil
	}
	if err := b.bareTable(changes, add); err != nil {
		return err
	}
	// The kernel frees the deleted table meanwhile.
	if b.bare.read, err = b.bareRead(); err != nil {
		return err
	}
	add(bareWrite, "ms", milliseconds(b.bare.write))
	add(bareRead, "ms", milliseconds(b.bare.read))
	add(bareDump, "ms", milliseconds(b.bare.dump))
	if changes > 0 {
		add("bare write of one Service", "ms", milliseconds(b.bare.service))
		add("bare write of one endpoint", "ms", milliseconds(b.bare.endpoint))
	}
	return nil
}

// multiple adds the ratio of a time and its lower bound, if that is known.
func (b *bench) multiple(name string, took, bare time.Duration) {
	if bare > 0 {
		b.run.add(name+", compared with bare cost", "times", float64(took)/float64(bare))
	}
}

// multipleOf is multiple for a figure in milliseconds that the run has already.
func (b *bench) multipleOf(name string, bare time.Duration) {
	if value, ok := b.run.value(name); ok {
		b.multiple(name, time.Duration(value*float64(time.Millisecond)), bare)
	}
}

// bareTable writes an address and a verdict for each Service, and a slot for each endpoint, into maps like those of
// pkg/proxy/backend/nftables but without counters, and reads and changes them. The maps are in a separate namespace and no rule
// uses them.
func (b *bench) bareTable(changes int, add func(name, unit string, value float64)) (err error) {
	var table nft.Table
	if err := b.lab.Node2.Do(func() (err error) { table, err = nft.Open(nf.IPv4, "bench"); return err }); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	const frontend = "ip daddr . meta l4proto . th dport"
	tx := table.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Add(&knftables.Chain{Name: "pick"})
	tx.Add(&knftables.Map{Name: "endpoints", TypeOf: frontend + " . numgen random mod 2 : ip daddr . th dport"})
	tx.Add(&knftables.Map{Name: "services", TypeOf: frontend + " : verdict"})
	tx.Add(&knftables.Set{Name: "addresses", Type: "ipv4_addr"})
	// knftables runs nft(8), which must run in that namespace too.
	ctx := context.Background()
	if err := b.lab.Node2.Do(func() error { return table.Run(ctx, tx) }); err != nil {
		return err
	}
	before, err := kernelMemory()
	if err != nil {
		return err
	}
	start := time.Now()
	elements, err := b.writeElements(ctx, table)
	if err != nil {
		return err
	}
	b.bare.write = time.Since(start)
	after, err := kernelMemory()
	if err != nil {
		return err
	}
	add("kernel memory for each element", "B", float64(after-before)/float64(elements))
	if err := b.dumpElements(ctx, table, elements); err != nil {
		return err
	}
	if err := b.changeElements(ctx, table, changes); err != nil {
		return err
	}
	tx = table.NewTransaction()
	tx.Delete(&knftables.Table{})
	return b.lab.Node2.Do(func() error { return table.Run(ctx, tx) })
}

// dumpElements reads all elements from the kernel.
func (b *bench) dumpElements(ctx context.Context, table nft.Table, want int) error {
	start, found := time.Now(), 0
	for _, set := range []string{"addresses", "services", "endpoints"} {
		for _, err := range table.Elements(ctx, set) {
			if err != nil {
				return err
			}
			found++
		}
	}
	b.bare.dump = time.Since(start)
	if found != want {
		return fmt.Errorf("the table has %d elements, want %d", found, want)
	}
	return nil
}

// changeElements measures transactions that add one Service and that replace one endpoint, that many times each.
func (b *bench) changeElements(ctx context.Context, table nft.Table, changes int) error {
	var added, replaced []time.Duration
	timed := func(took *[]time.Duration, batch *nf.Batch) error {
		start := time.Now()
		err := table.Commit(ctx, batch)
		*took = append(*took, time.Since(start))
		return err
	}
	endpoints := b.Endpoints(b.last())
	for turn := range changes {
		batch, number := table.NewBatch(), b.Size().Services+turn
		addElements(batch, number, endpoints)
		if err := timed(&added, batch); err != nil {
			return err
		}
		b.pause()
		batch.Reset()
		key, value := make([]byte, 16), make([]byte, 8)
		put(key, synthetic.VIP(number))
		key[4] = 6
		copy(value, endpoints[0].AsSlice())
		binary.BigEndian.PutUint16(value[4:], synthetic.EndpointPort)
		batch.Delete("endpoints", key)
		value[3]++
		batch.Add("endpoints", &nf.Element{Key: key, Value: value})
		if err := timed(&replaced, batch); err != nil {
			return err
		}
		b.pause()
	}
	b.bare.service, b.bare.endpoint = quantile(added, 0.5), quantile(replaced, 0.5)
	return nil
}

// writeElements writes the elements and returns their number.
func (b *bench) writeElements(ctx context.Context, table nft.Table) (elements int, err error) {
	const chunk = 10_000
	batch := table.NewBatch()
	commit := func(atLeast int) error {
		if batch.Len() < atLeast {
			return nil
		}
		elements += batch.Len()
		err := table.Commit(ctx, batch)
		batch.Reset()
		return err
	}
	for number := range b.Size().Services {
		addElements(batch, number, b.Endpoints(number))
		if err := commit(chunk); err != nil {
			return 0, err
		}
	}
	return elements, commit(1)
}

// addElements adds the elements of a Service to a batch.
func addElements(batch *nf.Batch, number int, endpoints []netip.Addr) {
	key, value := make([]byte, 16), make([]byte, 8)
	put(key, synthetic.VIP(number))
	key[4] = 6 // TCP
	namespace, name := synthetic.Name(number)
	batch.Add("addresses", &nf.Element{Key: key[:4]})
	batch.Add("services", &nf.Element{Key: key[:12], Chain: "pick", Comment: namespace + "/" + name + ":http"})
	for slot, endpoint := range endpoints {
		binary.NativeEndian.PutUint32(key[12:], uint32(slot))
		copy(value, endpoint.AsSlice())
		binary.BigEndian.PutUint16(value[4:], synthetic.EndpointPort)
		batch.Add("endpoints", &nf.Element{Key: key, Value: value})
	}
}

// put writes an address and a port to the first and third field of a key.
func put(key []byte, service netip.AddrPort) {
	copy(key, service.Addr().AsSlice())
	binary.BigEndian.PutUint16(key[8:], service.Port())
}

// message is an object in protobuf.
type message interface{ Unmarshal([]byte) error }

// bareRead reads the streams that a proxy reads, both concurrently, and decodes each object with Kubernetes' own code.
func (b *bench) bareRead() (time.Duration, error) {
	start := time.Now()
	ended := make(chan error)
	go func() { ended <- b.stream("/api/v1/services", func() message { return &corev1.Service{} }) }()
	go func() {
		ended <- b.stream("/apis/discovery.k8s.io/v1/endpointslices", func() message { return &discoveryv1.EndpointSlice{} })
	}()
	err := errors.Join(<-ended, <-ended)
	return time.Since(start), err
}

// stream reads a streaming list to its end.
func (b *bench) stream(path string, fresh func() message) error {
	client := http.Client{Transport: &http.Transport{DialContext: b.node.Dial, DisableKeepAlives: true}}
	const query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	request, err := http.NewRequest(http.MethodGet, b.url+path+query, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/vnd.kubernetes.protobuf;stream=watch")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("read %s: %s", path, response.Status)
	}
	from := bufio.NewReaderSize(response.Body, 1<<16)
	var frame []byte
	for {
		var length [4]byte
		if _, err := io.ReadFull(from, length[:]); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		frame = append(frame[:0], make([]byte, binary.BigEndian.Uint32(length[:]))...)
		if _, err := io.ReadFull(from, frame); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		var event metav1.WatchEvent
		var object runtime.Unknown
		if err := event.Unmarshal(frame); err != nil {
			return fmt.Errorf("decode an event of %s: %w", path, err)
		}
		if event.Type == string(watch.Bookmark) {
			return nil
		}
		const magic = 4 // bytes before each object
		if err := object.Unmarshal(event.Object.Raw[magic:]); err != nil {
			return fmt.Errorf("decode an event of %s: %w", path, err)
		}
		if err := fresh().Unmarshal(object.Raw); err != nil {
			return fmt.Errorf("decode an object of %s: %w", path, err)
		}
	}
}
