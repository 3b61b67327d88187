module github.com/seed-11a05479/kube-proxy

go 1.26.0

require (
	github.com/blang/semver/v4 v4.0.0 // the type of a version in the interface of `component-base/metrics`, which our collector of connections implements
	github.com/fsnotify/fsnotify v1.10.1 // notices changes of manifests
	github.com/go-logr/logr v1.4.3 // the logger's interface, below klog
	github.com/google/go-cmp v0.7.0 // tests only: differences between values
	github.com/gorilla/websocket v1.5.4-0.20250319132907-e064f32e3674 // tests only: the server's end of port forwards
	github.com/prometheus/client_golang v1.24.0 // metrics with thousands of series that are computed at each scrape
	github.com/prometheus/client_model v0.6.2 // the same: the samples themselves
	github.com/spf13/cobra v1.10.2 // subcommands, help and completion, as in other Kubernetes programs
	github.com/spf13/pflag v1.0.10 // flags, as in other Kubernetes programs
	github.com/vishvananda/netlink v1.3.1 // ipvs and ipset objects, interfaces and addresses; our own netlink is for nftables and conntrack only
	github.com/vishvananda/netns v0.0.5 // tests only: enters network namespaces
	go.yaml.in/yaml/v3 v3.0.6 // the lines and columns of fields in YAML documents, for errors
	golang.org/x/sys v0.49.0 // system calls and constants of the kernel
	golang.org/x/tools v0.52.0 // tests only: the format txtar of cases
	gopkg.in/evanphx/json-patch.v4 v4.13.0 // tests only: applies a patch of a Node's taints as the API server does
	k8s.io/api v0.37.2 // the types of Services, EndpointSlices and Nodes
	k8s.io/apimachinery v0.37.2 // the machinery of these types: conversion, lists, watches, validation of names
	k8s.io/client-go v0.37.2 // the connection to the API server: kubeconfig, lists and watches; not its clients for every kind (pkg/apiclient)
	k8s.io/component-base v0.37.2 // metrics and version as Kubernetes' programs expose them
	k8s.io/klog/v2 v2.140.0 // the log format of Kubernetes' programs
	k8s.io/kube-proxy v0.37.2 // the types of the configuration file v1alpha1, which is read
	k8s.io/streaming v0.37.2 // the streams of port forwards, of which client-go opens the connection
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3 // parses addresses exactly as the API server does
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730 // decodes JSON as the API server does, case-sensitively
	sigs.k8s.io/knftables v0.0.22 // the objects and operations of nftables transactions, their text, and what runs nft
	sigs.k8s.io/randfill v1.0.0 // tests only: fills configurations with random values
	sigs.k8s.io/yaml v1.6.0 // YAML to JSON, as the API server converts it
)

require github.com/coreos/go-iptables v0.8.0 // finds out the version of iptables, and lists, adds and deletes single rules in chains that other programs write too; transactions are ours (decision 0021)

require (
	github.com/Azure/go-ansiterm v0.0.0-20250102033503-faa5f7b0171c // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/emicklei/go-restful/v3 v3.13.0 // indirect
	github.com/fxamacker/cbor/v2 v2.9.1 // indirect
	github.com/go-logr/zapr v1.3.0 // indirect
	github.com/go-openapi/jsonpointer v1.0.0 // indirect
	github.com/go-openapi/jsonreference v1.0.0 // indirect
	github.com/go-openapi/swag v0.27.1 // indirect
	github.com/go-openapi/swag/cmdutils v0.27.1 // indirect
	github.com/go-openapi/swag/conv v0.27.1 // indirect
	github.com/go-openapi/swag/fileutils v0.27.1 // indirect
	github.com/go-openapi/swag/jsonutils v0.27.1 // indirect
	github.com/go-openapi/swag/loading v0.27.1 // indirect
	github.com/go-openapi/swag/mangling v0.27.1 // indirect
	github.com/go-openapi/swag/netutils v0.27.1 // indirect
	github.com/go-openapi/swag/pools v0.27.1 // indirect
	github.com/go-openapi/swag/stringutils v0.27.1 // indirect
	github.com/go-openapi/swag/typeutils v0.27.1 // indirect
	github.com/go-openapi/swag/yamlutils v0.27.1 // indirect
	github.com/google/gnostic-models v0.7.0 // indirect
	github.com/google/nftables v0.3.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/kylelemons/godebug v1.1.0 // indirect
	github.com/mdlayher/netlink v1.11.2 // indirect
	github.com/mdlayher/socket v0.6.1 // indirect
	github.com/moby/spdystream v0.5.1 // indirect
	github.com/moby/term v0.5.2 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.3-0.20250322232337-35a7c28c31ee // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	github.com/prometheus/common v0.70.0 // indirect
	github.com/prometheus/procfs v0.21.1 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	go.opentelemetry.io/otel v1.44.0 // indirect
	go.opentelemetry.io/otel/trace v1.44.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.27.1 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/net v0.61.0 // a parser of HTML, for tests of the status page
	golang.org/x/oauth2 v0.36.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/term v0.47.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.15.0 // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // reads objects of the API server in protobuf without most of their fields
	gopkg.in/inf.v0 v0.9.1 // indirect
	k8s.io/kube-openapi v0.0.0-20260721132016-d427ff9ee9ad // indirect
	sigs.k8s.io/structured-merge-diff/v6 v6.4.2 // indirect
)
