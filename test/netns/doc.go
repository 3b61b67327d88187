// Package netns is the lab: a small cluster network of network namespaces, for
// tests that send real packets.
//
//	                         ┌────────────┐
//	             client ─────┤  gateway   │  172.18.0.0/24, fd00:172:18::/64
//	                         └──┬──────┬──┘
//	                       node1│      │node2
//	10.244.1.0/24          ┌────┴─┐  ┌─┴────┐          10.244.2.0/24
//	fd00:10:244:1::/64     │ cbr0 │  │ cbr0 │     fd00:10:244:2::/64
//	                       └─┬──┬─┘  └─┬──┬─┘
//	                     pod1a  pod1b pod2a pod2b
//
// The proxy under test runs in node1 and, optionally, in others; [Options] adds nodes. Nodes have routes
// to each other's pods; the client has a route to the segment only, and those that
// a test adds. All other packets go to the gateway, which drops them.
//
// A test looks like this:
//
//	lab := netns.Start(t, netns.Options{})
//	lab.Node2.Pods[0].Serve(netns.TCP, 8080)
//	got := netns.Probe{From: lab.Client, To: vip, Protocol: netns.TCP}.Send()
//	if got.Endpoint != "pod2a" || got.Source.Addr() != lab.Client.IPv4 { ... }
//
// The pieces:
//
//   - [Lab] and [Host]: the namespaces, and running code ([Host.Do]), sockets
//     ([Host.Dial], [Host.Listen]) and processes ([Host.Command]) inside them.
//   - [Host.Serve]: TCP, UDP and SCTP servers that answer with their own name and
//     the source address that they see.
//   - [Probe]: one request and its [Answer]; many in parallel ([Probe.Spread]), at a
//     steady rate ([Probe.Stream]), repeatedly on one flow ([Probe.Open]), or until
//     a wanted answer arrives ([Probe.Until]).
//
// The namespaces have no names: only the file descriptors of this process, and the
// processes that it started inside, keep them alive, and these processes are killed
// with it. So the kernel removes everything however the process ends (return,
// panic, Ctrl-C or kill -9), several labs can run at the same time, and no cleanup
// is needed. To inspect a running lab, use [Host.Path] with nsenter(1).
//
// The package needs root and Linux, and changes nothing outside its own namespaces,
// except that it loads the kernel module br_netfilter if it is missing.
package netns

// PatienceVariable is the environment variable with the maximum ratio of real time to counted time: by how much probes wait
// longer on an overloaded machine ([DefaultTimeout]). An emulated machine on a busy one needs more than the default of 20; then
// [Probe.Stream] and [Probe.Until] also send a tenth of the probes.
const PatienceVariable = "NETNS_PATIENCE"
