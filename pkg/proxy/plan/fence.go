package plan

import "github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"

// Fences bound the connections of Services. Each node applies them by itself, separately in each family.
type Fences struct {
	// On applies those of cluster.AnnotationConnectionLimits and of Namespaces, whichever is smaller.
	On bool
	// Missing says why this node cannot bound connections; "" if it can.
	Missing string
	// Namespaces are the bounds of each Service of a namespace; those of [OtherNamespaces] apply where a namespace has none.
	Namespaces map[string]cluster.Fence
}

// OtherNamespaces stands for all namespaces without Fences of their own.
const OtherNamespaces = "*"

// of returns the bounds of a Service, guarded; nil if there are none. Why says why those of the annotation do not apply.
func (f *Fences) of(s *cluster.Service) (bounds *cluster.Fence, why string) {
	switch {
	case !f.On, f.Missing != "" && s.Fence == nil:
		return nil, ""
	case f.Missing != "":
		return nil, f.Missing
	}
	fence, own := f.Namespaces[s.Name.Namespace]
	if !own {
		fence = f.Namespaces[OtherNamespaces]
	}
	if s.Fence != nil {
		fence, why = fence.Within(s.Fence.Fence), s.Fence.Ignored
	}
	if fence == (cluster.Fence{}) {
		return nil, why
	}
	fence = fence.Guarded()
	return &fence, why
}
