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
)

const (
	// tryTimeout is how long one connection may take; one that is dropped takes as long.
	tryTimeout = 2 * time.Second
	// parallel is the number of connections at a time.
	parallel = 32
)

// Trial is the result of real connections.
type Trial struct {
	explained *v1alpha1.Explanation
	// Connected, Refused and TimedOut count the connections by their results; Failed are those that could not be sent.
	Connected, Refused, TimedOut, Failed int
	// Denied counts datagrams that send(2) refused with EPERM: a rule in the output hook rejected or dropped them.
	Denied int
	// Reached is the number of connections that the kernel's rules sent to each of the explained endpoints meanwhile, also of
	// other clients. It is nil if they are not counted.
	Reached map[string]uint64
	// Endpoints are the results of a connection to each endpoint itself, without the Service: "" if it answers. It is nil unless TCP
	// connections to the Service failed.
	Endpoints map[string]string
	// Err is the first unexpected error.
	Err error
}

// Try sends connections from this machine to the destination of an explanation, for TCP and UDP. Of UDP it sends one datagram
// each, and only a rejection can be distinguished from silence.
func Try(ctx context.Context, r Reader, e *v1alpha1.Explanation, n int) (*Trial, error) {
	if e.Protocol == "SCTP" {
		return nil, errors.New("--try sends TCP and UDP only")
	}
	t := &Trial{explained: e}
	before, err := reached(ctx, r, e)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	inParallel(n, func(int) {
		err := connect(ctx, strings.ToLower(e.Protocol), e.To)
		mu.Lock()
		defer mu.Unlock()
		t.record(err)
	})
	t.askEndpoints(ctx)
	after, err := reached(ctx, r, e)
	if err != nil || before == nil || after == nil {
		return t, err
	}
	t.Reached = map[string]uint64{}
	for endpoint, count := range after {
		if count >= before[endpoint] {
			t.Reached[endpoint] = count - before[endpoint]
		}
	}
	return t, nil
}

