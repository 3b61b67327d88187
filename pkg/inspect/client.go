package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// DefaultServer is where a proxy with the default configuration serves its API.
const DefaultServer = "127.0.0.1:10249"

// DefaultTimeout bounds one request: a list of 45,000 Services takes about a second.
const DefaultTimeout = 5 * time.Second

// TurnTimeout bounds a request that waits for its turn, because it reads all rules or connections: the proxy answers, or says why not, within
// 25 seconds.
const TurnTimeout = 30 * time.Second

// maxAnswer is how much of an answer is read: a list of 45,000 Services is some 30 MB, and all rules are not much more.
const maxAnswer = 256 << 20

// Client is a Reader of a running proxy.
type Client struct {
	server string
	// at is where the proxy runs, in errors: the server, or another machine's pod.
	at     string
	remote bool
	http   http.RoundTripper
	// timeout bounds a question; 0 does not. limit is that of an answer, in bytes.
	timeout time.Duration
	limit   int64
}

var _ Reader = (*Client)(nil)

// NewClient returns a Client of the proxy at a server: host:port, or a URL with http.
// Each request may take as long as timeout; 0 sets no limit.
func NewClient(server string, timeout time.Duration) (*Client, error) {
	if timeout < 0 {
		return nil, fmt.Errorf("--request-timeout %s is negative", timeout)
	}
	text := server
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Host == "" || u.Port() == "" || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("%q is not an address of a proxy: write HOST:PORT, as in %s", server, DefaultServer)
	}
	// No proxy of the environment: the server is on this machine.
	return &Client{server: "http://" + u.Host, at: "http://" + u.Host, http: &http.Transport{}, timeout: timeout, limit: maxAnswer}, nil
}

// Through returns the same Client for a server on another machine, which a transport reaches. at is where that is, in errors.
func (c *Client) Through(transport http.RoundTripper, at string) *Client {
	return &Client{server: c.server, at: at, remote: true, http: transport, timeout: c.timeout, limit: c.limit}
}

// AtMost returns the same Client with another limit of an answer, in bytes.
func (c *Client) AtMost(limit int64) *Client {
	limited := *c
	limited.limit = limit
	return &limited
}

// NotRunningError is the error if nothing listens on the server's address.
type NotRunningError struct {
	// Server is the URL, or the pod.
	Server string
	Cause  error
	// Remote is whether it is on another machine.
	Remote bool
}

func (e *NotRunningError) Error() string {
	if e.Remote {
		return fmt.Sprintf("no kube-proxy answers at %s: see its log, or name another metrics address with --server: %v", e.Server, e.Cause)
	}
	return fmt.Sprintf("no kube-proxy answers at %s: run this on its node, or in its pod (kubectl exec); name another metrics address with --server; "+
		"or read objects without a proxy, with --manifests or --kubeconfig: %v", e.Server, e.Cause)
}

func (e *NotRunningError) Unwrap() error { return e.Cause }

// get reads the object at a path.
func get[T any](ctx context.Context, c *Client, path string, query url.Values, kind string) (*T, error) {
	address := c.server + v1alpha1.Path + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	asked := time.Now()
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := c.http.RoundTrip(request)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, &NotRunningError{c.at, syscall.ECONNREFUSED, c.remote}
	case isTimeout(err):
		return nil, c.late(asked)
	case err != nil:
		return nil, fmt.Errorf("ask the proxy at %s: %w", c.at, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, c.failure(response)
	}
	limited := &io.LimitedReader{R: response.Body, N: c.limit}
	var raw json.RawMessage
	var meta v1alpha1.TypeMeta
	if err = json.NewDecoder(limited).Decode(&raw); err == nil {
		err = json.Unmarshal(raw, &meta)
	}
	switch {
	case err == nil:
	case limited.N == 0:
		return nil, fmt.Errorf("the answer of the proxy at %s has more than %d MiB: it is not read", c.at, c.limit>>20)
	case isTimeout(err):
		return nil, c.late(asked)
	default:
		return nil, fmt.Errorf("read the answer of the proxy at %s: %w", c.at, err)
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxFailure) // to its end, so that the connection is used again
	if meta.APIVersion != v1alpha1.APIVersion || meta.Kind != kind {
		return nil, fmt.Errorf("the server at %s answered with %s %q, not with %s %q: use the program of the proxy's version",
			c.at, meta.Kind, meta.APIVersion, kind, v1alpha1.APIVersion)
	}
	object := new(T)
	if err := json.Unmarshal(raw, object); err != nil {
		return nil, fmt.Errorf("read the answer of the proxy at %s: %w", c.at, err)
	}
	return object, nil
}

// late is the error if there is no whole answer in time.
func (c *Client) late(asked time.Time) error {
	waited := time.Since(asked).Round(time.Millisecond)
	if c.timeout > 0 {
		waited = min(waited, c.timeout)
	}
	return fmt.Errorf("the proxy at %s does not answer within %s: it hangs or is overloaded, or another program has its port; \"kube-proxy check\" looks (--request-timeout)",
		c.at, waited)
}

