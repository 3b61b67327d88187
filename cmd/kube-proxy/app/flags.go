package app

import (
	"cmp"
	"runtime"
	"strings"

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
	logsapi.AddFlags(&o.flags.Logging, groups.FlagSet(loggingGroup))
	verflag.AddFlags(groups.FlagSet("general"))
	groups.FlagSet("general").BoolP("help", "h", false, "Print this help.")

	for _, fs := range groups.FlagSets {
		fs.VisitAll(func(f *pflag.Flag) {
			f.Hidden = f.Hidden || Deprecation(f.Name) != ""
			if field := FieldOf(f.Name); field != "" && f.Name != HostnameFlag {
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

func (o *Options) addFileFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ConfigFile, "config", "", "Configuration `file`, in version v1alpha2 or v1alpha1.")
	fs.StringVar(&o.writeConfigTo, "write-config-to", "", "Write the configuration with every default to this `file`, in version v1alpha2, then exit.")
	fs.Var(cliflag.NewMapStringBool(&o.flags.FeatureGates), "feature-gates",
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
	fs.Int32Var(o.flags.OOMScoreAdj, "oom-score-adj", *o.flags.OOMScoreAdj, "oom_score_adj of this process, from -1000 to 1000.")
	fs.DurationVar(&o.flags.ConfigSyncPeriod.Duration, "config-sync-period", o.flags.ConfigSyncPeriod.Duration, "No effect. Greater than 0.")
	for _, name := range []string{"boot-id-file", "machine-id-file"} {
		fs.String(name, "", "No effect.")
	}
}

func (o *Options) addClientFlags(fs *pflag.FlagSet) {
	client := &o.flags.ClientConnection
	fs.StringVar(&client.Kubeconfig, "kubeconfig", client.Kubeconfig, "Kubeconfig `file`. Without it and without --master, the pod's service account is used.")
	fs.StringVar(&o.master, "master", "", "`URL` of the API server. Overrides the kubeconfig.")
	fs.StringVar(&client.ContentType, "kube-api-content-type", client.ContentType, "Media type in which Events are sent to the API server.")
	fs.Float32Var(&client.QPS, "kube-api-qps", client.QPS, "Requests a second to the API server, on average.")
	fs.Int32Var(&client.Burst, "kube-api-burst", client.Burst, "Requests to the API server at once, above --kube-api-qps.")
}

// HostnameFlag is the only flag of a configuration field that overrides a file.
const HostnameFlag = "hostname-override"

func (o *Options) addNodeFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.flags.HostnameOverride, HostnameFlag, o.flags.HostnameOverride, "Node `name`; empty means the host name. Overrides the configuration file.")
	fs.StringVar(&o.flags.BindAddress, "bind-address", o.flags.BindAddress, "`IP` that replaces the primary IP of this node; 0.0.0.0 and :: have no effect. No socket is bound to it.")
}

func (o *Options) addModeFlags(fs *pflag.FlagSet) {
	ipt := &o.flags.IPTables
	fs.StringVar((*string)(&o.flags.Mode), "proxy-mode", string(o.flags.Mode), "Proxy `mode`: iptables or nftables. Empty means iptables.")
	fs.Int32Var(ipt.MasqueradeBit, "iptables-masquerade-bit", *ipt.MasqueradeBit, "Bit of the packet mark, 0 to 31, that asks for masquerading, in iptables mode.")
	fs.BoolVar(&ipt.MasqueradeAll, "masquerade-all", ipt.MasqueradeAll, "Masquerade all traffic to cluster IPs.")
	fs.BoolVar(ipt.LocalhostNodePorts, "iptables-localhost-nodeports", *ipt.LocalhostNodePorts, "Accept NodePort traffic to 127.0.0.1 in iptables mode.")
	fs.DurationVar(&ipt.SyncPeriod.Duration, "iptables-sync-period", ipt.SyncPeriod.Duration, "Longest time until a failed sync is tried again, in iptables and nftables mode. Greater than 0.")
	fs.DurationVar(&ipt.MinSyncPeriod.Duration, "iptables-min-sync-period", ipt.MinSyncPeriod.Duration, "Least time from a sync to the next, in iptables and nftables mode. 0 means none.")
}

func (o *Options) addTrafficFlags(fs *pflag.FlagSet) {
	fs.StringVar((*string)(&o.flags.DetectLocalMode), "detect-local-mode", string(o.flags.DetectLocalMode), "How traffic of local pods is detected: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix. Empty means ClusterCIDR.")
	fs.StringVar(&o.flags.ClusterCIDR, "cluster-cidr", o.flags.ClusterCIDR, "`CIDR` of the pods, or two with a comma, one of each family. For --detect-local-mode=ClusterCIDR.")
	fs.StringVar(&o.flags.DetectLocal.BridgeInterface, "pod-bridge-interface", o.flags.DetectLocal.BridgeInterface, "Bridge of the local pods. For --detect-local-mode=BridgeInterface.")
	fs.StringVar(&o.flags.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", o.flags.DetectLocal.InterfaceNamePrefix, "Prefix of the names of local pods' interfaces. For --detect-local-mode=InterfaceNamePrefix.")
	fs.StringSliceVar(&o.flags.NodePortAddresses, "nodeport-addresses", o.flags.NodePortAddresses, "CIDRs of the addresses that accept NodePort traffic, and the keywords primary, localhost and all. Empty means all in iptables mode and primary in nftables mode.")
}

func (o *Options) addServerFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.flags.HealthzBindAddress, "healthz-bind-address", o.flags.HealthzBindAddress, "`IP:port` of the health check server; empty switches it off.")
	fs.StringVar(&o.flags.MetricsBindAddress, "metrics-bind-address", o.flags.MetricsBindAddress, "`IP:port` of the metrics server; empty means the default.")
	fs.BoolVar(&o.flags.BindAddressHardFail, "bind-address-hard-fail", o.flags.BindAddressHardFail, "End the process when one of these addresses cannot be bound.")
	fs.Var(oneOf(&o.connections, metrics.NoConnections, metrics.ServiceConnections, metrics.EndpointConnections), "connection-metrics", "Metrics of new connections: none, service (a series for each port of a Service), or endpoint (also one for each endpoint).")
	fs.Var(oneOf(&o.counters, counterLevels()...), "connection-counters", "What the kernel counts in nftables mode: endpoint (connections to each endpoint and address of a Service), service (to each address), none, or auto, what fits into 64 MiB in each family.")
	fs.BoolVar(&o.flags.EnableProfiling, "profiling", o.flags.EnableProfiling, "Serve /debug/pprof on the metrics server.")
	fs.StringVar(&o.flags.ShowHiddenMetricsForVersion, "show-hidden-metrics-for-version", o.flags.ShowHiddenMetricsForVersion, "Show again the metrics hidden in this `version`, which must be the previous minor one.")
	fs.Int32Var(&o.flags.HealthzPort, "healthz-port", o.flags.HealthzPort, "Port of the health check server; 0 switches it off.")
	fs.Int32Var(&o.flags.MetricsPort, "metrics-port", o.flags.MetricsPort, "Port of the metrics server; 0 switches it off.")
}

func (o *Options) addConntrackFlags(fs *pflag.FlagSet) {
	ct := &o.flags.Conntrack
	fs.Int32Var(ct.MaxPerCore, "conntrack-max-per-core", *ct.MaxPerCore, "Limit of tracked connections for each CPU core; 0 leaves the limit unchanged.")
	fs.Int32Var(ct.Min, "conntrack-min", *ct.Min, "Least limit of tracked connections, regardless of the number of cores.")
	fs.DurationVar(&ct.TCPEstablishedTimeout.Duration, "conntrack-tcp-timeout-established", ct.TCPEstablishedTimeout.Duration, "How long an idle TCP connection is tracked; 0 leaves the timeout unchanged.")
	fs.DurationVar(&ct.TCPCloseWaitTimeout.Duration, "conntrack-tcp-timeout-close-wait", ct.TCPCloseWaitTimeout.Duration, "How long an idle TCP connection in CLOSE_WAIT is tracked; 0 leaves the timeout unchanged.")
	fs.BoolVar(&ct.TCPBeLiberal, "conntrack-tcp-be-liberal", ct.TCPBeLiberal, "Do not mark TCP packets outside of the window INVALID.")
	fs.DurationVar(&ct.UDPTimeout.Duration, "conntrack-udp-timeout", ct.UDPTimeout.Duration, "How long an unanswered UDP flow is tracked; 0 leaves the timeout unchanged.")
	fs.DurationVar(&ct.UDPStreamTimeout.Duration, "conntrack-udp-timeout-stream", ct.UDPStreamTimeout.Duration, "How long an answered UDP flow is tracked; 0 leaves the timeout unchanged.")
}

// addIPVSFlags registers the flags of a mode that this proxy cannot run in, so that a command line with them can be written
// to a file and converted.
func (o *Options) addIPVSFlags(fs *pflag.FlagSet) {
	ipvs := &o.flags.IPVS
	fs.DurationVar(&ipvs.SyncPeriod.Duration, "ipvs-sync-period", ipvs.SyncPeriod.Duration, "As --iptables-sync-period, in ipvs mode.")
	fs.DurationVar(&ipvs.MinSyncPeriod.Duration, "ipvs-min-sync-period", ipvs.MinSyncPeriod.Duration, "As --iptables-min-sync-period, in ipvs mode.")
	fs.StringVar(&ipvs.Scheduler, "ipvs-scheduler", ipvs.Scheduler, "Name of the IPVS scheduler.")
	fs.StringSliceVar(&ipvs.ExcludeCIDRs, "ipvs-exclude-cidrs", ipvs.ExcludeCIDRs, "CIDRs whose virtual servers are not changed.")
	fs.BoolVar(&ipvs.StrictARP, "ipvs-strict-arp", ipvs.StrictARP, "Answer ARP only on the interface that has the address.")
	fs.DurationVar(&ipvs.TCPTimeout.Duration, "ipvs-tcp-timeout", ipvs.TCPTimeout.Duration, "How long an idle TCP session is kept; 0 leaves the timeout unchanged.")
	fs.DurationVar(&ipvs.TCPFinTimeout.Duration, "ipvs-tcpfin-timeout", ipvs.TCPFinTimeout.Duration, "How long a TCP session is kept after a FIN; 0 leaves the timeout unchanged.")
	fs.DurationVar(&ipvs.UDPTimeout.Duration, "ipvs-udp-timeout", ipvs.UDPTimeout.Duration, "How long an idle UDP session is kept; 0 leaves the timeout unchanged.")
}

// addPlatformFlags registers the flags that exist on Windows only.
func (o *Options) addPlatformFlags(fs *pflag.FlagSet) {
	if runtime.GOOS != "windows" {
		return
	}
	kernel := &o.flags.Winkernel
	fs.BoolVar(&o.flags.WindowsRunAsService, "windows-service", o.flags.WindowsRunAsService, "Report to the service control manager.")
	fs.StringVar(&kernel.NetworkName, "network-name", kernel.NetworkName, "Name of the HNS network.")
	fs.StringVar(&kernel.SourceVip, "source-vip", kernel.SourceVip, "`IP` that load-balanced traffic is translated from.")
	fs.BoolVar(&kernel.EnableDSR, "enable-dsr", kernel.EnableDSR, "Let answers go directly to the client.")
	fs.StringVar(&kernel.RootHnsEndpointName, "root-hnsendpoint-name", kernel.RootHnsEndpointName, "HNS endpoint that joins the root namespace to the bridge.")
	fs.BoolVar(&kernel.ForwardHealthCheckVip, "forward-healthcheck-vip", kernel.ForwardHealthCheckVip, "Forward the service's virtual IP on its health check port.")
}

// FieldOf returns the path in v1alpha2 of the configuration field that a flag sets; "" if it sets none, or logging's.
func FieldOf(flag string) string {
	return map[string]string{
		"feature-gates":                     "featureGates",
		"oom-score-adj":                     "linux.oomScoreAdj",
		"config-sync-period":                "configSyncPeriod",
		"kubeconfig":                        "clientConnection.kubeconfig",
		"kube-api-content-type":             "clientConnection.contentType",
		"kube-api-qps":                      "clientConnection.qps",
		"kube-api-burst":                    "clientConnection.burst",
		HostnameFlag:                        "hostnameOverride",
		"bind-address":                      "nodeIPOverride",
		"proxy-mode":                        "mode",
		"iptables-masquerade-bit":           "iptables.masqueradeBit",
		"masquerade-all":                    "linux.masqueradeAll",
		"iptables-localhost-nodeports":      "iptables.localhostNodePorts",
		"iptables-sync-period":              "syncPeriod",
		"iptables-min-sync-period":          "minSyncPeriod",
		"detect-local-mode":                 "detectLocalMode",
		"cluster-cidr":                      "detectLocal.clusterCIDRs",
		"pod-bridge-interface":              "detectLocal.bridgeInterface",
		"pod-interface-name-prefix":         "detectLocal.interfaceNamePrefix",
		"nodeport-addresses":                "nodePortAddresses",
		"healthz-bind-address":              "healthzBindAddress",
		"metrics-bind-address":              "metricsBindAddress",
		"healthz-port":                      "healthzBindAddress",
		"metrics-port":                      "metricsBindAddress",
		"bind-address-hard-fail":            "bindAddressHardFail",
		"profiling":                         "enableProfiling",
		"show-hidden-metrics-for-version":   "showHiddenMetricsForVersion",
		"conntrack-max-per-core":            "linux.conntrack.maxPerCore",
		"conntrack-min":                     "linux.conntrack.min",
		"conntrack-tcp-timeout-established": "linux.conntrack.tcpEstablishedTimeout",
		"conntrack-tcp-timeout-close-wait":  "linux.conntrack.tcpCloseWaitTimeout",
		"conntrack-tcp-be-liberal":          "linux.conntrack.tcpBeLiberal",
		"conntrack-udp-timeout":             "linux.conntrack.udpTimeout",
		"conntrack-udp-timeout-stream":      "linux.conntrack.udpStreamTimeout",
		"ipvs-sync-period":                  "syncPeriod",
		"ipvs-min-sync-period":              "minSyncPeriod",
		"ipvs-scheduler":                    "ipvs.scheduler",
		"ipvs-exclude-cidrs":                "ipvs.excludeCIDRs",
		"ipvs-strict-arp":                   "ipvs.strictARP",
		"ipvs-tcp-timeout":                  "ipvs.tcpTimeout",
		"ipvs-tcpfin-timeout":               "ipvs.tcpFinTimeout",
		"ipvs-udp-timeout":                  "ipvs.udpTimeout",
		"windows-service":                   "windows.runAsService",
		"network-name":                      "winkernel.networkName",
		"source-vip":                        "winkernel.sourceVip",
		"enable-dsr":                        "winkernel.enableDSR",
		"root-hnsendpoint-name":             "winkernel.rootHnsEndpointName",
		"forward-healthcheck-vip":           "winkernel.forwardHealthCheckVip",
	}[flag]
}

// flagOf returns the flag that sets the field at a path, as it is written on a command line. If there are several, it returns
// the one of the active mode, the one that was set, or the first by name that is not deprecated.
func flagOf(path string, mode config.ProxyMode, flags *pflag.FlagSet) string {
	best := ""
	flags.VisitAll(func(f *pflag.Flag) {
		if !sets(f.Name, path) || isPeriodOfOtherMode(f.Name, mode) {
			return
		}
		if best == "" || f.Changed || Deprecation(f.Name) == "" && Deprecation(best) != "" {
			best = f.Name
		}
	})
	if best == "" {
		return path
	}
	return "--" + best
}

// sets reports whether a flag sets the field at a path, or a section or list that contains it.
func sets(flag, path string) bool {
	field := cmp.Or(FieldOf(flag), LoggingFieldOf(flag))
	rest, found := strings.CutPrefix(path, field)
	return field != "" && found && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// isPeriodOfOtherMode reports whether a flag is one of the --ipvs-...-period and --iptables-...-period that has no effect in a
// mode: only the former have in ipvs mode, and only the latter in all other modes.
func isPeriodOfOtherMode(flag string, mode config.ProxyMode) bool {
	field := FieldOf(flag)
	return (field == "syncPeriod" || field == "minSyncPeriod") && strings.HasPrefix(flag, "ipvs-") != (mode == config.ProxyModeIPVS)
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

// LoggingFieldOf returns the path in v1alpha2 of the field that a logging flag sets; "" if it is none.
func LoggingFieldOf(flag string) string {
	return map[string]string{
		"logging-format":            "logging.format",
		"log-flush-frequency":       "logging.flushFrequency",
		"v":                         "logging.verbosity",
		"vmodule":                   "logging.vmodule",
		"log-text-split-stream":     "logging.options.text.splitStream",
		"log-text-info-buffer-size": "logging.options.text.infoBufferSize",
		"log-json-split-stream":     "logging.options.json.splitStream",
		"log-json-info-buffer-size": "logging.options.json.infoBufferSize",
	}[flag]
}
