package manifests

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

const (
	// quiet is how long nothing must happen to a file before it is read: a program that writes it in two
	// steps does so within that time. busy bounds the wait when files change all the time.
	quiet = 2 * time.Millisecond
	busy  = 20 * time.Millisecond
	// settle is how long a file may be bad before that is said; most are only being written.
	settle = 100 * time.Millisecond
	// patrol is the time between looks at what events do not tell: targets of links to other folders, file
	// systems without events, the machine's addresses.
	patrol = 5 * time.Second
)

// Source reads a folder of manifests and watches it. It is a source.Source.
type Source struct {
	nodeName string
	machine  func() ([]netip.Addr, error)
	// proxyVersion is the gate DisableNodeKubeProxyVersion switched off.
	proxyVersion bool
	folder       folder
	patrol       time.Duration
	complete     chan struct{}

	// applied is what the builder was told last, machineNode the Node made for want of one in the files.
	applied     map[key]placed
	machineNode *corev1.Node
	// told are the complaints that concern no single file and have been logged.
	told map[string]bool
}

// Option changes how a Source works.
type Option func(*Source)

// WithMachine tells how to find the addresses of the Node that is made from the machine when the files have
// none: global unicast addresses, the primary one first. Without this option that Node has no addresses.
func WithMachine(addrs func() ([]netip.Addr, error)) Option {
	return func(s *Source) { s.machine = addrs }
}

// WithNodeKubeProxyVersion tells whether the Node that is made from the machine reports nodeInfo.kubeProxyVersion: the
// feature gate DisableNodeKubeProxyVersion says that it does not, and so does a Source without this option.
func WithNodeKubeProxyVersion(report bool) Option {
	return func(s *Source) { s.proxyVersion = report }
}

// New makes a source of the files in dir for the node of that name.
func New(dir, nodeName string, options ...Option) *Source {
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute
	}
	s := &Source{
		nodeName: nodeName,
		machine:  func() ([]netip.Addr, error) { return nil, nil },
		folder:   folder{dir: dir, files: map[string]*file{}},
		patrol:   patrol,
		complete: make(chan struct{}),
		applied:  map[key]placed{},
		told:     map[string]bool{},
	}
	for _, option := range options {
		option(s)
	}
	return s
}

// Complete is closed when every file has been read once.
func (s *Source) Complete() <-chan struct{} { return s.complete }

// Run follows the folder until ctx ends. It fails only if there is no such folder at the start.
func (s *Source) Run(ctx context.Context, b *cluster.Builder) error {
	if info, err := os.Stat(s.folder.dir); err != nil {
		return fmt.Errorf("the folder of manifests: %w; create it or name another", err)
	} else if !info.IsDir() {
		return fmt.Errorf("the folder of manifests: %s is a file; name the folder that holds it", s.folder.dir)
	}
	w := newWatch(ctx, s.folder.dir)
	defer w.close()
	timer := time.NewTimer(0) // the first scan is due at once
	defer timer.Stop()
	touched, first := map[string]bool{}, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-w.events():
			if !w.concerns(event) {
				continue
			}
			now := time.Now()
			if len(touched) == 0 {
				first = now
			}
			touched[filepath.Base(event.Name)] = true
			timer.Reset(min(quiet, max(0, busy-now.Sub(first))))
		case err := <-w.errors():
			klog.FromContext(ctx).Info("Events of the folder of manifests were lost; reading it anew", "reason", err)
			touched[everything] = true
			timer.Reset(0)
		case <-timer.C:
			follows := w.follow(ctx)
			s.sync(ctx, b, touched)
			clear(touched)
			timer.Reset(s.next(follows))
			s.markComplete()
		}
	}
}

// everything stands for the names of all files; no file can have it.
const everything = "/"

func (s *Source) markComplete() {
	select {
	case <-s.complete:
	default:
		close(s.complete)
	}
}

// next tells when to look again without an event: soon, when there is no folder that events could come from,
// or a file is bad and nobody knows yet.
func (s *Source) next(follows bool) time.Duration {
	if !follows {
		return settle
	}
	for _, f := range s.folder.files {
		if f.err != nil && f.told != f.err.Error() {
			return settle
		}
	}
	return s.patrol
}

