package inspect

import (
	"context"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// Reader reads the objects of the API.
type Reader interface {
	// Info returns the description of the proxy.
	Info(ctx context.Context) (*v1alpha1.Info, error)
	// Services returns the Services that a filter selects, with counters if connections says so and there are any.
	Services(ctx context.Context, f status.Filter, connections bool) (*v1alpha1.ServiceList, error)
	// Service returns one Service with its endpoints, with counters if there are any.
	Service(ctx context.Context, name cluster.ServiceName) (*v1alpha1.Service, error)
	// Explain explains a connection.
	Explain(ctx context.Context, of status.Question) (*v1alpha1.Explanation, error)
	// Ruleset returns the rules of a proxy mode; an empty mode is the reader's own.
	Ruleset(ctx context.Context, mode string) (*v1alpha1.Ruleset, error)
	// Compare returns where the kernel's rules differ from them.
	Compare(ctx context.Context, mode string) (*v1alpha1.Comparison, error)
	// Repairs returns what was repaired lately.
	Repairs(ctx context.Context) (*v1alpha1.RepairList, error)
}
