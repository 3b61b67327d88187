package manifests

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

const (
	// quiet is the time without events until files are read, because programs write a file in several steps. busy bounds
	// the wait if events keep coming.
	quiet = 2 * time.Millisecond
	busy  = 20 * time.Millisecond
	// settle is the time until the errors of a file are logged, because the file may still be being written.
	settle = 100 * time.Millisecond
	// resyncPeriod is the time between checks for changes without events: in the targets of links to other directories, on
	// file systems without events, and of the machine's addresses.
	resyncPeriod = 5 * time.Second
)

// Source reads and watches a directory of manifests. It is a source.Source.
type Source struct {
	nodeName string
	options  Options
	folder   folder
	resync   time.Duration
	complete chan struct{}

	// applied are the objects that the Builder has, machineNode the Node that is made from the machine if no file contains
	// it.
	applied     map[Key]placed
	machineNode *corev1.Node
	// invalid are the errors of files by file name, and ignored what is not used of them; failing are all other errors by their
	// text.
	invalid, ignored, failing logonce.Conditions[string]
	// errors is what Errors returns.
	errors atomic.Pointer[[]string]
}

// Options configure the Node that is made from the machine if no file contains it.
type Options struct {
	// Addrs returns the addresses of that Node: global unicast addresses, the primary one first. It has none if Addrs is nil.
	Addrs func() ([]netip.Addr, error)
}

// itself makes each file a group of its own, so that one that changes all the time does not hide the errors of others.
func itself(name string) string { return name }

// New returns a source of the files in dir for the node of that name.
func New(dir, nodeName string, options Options) *Source {
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute
	}
	rate := logonce.Rate{Burst: 10, Every: 30 * time.Second}
	if options.Addrs == nil {
		options.Addrs = func() ([]netip.Addr, error) { return nil, nil }
	}
	return &Source{
		nodeName: nodeName,
		options:  options,
		folder:   folder{dir: dir, files: map[string]*file{}, reader: userfile.NewFiles(maxSize)},
		resync:   resyncPeriod,
		complete: make(chan struct{}),
		applied:  map[Key]placed{},
		invalid:  logonce.Conditions[string]{Again: logonce.Reminder, Rate: rate, Group: itself},
		ignored:  logonce.Conditions[string]{Rate: rate, Group: itself},
		failing:  logonce.Conditions[string]{Again: logonce.Reminder, Rate: rate},
	}
}

// Complete returns a channel that is closed when every file has been read once, and those with errors twice.
func (s *Source) Complete() <-chan struct{} { return s.complete }

// Missing describes what is not complete, "" if all is, and what the user can do about it. It is safe for concurrent use.
func (s *Source) Missing() (what, hint string) {
	if s.isComplete() {
		return "", ""
	}
	return "the files with manifests", "check whether each file in " + s.folder.dir + " can be read"
}

// Run watches the directory until ctx ends. It returns an error only if the directory cannot be read at the start.
func (s *Source) Run(ctx context.Context, b *cluster.Builder) error {
	if info, err := os.Stat(s.folder.dir); err != nil {
		return fmt.Errorf("the directory of manifests: %w; create it or use another one", err)
	} else if !info.IsDir() {
		return fmt.Errorf("the directory of manifests: %s is a file; use the directory that contains it", s.folder.dir)
	}
	w := newWatch(ctx, s.folder.dir)
	defer w.close()
	timer := time.NewTimer(0) // the first scan is due at once
	defer timer.Stop()
	touched, first := map[string]bool{}, time.Time{}
	patient := time.Now().Add(startWait)
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
			klog.FromContext(ctx).Info("Events of the directory of manifests were lost; reading it again", "reason", err)
			touched[everything] = true
			timer.Reset(0)
		case <-timer.C:
			next := s.resync
			if !w.follow(ctx) {
				next = settle
			}
			pending, err := s.sync(ctx, b, touched)
			switch {
			case err != nil && !s.isComplete():
				return err
			case pending || !s.isComplete() && s.folder.unanswered() && time.Now().Before(patient): // a file that is being written is valid soon
				next = settle
			case err == nil:
				s.markComplete(klog.FromContext(ctx))
			}
			clear(touched)
			timer.Reset(next)
		}
	}
}

// startWait is how long a start waits for files that do not answer: without their objects, rules in force would be removed.
const startWait = 10 * time.Second

// everything stands for all file names; no file can have this name.
const everything = "/"

// markComplete ends the start. If the manifests have Nodes, but not this one, the name may be wrong.
func (s *Source) markComplete(logger klog.Logger) {
	if s.isComplete() {
		return
	}
	var others []string
	for k := range s.applied {
		if k.Kind == "Node" && k.Name != s.nodeName {
			others = append(others, k.Name)
		}
	}
	if slices.Sort(others); s.machineNode != nil && len(others) > 0 {
		logger.Info("No manifest has a Node of this name; is it right?", "node", s.nodeName, "nodes", len(others), "first", others[:min(len(others), maxNamed)])
	}
	close(s.complete)
}

