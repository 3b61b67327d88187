package view

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// snapshotObject streams the snapshot.
func (s *State) snapshotObject() stream {
	return func(encoder *json.Encoder, w io.Writer) {
		node := s.Snapshot.Node
		head := v1alpha1.Snapshot{TypeMeta: v1alpha1.Meta(v1alpha1.KindSnapshot), ServiceCIDRs: texts(s.Snapshot.ServiceCIDRs),
			Node: v1alpha1.Node{Name: node.Name, Exists: node.Exists, Addresses: texts(node.Addresses), Interfaces: texts(node.Interfaces),
				PodCIDRs: texts(node.PodCIDRs), Zone: node.Zone, Draining: node.Draining}}
		streamItems(encoder, w, head, func(yield func(any) bool) {
			for service := range s.Snapshot.Services.Values() {
				if !yield(snapshotService(service)) {
					return
				}
			}
		})
	}
}

func snapshotService(of *cluster.Service) v1alpha1.SnapshotService {
	var created time.Time
	if of.Created != 0 {
		created = time.UnixMicro(of.Created)
	}
	out := v1alpha1.SnapshotService{
		Namespace: of.Name.Namespace, Name: of.Name.Name, UID: of.UID, Created: created,
		ClusterIPs: texts(of.ClusterIPs), LoadBalancerIPs: texts(of.LoadBalancerIPs()), ExternalIPs: texts(of.ExternalIPs()),
		InternalTrafficPolicy: of.InternalPolicy.String(), ExternalTrafficPolicy: of.ExternalPolicy.String(),
		SessionAffinitySeconds: int(of.Affinity.Seconds()), SourceRanges: texts(of.SourceRanges()),
		HealthCheckNodePort: of.HealthCheckNodePort, Slices: []v1alpha1.SnapshotSlice{},
	}
	for _, port := range of.Ports {
		text := fmt.Sprintf("%s/%s/%d", port.Name, port.Protocol, port.Port)
		if port.NodePort != 0 {
			text += fmt.Sprintf("/%d", port.NodePort)
		}
		out.Ports = append(out.Ports, text)
	}
	for _, slice := range of.Slices {
		s := v1alpha1.SnapshotSlice{Name: slice.Name, Ports: slicePorts(slice), Endpoints: []v1alpha1.SnapshotEndpoint{}}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			s.Endpoints = append(s.Endpoints, v1alpha1.SnapshotEndpoint{Address: e.Addr.String(), Conditions: conditions(e.Conditions), Zones: e.Zones.Names()})
		}
		out.Slices = append(out.Slices, s)
	}
	return out
}

// conditions are the names of those that hold.
func conditions(c cluster.Conditions) []string {
	held := []string{}
	for i, name := range []string{"Ready", "Serving", "Terminating", "Local", "NodeHint", "ThisNode", "NoNodeName"} {
		if c.Has(1 << i) {
			held = append(held, name)
		}
	}
	return held
}

// planObject streams the plan.
func (s *State) planObject() stream {
	return func(encoder *json.Encoder, w io.Writer) {
		node := s.Plan.Node
		head := v1alpha1.Plan{TypeMeta: v1alpha1.Meta(v1alpha1.KindPlan), NodePortAddresses: texts(node.NodePortAddrs),
			LocalTraffic: v1alpha1.LocalTraffic{CIDRs: texts(node.LocalTraffic.CIDRs), Interface: node.LocalTraffic.Interface}}
		streamItems(encoder, w, head, func(yield func(any) bool) {
			for route := range s.Plan.Frontends.Values() {
				if !yield(s.route(route)) {
					return
				}
			}
		})
	}
}

func (s *State) route(of *plan.Route) v1alpha1.Route {
	out := v1alpha1.Route{Service: of.Name, Protocol: of.Frontend.Protocol.String(), Address: s.address(of, nil),
		SourceRanges: texts(of.SourceRanges), SessionAffinitySeconds: int(of.Affinity.For().Seconds()), Pool: texts(of.Pool.Endpoints)}
	if of.ShortCut != nil {
		out.ShortCut = texts(of.ShortCut.Endpoints)
	}
	return out
}