// sync reads what changed and tells the builder the difference to what it was told before.
func (s *Source) sync(ctx context.Context, b *cluster.Builder, touched map[string]bool) {
	bad := map[string]string{}
	for name, f := range s.folder.files {
		if f.err != nil {
			bad[name] = f.err.Error()
		}
	}
	var complaints []error
	if err := s.folder.scan(func(name string) bool { return touched[name] || touched[everything] }); err != nil {
		complaints = append(complaints, err)
	}
	objects, clashes := s.folder.inForce()
	complaints = append(complaints, clashes...)
	if _, given := objects[key{kind: "Node", name: s.nodeName}]; given {
		s.machineNode = nil
	} else if err := s.makeNode(); err != nil {
		complaints = append(complaints, err)
	}
	s.apply(b, objects)
	s.tellFiles(ctx, bad)
	s.tell(ctx, complaints)
}

// makeNode makes the Node from the machine, anew when the machine's addresses changed.
func (s *Source) makeNode() error {
	addrs, err := s.machine()
	if err != nil {
		err = fmt.Errorf("find the machine's addresses, because no file has a Node named %q: %w", s.nodeName, err)
		if s.machineNode != nil {
			return err
		}
	}
	var addresses []corev1.NodeAddress
	for _, addr := range addrs {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: addr.String()})
	}
	if s.machineNode == nil || !slices.Equal(s.machineNode.Status.Addresses, addresses) {
		s.machineNode = &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: s.nodeName, Labels: map[string]string{corev1.LabelHostname: s.nodeName}},
			Status:     corev1.NodeStatus{Addresses: addresses},
		}
		setKubeProxyVersion(s.machineNode, s.proxyVersion)
	}
	return err
}

// apply tells the builder, as one update, what objects has and the builder has not.
func (s *Source) apply(b *cluster.Builder, objects map[key]placed) {
	if s.machineNode != nil {
		objects[keyOf(s.machineNode)] = placed{object: s.machineNode}
	}
	// What the builder could not use has been found when the files were read.
	_ = b.Update(func(u *cluster.Update) {
		for k := range s.applied {
			if _, still := objects[k]; !still {
				remove(u, k)
			}
		}
		for k, now := range objects {
			if before, known := s.applied[k]; !known || before.object != now.object {
				Apply(u, []runtime.Object{now.object})
			}
		}
	})
	s.applied = objects
}

// remove tells that an object is gone. This node's own cannot go: another takes its place.
func remove(u *cluster.Update, k key) {
	switch k.kind {
	case "Service":
		u.DeleteService(cluster.ServiceName{Namespace: k.namespace, Name: k.name})
	case "EndpointSlice":
		u.DeleteEndpointSlice(cluster.SliceName{Namespace: k.namespace, Name: k.name})
	case "ServiceCIDR":
		u.DeleteServiceCIDR(k.name)
	}
}

// tellFiles logs what is wrong with files, once, and only if it was wrong at the last look too; and what was passed over.
func (s *Source) tellFiles(ctx context.Context, bad map[string]string) {
	logger := klog.FromContext(ctx)
	for name, f := range s.folder.files {
		path := filepath.Join(s.folder.dir, name)
		switch {
		case f.err == nil && f.told != "":
			logger.Info("Manifest is valid again", "file", path, "objects", len(f.objects))
			f.told = ""
		case f.err != nil && f.told != f.err.Error() && bad[name] == f.err.Error():
			f.told = f.err.Error()
			logger.Error(f.err, "Manifest has errors; its valid objects are in force, and nothing it held before is removed", "file", path, "objectsInForce", len(f.objects))
		}
		if len(f.passedOver) > 0 {
			logger.Info("Passed over objects in a manifest because a service proxy does not use their kinds", "file", path, "objects", f.passedOver)
			f.passedOver = nil
		}
	}
}

// tell logs other complaints once, and again when they have gone and come back.
func (s *Source) tell(ctx context.Context, complaints []error) {
	now := map[string]bool{}
	for _, complaint := range complaints {
		text := complaint.Error()
		now[text] = true
		if !s.told[text] {
			klog.FromContext(ctx).Error(complaint, "The manifests cannot be used in full")
		}
	}
	s.told = now
}
