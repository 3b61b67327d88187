package app

import (
	"runtime"
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version/verflag"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/metrics"
)

// loggingGroup is the group of the flags that override a configuration file.
const loggingGroup = "logging"

// FlagSets registers every flag. The defaults are those of v1alpha1, as Kubernetes' flags have them.
func (o *Options) FlagSets() cliflag.NamedFlagSets {
	groups := cliflag.NamedFlagSets{NormalizeNameFunc: cliflag.WordSepNormalizeFunc}
	o.addFileFlags(groups.FlagSet("configuration file"))
	o.addRunFlags(groups.FlagSet("running"))
	o.addClientFlags(groups.FlagSet("API server"))
	o.addNodeFlags(groups.FlagSet("node"))
	o.addModeFlags(groups.FlagSet("proxy mode"))
	o.addTrafficFlags(groups.FlagSet("traffic"))
	o.addServerFlags(groups.FlagSet("health and metrics"))
	o.addConntrackFlags(groups.FlagSet("connection tracking"))
	o.addIPVSFlags(groups.FlagSet("IPVS"))
	o.addPlatformFlags(groups.FlagSet("Windows"))
	o.addLoggingFlags(groups.FlagSet(loggingGroup))
	verflag.AddFlags(groups.FlagSet("general"))
	groups.FlagSet("general").BoolP("help", "h", false, "Print this help.")

	for _, fs := range groups.FlagSets {
		fs.VisitAll(func(f *pflag.Flag) {
			f.Hidden = f.Hidden || Deprecation(f.Name) != ""
			if ignored(f) {
				first, rest, more := strings.Cut(f.Usage, "\n")
				f.Usage = first + " Ignored with --config."
				if more {
					f.Usage += "\n" + rest
				}
			}
		})
	}
	return groups
}

// gatesFlag is the flag of the feature gates, each of which is a field of its own.
const gatesFlag = "feature-gates"

func (o *Options) addFileFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ConfigFile, "config", "", "Configuration `file`, in version v1alpha2 or v1alpha1.")
	fs.StringVar(&o.writeConfigTo, "write-config-to", "", "Write the configuration with every default to this `file`, in version v1alpha2, then exit.")
	AddField(fs, cliflag.NewMapStringBool(&o.flags.FeatureGates), gatesFlag, "featureGates",
		"Comma-separated list of name=true|false that turns features on and off; \"kube-proxy config feature-gates\" describes them.\n"+gateLines())
}

// gateLines lists the gates for --help, one a line.
func gateLines() string {
	var lines []string
	for _, gate := range features.Describe() {
		lines = append(lines, gate.String())
	}
	return strings.Join(lines, "\n")
}

func (o *Options) addRunFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.cleanup, "cleanup", false, "Remove all rules of every mode from this node, then exit.")
	fs.BoolVar(&o.initOnly, "init-only", false, "Do everything that requires privileges, then exit. The proxy then requires only CAP_NET_ADMIN, and with iptables-legacy CAP_NET_RAW.")
	fs.StringVar(&o.manifests, "manifests", "", "Serve a `directory` of manifests, not the objects of an API server (standalone mode).")
	fs.BoolVar(&o.relistGuard, "relist-guard", true, "Hold back a list that would remove more than 90 % of at least 100 endpoints, until the API server repeats it.")
	fs.Var(&o.startupTaint, "startup-taint", "Remove this `taint`, KEY[=VALUE]:EFFECT, from the Node once its Services are served. It needs the right to patch nodes.")
	fs.Var(oneOf(&o.canary, check.NoCanary, check.CanaryReports, check.CanaryHealthz), "dataplane-canary", "Try the rules each second: none, report (a metric, an Event and the status page show what is broken), or healthz (/healthz and health check node ports fail, too).")
	AddField(fs, o.flags.OOMScoreAdj, "oom-score-adj", "linux.oomScoreAdj", "oom_score_adj of this process, from -1000 to 1000.")
	AddField(fs, &o.flags.ConfigSyncPeriod.Duration, "config-sync-period", "configSyncPeriod", "No effect. Greater than 0.")
	for _, name := range []string{"boot-id-file", "machine-id-file"} {
		fs.String(name, "", "No effect.")
	}
}