// maxNamed is the number of Nodes that are named at most.
const maxNamed = 10

func (s *Source) isComplete() bool {
	select {
	case <-s.complete:
		return true
	default:
		return false
	}
}

// sync reads the files that changed and updates the Builder. pending reports that a file has errors that will be logged if
// the next sync still finds them. If the directory cannot be read, which is the error, no object is removed.
func (s *Source) sync(ctx context.Context, b *cluster.Builder, touched map[string]bool) (pending bool, _ error) {
	before := map[string]string{}
	for name, f := range s.folder.files {
		if f.err != nil {
			before[name] = f.err.Error()
		}
	}
	var errs []error
	unread := s.folder.scan(func(name string) bool { return touched[name] || touched[everything] })
	if unread != nil {
		errs = append(errs, fmt.Errorf("%w; keeping the objects that it contained", unread))
	}
	objects, duplicates := s.folder.objects()
	for _, duplicate := range duplicates {
		errs = append(errs, duplicate)
	}
	if _, given := objects[Key{Kind: "Node", Name: s.nodeName}]; given {
		s.machineNode = nil
	} else if err := s.makeNode(); err != nil {
		errs = append(errs, err)
	}
	s.apply(b, objects)
	s.logErrors(ctx, errs)
	s.note(errs, before)
	return s.logFiles(ctx, before), unread
}

// note keeps for Errors the errors of files that the previous sync found too, and those that do not concern a single file.
func (s *Source) note(errs []error, before map[string]string) {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(s.folder.files)) {
		if f := s.folder.files[name]; f.err != nil && before[name] == f.err.Error() {
			texts = append(texts, before[name])
		}
	}
	if more := len(texts) - maxErrors; more > 0 {
		texts = append(texts[:maxErrors], fmt.Sprintf("%d more", more))
	}
	s.errors.Store(&texts)
}

// Errors returns why not all manifests are in use, the first few errors if there are many. It is safe for concurrent use.
func (s *Source) Errors() []string {
	if texts := s.errors.Load(); texts != nil {
		return *texts
	}
	return nil
}

// makeNode makes the Node from the machine, again if the machine's addresses have changed.
func (s *Source) makeNode() error {
	addrs, err := s.options.Addrs()
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
	}
	return err
}

// apply updates the Builder to objects, in one update.
func (s *Source) apply(b *cluster.Builder, objects map[Key]placed) {
	if s.machineNode != nil {
		objects[keyOf(s.machineNode)] = placed{object: s.machineNode}
	}
	// The Builder's problems with an object are reported when its file is parsed.
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

// remove deletes an object. The Node is not deleted: it is replaced by one made from the machine.
func remove(u *cluster.Update, k Key) {
	switch k.Kind {
	case "Service":
		u.DeleteService(cluster.ServiceName{Namespace: k.Namespace, Name: k.Name})
	case "EndpointSlice":
		u.DeleteEndpointSlice(cluster.SliceName{Namespace: k.Namespace, Name: k.Name})
	case "ServiceCIDR":
		u.DeleteServiceCIDR(k.Name)
	}
}

// logFiles logs the errors of files and the objects that are ignored. before contains the errors that files had before this
// sync: new ones are not logged yet, and reported as pending.
func (s *Source) logFiles(ctx context.Context, before map[string]string) (pending bool) {
	logger := klog.FromContext(ctx)
	for _, name := range slices.Sorted(maps.Keys(s.folder.files)) {
		f, path := s.folder.files[name], filepath.Join(s.folder.dir, name)
		switch {
		case f.err == nil:
			if s.invalid.Ended(name) {
				logger.Info("Manifest is valid again", "file", path, "objects", len(f.objects))
			}
		case before[name] != f.err.Error():
			pending = true
		case s.invalid.Changed(name, f.err.Error()):
			logger.Error(f.err, "Manifest has errors; using its valid objects and keeping all of its earlier ones", "file", path,
				"objectsInUse", len(f.objects), "notLogged", s.invalid.NotLogged(name))
		}
		if len(f.ignored) == 0 {
			s.ignored.Ended(name)
		} else if s.ignored.Changed(name, fmt.Sprint(f.ignored)) {
			logger.Info("Ignoring objects in a manifest; a service proxy does not use their kinds", "file", path, "objects", f.ignored,
				"notLogged", s.ignored.NotLogged(name))
		}
	}
	exists := func(name string) bool { return s.folder.files[name] != nil }
	s.invalid.EndedExcept(exists)
	s.ignored.EndedExcept(exists)
	return pending
}

// logErrors logs errors that do not concern a single file.
func (s *Source) logErrors(ctx context.Context, errs []error) {
	now := map[string]bool{}
	for _, err := range errs {
		text := err.Error()
		now[text] = true
		if s.failing.Changed(text, "") {
			klog.FromContext(ctx).Error(err, "Failed to use all manifests", "notLogged", s.failing.NotLogged(text))
		}
	}
	s.failing.EndedExcept(func(text string) bool { return now[text] })
}
