package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

const (
	// tryTimeout is how long one connection may take; one that is dropped takes as long.
	tryTimeout = 2 * time.Second
	// parallel is the number of connections at a time.
	parallel = 32
)

// trial is the result of real connections as it becomes known.
type trial struct {
	v1alpha1.Trial
	explained *v1alpha1.Explanation
	// unrouted is whether this machine has no route to the destination.
	unrouted bool
}

// Try sends connections from this machine to the destination of an explanation, for TCP and UDP. Of UDP it sends one datagram
// each, and only a rejection can be distinguished from silence.
func Try(ctx context.Context, r Reader, e *v1alpha1.Explanation, n int) (*v1alpha1.Trial, error) {
	if e.Protocol == "SCTP" {
		return nil, errors.New("--try sends TCP and UDP only")
	}
	t := &trial{explained: e}
	before, err := reached(ctx, r, e)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	InParallel(n, parallel, func(int) {
		err := connect(ctx, strings.ToLower(e.Protocol), e.To)
		mu.Lock()
		defer mu.Unlock()
		t.record(err)
	})
	t.unrouted = t.Failed > 0 && !routed(ctx, e.To)
	results := t.askEndpoints(ctx)
	after, err := reached(ctx, r, e)
	if err != nil {
		return nil, err
	}
	t.conclude(results, before, after)
	return &t.Trial, nil
}

// conclude adds the results of each endpoint, where there are any, and what all results mean. The counters before and after are nil if
// nothing is counted.
func (t *trial) conclude(results map[string]string, before, after map[string]uint64) {
	for _, address := range t.explained.Endpoints {
		one := v1alpha1.TriedEndpoint{Address: address, Result: results[address]}
		if before != nil && after != nil {
			one.Connections = new(after[address] - min(before[address], after[address]))
		}
		if one.Connections != nil || one.Result != "" {
			t.Endpoints = append(t.Endpoints, one)
		}
	}
	asked, _ := t.asked()
	t.Succeeds, t.Conclusion = t.agrees() && asked == 0, t.conclusion()
}

// InParallel calls do with 0 to n-1, so many at a time, and returns when all calls have.
func InParallel(n, atOnce int, do func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	wg.Wait()
}

// maxAsked bounds how many endpoints are asked themselves.
const maxAsked = 100

// The expected results of a connection, as of an endpoint that was asked itself.
const (
	answered = "answered"
	refused  = "refused"
	noAnswer = "no answer"
	denied   = "denied at send"
)

// askEndpoints opens a connection to each endpoint itself if some connections to the Service failed, and returns the results by address.
func (t *trial) askEndpoints(ctx context.Context) map[string]string {
	e := t.explained
	if e.Verdict != v1alpha1.VerdictBalance || e.Protocol != "TCP" || t.unrouted || t.Connected == tries(&t.Trial) {
		return nil
	}
	addresses := e.Endpoints[:min(len(e.Endpoints), maxAsked)]
	results := make([]string, len(addresses))
	InParallel(len(addresses), parallel, func(i int) {
		results[i] = resultOf(connect(ctx, "tcp", addresses[i]))
	})
	all := map[string]string{}
	for i, address := range addresses {
		all[address] = results[i]
	}
	return all
}

// asked returns how many endpoints were asked themselves, and how many of them did not answer.
func (t *trial) asked() (all, silent int) {
	for _, e := range t.Endpoints {
		if e.Result != "" {
			all++
		}
		if e.Result != "" && e.Result != answered {
			silent++
		}
	}
	return all, silent
}

// sent returns how many connections the rules sent to the endpoints, and whether they are counted.
func (t *trial) sent() (n uint64, counted bool) {
	for _, e := range t.Endpoints {
		if e.Connections != nil {
			n, counted = n+*e.Connections, true
		}
	}
	return n, counted
}

// reached reads how many connections the endpoints of an explanation have got; nil if that is not counted.
func reached(ctx context.Context, r Reader, e *v1alpha1.Explanation) (map[string]uint64, error) {
	name, ok := cluster.ParseServiceName(e.Service)
	if !ok || e.Verdict != v1alpha1.VerdictBalance {
		return nil, nil
	}
	service, err := r.Service(ctx, name)
	if err != nil || service.Connections == nil || service.SessionAffinitySeconds > 0 { // whose connections are not all counted
		return nil, err
	}
	counts := map[string]uint64{}
	for _, port := range service.Ports {
		if port.Name != e.Port || port.Protocol != e.Protocol {
			continue
		}
		for _, endpoint := range port.Endpoints {
			if endpoint.Connections != nil {
				counts[endpoint.Address] = *endpoint.Connections
			}
		}
	}
	if len(counts) == 0 { // only Services are counted
		return nil, nil
	}
	return counts, nil
}

