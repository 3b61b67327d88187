module github.com/seed-11a05479/kube-proxy/test/real

go 1.26.0

replace (
	github.com/seed-11a05479/kube-proxy => ../..
	github.com/seed-11a05479/kube-proxy/test/e2e => ../e2e
)

tool (
	github.com/containerd/containerd/v2/cmd/containerd
	github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
	github.com/containerd/containerd/v2/cmd/ctr
	github.com/containernetworking/plugins/plugins/ipam/host-local
	github.com/containernetworking/plugins/plugins/main/bridge
	github.com/containernetworking/plugins/plugins/main/loopback
	helm.sh/helm/v4/cmd/helm
)

require (
	github.com/google/go-containerregistry v0.22.1
	github.com/seed-11a05479/kube-proxy/test/e2e v0.0.0
	golang.org/x/sys v0.49.0
)