func (o *Options) addClientFlags(fs *pflag.FlagSet) {
	client := &o.flags.ClientConnection
	AddField(fs, &client.Kubeconfig, "kubeconfig", "clientConnection.kubeconfig", "Kubeconfig `file`. Without it and without --master, the pod's service account is used.")
	fs.StringVar(&o.master, "master", "", "`URL` of the API server. Overrides the kubeconfig.")
	AddField(fs, &client.ContentType, "kube-api-content-type", "clientConnection.contentType", "Media type in which Events are sent to the API server.")
	AddField(fs, &client.QPS, "kube-api-qps", "clientConnection.qps", "Requests a second to the API server, on average.")
	AddField(fs, &client.Burst, "kube-api-burst", "clientConnection.burst", "Requests to the API server at once, above --kube-api-qps.")
}

// HostnameFlag is the only flag of a configuration field that overrides a file.
const HostnameFlag = "hostname-override"

func (o *Options) addNodeFlags(fs *pflag.FlagSet) {
	AddField(fs, &o.flags.HostnameOverride, HostnameFlag, "hostnameOverride", "Node `name`; empty means the host name. Overrides the configuration file.")
	AddField(fs, &o.flags.BindAddress, "bind-address", "nodeIPOverride", "`IP` that replaces the primary IP of this node; 0.0.0.0 and :: have no effect. No socket is bound to it.")
}

func (o *Options) addModeFlags(fs *pflag.FlagSet) {
	ipt := &o.flags.IPTables
	AddField(fs, (*string)(&o.flags.Mode), "proxy-mode", "mode", "Proxy `mode`: iptables or nftables. Empty means iptables.")
	AddField(fs, ipt.MasqueradeBit, "iptables-masquerade-bit", "iptables.masqueradeBit", "Bit of the packet mark, 0 to 31, that asks for masquerading, in iptables mode.")
	AddField(fs, &ipt.MasqueradeAll, "masquerade-all", "linux.masqueradeAll", "Masquerade all traffic to cluster IPs.")
	AddField(fs, ipt.LocalhostNodePorts, "iptables-localhost-nodeports", "iptables.localhostNodePorts", "Accept NodePort traffic to 127.0.0.1 in iptables mode.")
	AddField(fs, &ipt.SyncPeriod.Duration, "iptables-sync-period", "syncPeriod", "Longest time until a failed sync is tried again, in iptables and nftables mode. Greater than 0.")
	AddField(fs, &ipt.MinSyncPeriod.Duration, "iptables-min-sync-period", "minSyncPeriod", "Least time from a sync to the next, in iptables and nftables mode. 0 means none.")
}