// errSilent is the result of a datagram that nothing answered.
var errSilent = errors.New(noAnswer)

// connect opens a connection and closes it. A datagram has one byte.
func connect(ctx context.Context, network, to string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, to)
	if err != nil || network == "tcp" {
		if conn != nil {
			_ = conn.Close() // nothing was written
		}
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(tryTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte{0}); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errSilent
	}
	return err
}

// routed reports whether this machine has a route to an address: a socket of UDP looks for one when it is connected, and sends nothing.
func routed(ctx context.Context, to string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", to)
	if err == nil {
		_ = conn.Close() // nothing was written
	}
	return err == nil
}

// resultOf names the result of a connection; it is the text of an unexpected error.
func resultOf(err error) string {
	var timeout net.Error
	var number syscall.Errno
	switch {
	case err == nil:
		return answered
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case errors.Is(err, syscall.EPERM):
		return denied
	case errors.Is(err, errSilent), errors.As(err, &timeout) && timeout.Timeout():
		return noAnswer
	case errors.As(err, &number):
		return number.Error()
	default:
		return err.Error()
	}
}

// record counts a result.
func (t *trial) record(err error) {
	switch resultOf(err) {
	case answered:
		t.Connected++
	case refused:
		t.Refused++
	case denied:
		t.Denied++
	case noAnswer:
		t.TimedOut++
	default:
		t.Failed++
		t.Error = cmp.Or(t.Error, err.Error())
	}
}

// tries is the number of connections.
func tries(t *v1alpha1.Trial) int { return t.Connected + t.Refused + t.TimedOut + t.Failed + t.Denied }

// agrees reports whether the connections did what was explained.
func (t *trial) agrees() bool {
	n := tries(&t.Trial)
	switch t.explained.Verdict {
	case v1alpha1.VerdictBalance:
		sent, counted := t.sent()
		return t.Connected == n || counted && sent >= uint64(n) || t.explained.Protocol == "UDP" && t.Connected > 0 && t.Refused+t.Failed+t.Denied == 0
	case v1alpha1.VerdictReject:
		return t.Refused+t.Denied == n
	case v1alpha1.VerdictDrop:
		return t.TimedOut+t.Denied == n
	default:
		return true // what becomes of other connections is not the proxy's
	}
}

// conclusion says in words what the results mean.
func (t *trial) conclusion() string {
	const look = "does the pod exist, does a process in it listen on the targetPort, and does a NetworkPolicy or firewall refuse?"
	asked, silent := t.asked()
	_, counted := t.sent()
	switch {
	case t.explained.Verdict == v1alpha1.VerdictPass:
		return "The proxy does not handle such connections."
	case t.unrouted:
		to, _ := netip.ParseAddrPort(t.explained.To)
		command := "ip route get "
		if to.Addr().Is6() {
			command = "ip -6 route get "
		}
		return fmt.Sprintf("Nothing was sent: this node has no route to %s (%s%s).", to.Addr(), command, to.Addr())
	case silent > 0 && silent == asked:
		return "No endpoint answers: " + look
	case silent > 0:
		return fmt.Sprintf("%d of %d endpoints do not answer: %s", silent, asked, look)
	case !t.agrees() && t.explained.Protocol == "UDP" && t.TimedOut == tries(&t.Trial) && !counted:
		return "Nothing answered, and connections are not counted: this does not show whether the rules do what was explained."
	case !t.agrees():
		return "This is not what was explained: other rules may interfere, or the state has just changed."
	case asked > 0:
		return "Each endpoint answers when it is asked itself, but not all connections to the Service were answered."
	default:
		return "This is what was explained."
	}
}

// trialText describes a trial in some lines.
func trialText(t *v1alpha1.Trial) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nTried %d: %d connected, %d refused, %d without an answer", tries(t), t.Connected, t.Refused, t.TimedOut)
	if t.Denied > 0 {
		fmt.Fprintf(&b, ", %d denied at send", t.Denied)
	}
	if t.Failed > 0 {
		fmt.Fprintf(&b, ", %d failed: %s", t.Failed, t.Error)
	}
	b.WriteByte('\n')
	for _, e := range t.Endpoints {
		var is []string
		if e.Connections != nil {
			is = append(is, fmt.Sprintf("got %d", *e.Connections))
		}
		if e.Result != "" {
			is = append(is, "asked itself: "+e.Result)
		}
		fmt.Fprintf(&b, "  %s %s\n", e.Address, strings.Join(is, "; "))
	}
	return b.String() + t.Conclusion + "\n"
}