func isTimeout(err error) bool {
	failed, ok := errors.AsType[net.Error](err)
	return ok && failed.Timeout()
}

// maxFailure is how much of a failed response is read.
const maxFailure = 64 << 10

// failure is the error of a response with another status than 200.
func (c *Client) failure(response *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxFailure))
	var failed v1alpha1.Status
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch err := json.Unmarshal(body, &failed); {
	case media == "application/json" && err == nil && failed.Kind == v1alpha1.KindStatus:
		return &StatusError{Code: response.StatusCode, Message: failed.Message}
	case response.StatusCode == http.StatusNotFound:
		return &NoAPIError{c.at}
	default:
		return fmt.Errorf("the server at %s answered with %s", c.at, response.Status)
	}
}

// StatusError is an error that the proxy answered with.
type StatusError struct {
	// Code is the status of HTTP.
	Code    int
	Message string
}

func (e *StatusError) Error() string { return e.Message }

// NoAPIError is the error if the server is no proxy with this API.
type NoAPIError struct {
	// Server is the URL, or the pod.
	Server string
}

func (e *NoAPIError) Error() string {
	return fmt.Sprintf("the server at %s has no API %s: it is an older version of this program, or another one, such as Kubernetes' own kube-proxy; "+
		"use --manifests or --kubeconfig to read objects instead", e.Server, v1alpha1.APIVersion)
}

// Digests returns what the proxy knows of Services in short, and with services also of each.
func (c *Client) Digests(ctx context.Context, services bool) (*v1alpha1.Digests, error) {
	return get[v1alpha1.Digests](ctx, c, "/digests", url.Values{"services": {strconv.FormatBool(services)}}, v1alpha1.KindDigests)
}

// Info is part of [Reader].
func (c *Client) Info(ctx context.Context) (*v1alpha1.Info, error) {
	return get[v1alpha1.Info](ctx, c, "/info", nil, v1alpha1.KindInfo)
}

// Services is part of [Reader].
func (c *Client) Services(ctx context.Context, f status.Filter, connections bool) (*v1alpha1.ServiceList, error) {
	query := url.Values{"connections": {strconv.FormatBool(connections)}}
	if f.Namespace != "" {
		query.Set("namespace", f.Namespace)
	}
	if f.Address.IsValid() {
		query.Set("address", f.Address.String())
	}
	return get[v1alpha1.ServiceList](ctx, c, "/services", query, v1alpha1.KindServiceList)
}

// Service is part of [Reader].
func (c *Client) Service(ctx context.Context, name cluster.ServiceName) (*v1alpha1.Service, error) {
	path := "/services/" + url.PathEscape(name.Namespace) + "/" + url.PathEscape(name.Name)
	return get[v1alpha1.Service](ctx, c, path, url.Values{"connections": {"true"}}, v1alpha1.KindService)
}

// Explain is part of [Reader].
func (c *Client) Explain(ctx context.Context, of status.Question) (*v1alpha1.Explanation, error) {
	query := url.Values{"from": {of.From}, "to": {of.To}}
	if of.Interface != "" {
		query.Set("interface", of.Interface)
	}
	return get[v1alpha1.Explanation](ctx, c, "/explain", query, v1alpha1.KindExplanation)
}

// Open returns the open connections to a Service (NAMESPACE/NAME) and an endpoint (an IP address); empty texts select all.
func (c *Client) Open(ctx context.Context, service, endpoint string) (*v1alpha1.OpenConnections, error) {
	query := url.Values{"service": {service}, "endpoint": {endpoint}}
	return get[v1alpha1.OpenConnections](ctx, c, "/connections", query, v1alpha1.KindOpenConnections)
}

// Repairs is part of [Reader].
func (c *Client) Repairs(ctx context.Context) (*v1alpha1.RepairList, error) {
	return get[v1alpha1.RepairList](ctx, c, "/repairs", nil, v1alpha1.KindRepairList)
}

// Ruleset is part of [Reader].
func (c *Client) Ruleset(ctx context.Context, mode string) (*v1alpha1.Ruleset, error) {
	return get[v1alpha1.Ruleset](ctx, c, "/rules", modeQuery(mode), v1alpha1.KindRuleset)
}

// Compare is part of [Reader].
func (c *Client) Compare(ctx context.Context, mode string) (*v1alpha1.Comparison, error) {
	return get[v1alpha1.Comparison](ctx, c, "/comparison", modeQuery(mode), v1alpha1.KindComparison)
}

// modeQuery names a proxy mode unless it is empty.
func modeQuery(mode string) url.Values {
	if mode == "" {
		return nil
	}
	return url.Values{"mode": {mode}}
}