func (o *Options) addTrafficFlags(fs *pflag.FlagSet) {
	AddField(fs, (*string)(&o.flags.DetectLocalMode), "detect-local-mode", "detectLocalMode", "How traffic of local pods is detected: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix. Empty means ClusterCIDR.")
	AddField(fs, &o.flags.ClusterCIDR, "cluster-cidr", "detectLocal.clusterCIDRs", "`CIDR` of the pods, or two with a comma, one of each family. For --detect-local-mode=ClusterCIDR.")
	AddField(fs, &o.flags.DetectLocal.BridgeInterface, "pod-bridge-interface", "detectLocal.bridgeInterface", "Bridge of the local pods. For --detect-local-mode=BridgeInterface.")
	AddField(fs, &o.flags.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", "detectLocal.interfaceNamePrefix", "Prefix of the names of local pods' interfaces. For --detect-local-mode=InterfaceNamePrefix.")
	AddField(fs, &o.flags.NodePortAddresses, "nodeport-addresses", "nodePortAddresses", "CIDRs of the addresses that accept NodePort traffic, and the keywords primary, localhost and all. Empty means all in iptables mode and primary in nftables mode.")
}

func (o *Options) addServerFlags(fs *pflag.FlagSet) {
	AddField(fs, &o.flags.HealthzBindAddress, "healthz-bind-address", "healthzBindAddress", "`IP:port` of the health check server; empty switches it off.")
	AddField(fs, &o.flags.MetricsBindAddress, "metrics-bind-address", "metricsBindAddress", "`IP:port` of the metrics server; empty means the default.")
	AddField(fs, &o.flags.BindAddressHardFail, "bind-address-hard-fail", "bindAddressHardFail", "End the process when one of these addresses cannot be bound.")
	fs.Var(oneOf(&o.connections, metrics.NoConnections, metrics.ServiceConnections, metrics.EndpointConnections), "connection-metrics", "Metrics of new connections: none, service (a series for each port of a Service), or endpoint (also one for each endpoint).")
	fs.Var(oneOf(&o.counters, counterLevels()...), "connection-counters", "What the kernel counts in nftables mode: endpoint (connections to each endpoint and address of a Service), service (to each address), none, or auto, what fits into 64 MiB in each family.")
	AddField(fs, &o.flags.EnableProfiling, "profiling", "enableProfiling", "Serve /debug/pprof on the metrics server.")
	AddField(fs, &o.flags.ShowHiddenMetricsForVersion, "show-hidden-metrics-for-version", "showHiddenMetricsForVersion", "Show again the metrics hidden in this `version`, which must be the previous minor one.")
	AddField(fs, &o.flags.HealthzPort, "healthz-port", "healthzBindAddress", "Port of the health check server; 0 switches it off.")
	AddField(fs, &o.flags.MetricsPort, "metrics-port", "metricsBindAddress", "Port of the metrics server; 0 switches it off.")
}

func (o *Options) addConntrackFlags(fs *pflag.FlagSet) {
	ct := &o.flags.Conntrack
	AddField(fs, ct.MaxPerCore, "conntrack-max-per-core", "linux.conntrack.maxPerCore", "Limit of tracked connections for each CPU core; 0 leaves the limit unchanged.")
	AddField(fs, ct.Min, "conntrack-min", "linux.conntrack.min", "Least limit of tracked connections, regardless of the number of cores.")
	AddField(fs, &ct.TCPEstablishedTimeout.Duration, "conntrack-tcp-timeout-established", "linux.conntrack.tcpEstablishedTimeout", "How long an idle TCP connection is tracked; 0 leaves the timeout unchanged.")
	AddField(fs, &ct.TCPCloseWaitTimeout.Duration, "conntrack-tcp-timeout-close-wait", "linux.conntrack.tcpCloseWaitTimeout", "How long an idle TCP connection in CLOSE_WAIT is tracked; 0 leaves the timeout unchanged.")
	AddField(fs, &ct.TCPBeLiberal, "conntrack-tcp-be-liberal", "linux.conntrack.tcpBeLiberal", "Do not mark TCP packets outside of the window INVALID.")
	AddField(fs, &ct.UDPTimeout.Duration, "conntrack-udp-timeout", "linux.conntrack.udpTimeout", "How long an unanswered UDP flow is tracked; 0 leaves the timeout unchanged.")
	AddField(fs, &ct.UDPStreamTimeout.Duration, "conntrack-udp-timeout-stream", "linux.conntrack.udpStreamTimeout", "How long an answered UDP flow is tracked; 0 leaves the timeout unchanged.")
}

// addIPVSFlags registers the flags of a mode that this proxy cannot run in, so that a command line with them can be written
// to a file and converted.
func (o *Options) addIPVSFlags(fs *pflag.FlagSet) {
	ipvs := &o.flags.IPVS
	AddField(fs, &ipvs.SyncPeriod.Duration, "ipvs-sync-period", "syncPeriod", "As --iptables-sync-period, in ipvs mode.")
	AddField(fs, &ipvs.MinSyncPeriod.Duration, "ipvs-min-sync-period", "minSyncPeriod", "As --iptables-min-sync-period, in ipvs mode.")
	AddField(fs, &ipvs.Scheduler, "ipvs-scheduler", "ipvs.scheduler", "Name of the IPVS scheduler.")
	AddField(fs, &ipvs.ExcludeCIDRs, "ipvs-exclude-cidrs", "ipvs.excludeCIDRs", "CIDRs whose virtual servers are not changed.")
	AddField(fs, &ipvs.StrictARP, "ipvs-strict-arp", "ipvs.strictARP", "Answer ARP only on the interface that has the address.")
	AddField(fs, &ipvs.TCPTimeout.Duration, "ipvs-tcp-timeout", "ipvs.tcpTimeout", "How long an idle TCP session is kept; 0 leaves the timeout unchanged.")
	AddField(fs, &ipvs.TCPFinTimeout.Duration, "ipvs-tcpfin-timeout", "ipvs.tcpFinTimeout", "How long a TCP session is kept after a FIN; 0 leaves the timeout unchanged.")
	AddField(fs, &ipvs.UDPTimeout.Duration, "ipvs-udp-timeout", "ipvs.udpTimeout", "How long an idle UDP session is kept; 0 leaves the timeout unchanged.")
}

// addPlatformFlags registers the flags that exist on Windows only.
func (o *Options) addPlatformFlags(fs *pflag.FlagSet) {
	if runtime.GOOS != "windows" {
		return
	}
	kernel := &o.flags.Winkernel
	AddField(fs, &o.flags.WindowsRunAsService, "windows-service", "windows.runAsService", "Report to the service control manager.")
	AddField(fs, &kernel.NetworkName, "network-name", "winkernel.networkName", "Name of the HNS network.")
	AddField(fs, &kernel.SourceVip, "source-vip", "winkernel.sourceVip", "`IP` that load-balanced traffic is translated from.")
	AddField(fs, &kernel.EnableDSR, "enable-dsr", "winkernel.enableDSR", "Let answers go directly to the client.")
	AddField(fs, &kernel.RootHnsEndpointName, "root-hnsendpoint-name", "winkernel.rootHnsEndpointName", "HNS endpoint that joins the root namespace to the bridge.")
	AddField(fs, &kernel.ForwardHealthCheckVip, "forward-healthcheck-vip", "winkernel.forwardHealthCheckVip", "Forward the service's virtual IP on its health check port.")
}

func (o *Options) addLoggingFlags(fs *pflag.FlagSet) {
	logsapi.AddFlags(&o.flags.Logging, fs)
	for name, field := range map[string]string{
		"logging-format": "format", "log-flush-frequency": "flushFrequency", "v": "verbosity", "vmodule": "vmodule",
		"log-text-split-stream": "options.text.splitStream", "log-text-info-buffer-size": "options.text.infoBufferSize",
		"log-json-split-stream": "options.json.splitStream", "log-json-info-buffer-size": "options.json.infoBufferSize",
	} {
		annotate(fs, name, loggingGroup+"."+field)
	}
}

// setsField is the annotation of a flag with the path in v1alpha2 of the configuration field that it sets.
const setsField = "field"

// FieldOf returns the path of the field that a flag sets; "" if it sets none.
func FieldOf(f *pflag.Flag) string { return strings.Join(f.Annotations[setsField], "") }

// AddField registers a flag that sets a field, which has its default.
func AddField(fs *pflag.FlagSet, value any, name, field, usage string) {
	switch at := value.(type) {
	case *bool:
		fs.BoolVar(at, name, *at, usage)
	case *int32:
		fs.Int32Var(at, name, *at, usage)
	case *float32:
		fs.Float32Var(at, name, *at, usage)
	case *string:
		fs.StringVar(at, name, *at, usage)
	case *[]string:
		fs.StringSliceVar(at, name, *at, usage)
	case *time.Duration:
		fs.DurationVar(at, name, *at, usage)
	case pflag.Value:
		fs.Var(at, name, usage)
	}
	annotate(fs, name, field)
}

// annotate says which field a flag sets.
func annotate(fs *pflag.FlagSet, name, field string) {
	if err := fs.SetAnnotation(name, setsField, []string{field}); err != nil {
		panic(err) // there is no such flag: AddField does not know the type of its value
	}
}

// ignored reports whether a flag has no effect with --config.
func ignored(f *pflag.Flag) bool {
	field := FieldOf(f)
	return field != "" && f.Name != HostnameFlag && !strings.HasPrefix(field, loggingGroup+".")
}

// flagOf returns the flag that sets the field at a path, as it is written on a command line, and which of the feature gates. If there are
// several flags, it returns the one of the active mode, the one that was set, or the first by name that is not deprecated.
func flagOf(path string, mode config.ProxyMode, flags *pflag.FlagSet) string {
	best := ""
	flags.VisitAll(func(f *pflag.Flag) {
		if !sets(f, path) || isPeriodOfOtherMode(f, mode) {
			return
		}
		if best == "" || f.Changed || Deprecation(f.Name) == "" && Deprecation(best) != "" {
			best = f.Name
		}
	})
	if best == "" {
		return path
	}
	if gate, is := strings.CutPrefix(path, FieldOf(flags.Lookup(best))+"."); is && best == gatesFlag {
		return "--" + best + "=" + gate
	}
	return "--" + best
}

// sets reports whether a flag sets the field at a path, or a section or list that contains it.
func sets(f *pflag.Flag, path string) bool {
	field := FieldOf(f)
	rest, found := strings.CutPrefix(path, field)
	return field != "" && found && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// isPeriodOfOtherMode reports whether a flag is one of the --ipvs-...-period and --iptables-...-period that has no effect in a
// mode: only the former have in ipvs mode, and only the latter in all other modes.
func isPeriodOfOtherMode(f *pflag.Flag, mode config.ProxyMode) bool {
	field := FieldOf(f)
	return (field == "syncPeriod" || field == "minSyncPeriod") && strings.HasPrefix(f.Name, "ipvs-") != (mode == config.ProxyModeIPVS)
}

// Deprecation returns what to do instead of using a deprecated flag, and "" for all other flags.
func Deprecation(flag string) string {
	switch flag {
	case "healthz-port":
		return "use --healthz-bind-address"
	case "metrics-port":
		return "use --metrics-bind-address"
	case "boot-id-file", "machine-id-file":
		return "it has no effect, leave it out"
	}
	return ""
}