// inParallel calls do with 0 to n-1, some at a time, and returns when all calls have.
func inParallel(n int, do func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
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

// askEndpoints opens a connection to each endpoint if some connections to the Service failed.
func (t *Trial) askEndpoints(ctx context.Context) {
	e := t.explained
	if e.Verdict != v1alpha1.VerdictBalance || e.Protocol != "TCP" || t.Connected+t.Failed == t.tries() {
		return
	}
	asked := e.Endpoints[:min(len(e.Endpoints), maxAsked)]
	results := make([]string, len(asked))
	inParallel(len(asked), func(i int) {
		one := &Trial{}
		if one.record(connect(ctx, "tcp", asked[i])); one.Connected == 0 {
			results[i] = one.result()
		}
	})
	t.Endpoints = map[string]string{}
	for i, endpoint := range asked {
		t.Endpoints[endpoint] = results[i]
	}
}

// result names the result of a single connection.
func (t *Trial) result() string {
	switch {
	case t.Refused > 0:
		return "refused"
	case t.TimedOut > 0:
		return "no answer"
	case t.Denied > 0:
		return "denied at send"
	default:
		return t.Err.Error()
	}
}

// silent is the number of endpoints that were asked themselves and did not answer.
func (t *Trial) silent() (n int) {
	for _, result := range t.Endpoints {
		if result != "" {
			n++
		}
	}
	return n
}

// reached reads how many connections the endpoints of an explanation have got; nil if that is not counted.
func reached(ctx context.Context, r Reader, e *v1alpha1.Explanation) (map[string]uint64, error) {
	namespace, name, ok := strings.Cut(e.Service, "/")
	if !ok || e.Verdict != v1alpha1.VerdictBalance {
		return nil, nil
	}
	service, err := r.Service(ctx, namespace, name)
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
var errSilent = errors.New("no answer")

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

// record counts a result.
func (t *Trial) record(err error) {
	var timeout net.Error
	switch {
	case err == nil:
		t.Connected++
	case errors.Is(err, syscall.ECONNREFUSED):
		t.Refused++
	case errors.Is(err, syscall.EPERM):
		t.Denied++
	case errors.Is(err, errSilent), errors.As(err, &timeout) && timeout.Timeout():
		t.TimedOut++
	default:
		t.Failed++
		if t.Err == nil {
			t.Err = err
		}
	}
}

// tries is the number of connections.
func (t *Trial) tries() int { return t.Connected + t.Refused + t.TimedOut + t.Failed + t.Denied }

// sent is the number of connections that the rules sent to the explained endpoints.
func (t *Trial) sent() (n uint64) {
	for _, count := range t.Reached {
		n += count
	}
	return n
}

// Succeeds reports whether the connections did what was explained, and those of TCP that endpoints got were answered.
func (t *Trial) Succeeds() bool { return t.agrees() && t.Endpoints == nil }

// agrees reports whether the connections did what was explained.
func (t *Trial) agrees() bool {
	n := t.tries()
	switch t.explained.Verdict {
	case v1alpha1.VerdictBalance:
		return t.Connected == n || t.Reached != nil && t.sent() >= uint64(n) || t.explained.Protocol == "UDP" && t.Connected > 0 && t.Refused+t.Failed+t.Denied == 0
	case v1alpha1.VerdictReject:
		return t.Refused+t.Denied == n
	case v1alpha1.VerdictDrop:
		return t.TimedOut+t.Denied == n
	default:
		return true // what becomes of other connections is not the proxy's
	}
}

// String describes the trial in some lines.
func (t *Trial) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nTried %d: %d connected, %d refused, %d without an answer", t.tries(), t.Connected, t.Refused, t.TimedOut)
	if t.Denied > 0 {
		fmt.Fprintf(&b, ", %d denied at send", t.Denied)
	}
	if t.Err != nil {
		fmt.Fprintf(&b, ", %d failed: %v", t.Failed, t.Err)
	}
	b.WriteByte('\n')
	for _, endpoint := range t.explained.Endpoints {
		var is []string
		if t.Reached != nil {
			is = append(is, fmt.Sprintf("got %d", t.Reached[endpoint]))
		}
		if result, asked := t.Endpoints[endpoint]; asked {
			is = append(is, "asked itself: "+cmp.Or(result, "answered"))
		}
		if len(is) > 0 {
			fmt.Fprintf(&b, "  %s %s\n", endpoint, strings.Join(is, "; "))
		}
	}
	const look = "does a process of the pod listen on the targetPort, and does a NetworkPolicy or firewall refuse?"
	switch silent := t.silent(); {
	case errors.Is(t.Err, syscall.ENETUNREACH), errors.Is(t.Err, syscall.EHOSTUNREACH):
		to, _ := netip.ParseAddrPort(t.explained.To)
		command := "ip route get "
		if to.Addr().Is6() {
			command = "ip -6 route get "
		}
		fmt.Fprintf(&b, "Nothing was sent: this node has no route to %s (%s%s).\n", to.Addr(), command, to.Addr())
	case silent > 0 && silent == len(t.Endpoints):
		fmt.Fprintf(&b, "No endpoint answers: %s\n", look)
	case silent > 0:
		fmt.Fprintf(&b, "%d of %d endpoints do not answer: %s\n", silent, len(t.Endpoints), look)
	case !t.agrees() && t.explained.Protocol == "UDP" && t.TimedOut == t.tries() && t.Reached == nil:
		b.WriteString("Nothing answered, and connections are not counted: this does not show whether the rules do what was explained.\n")
	case !t.agrees():
		b.WriteString("This is not what was explained: other rules may interfere, or the state has just changed.\n")
	case t.Endpoints != nil:
		b.WriteString("Each endpoint answers when it is asked itself, but not all connections to the Service were answered.\n")
	default:
		b.WriteString("This is what was explained.\n")
	}
	return b.String()
}
