// Package netns is the laboratory: a small cluster network made of network
// namespaces, in which real packets are sent and watched.
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
// The proxy under test runs in node1 and, if wanted, in node2. Nodes route to
// each other's pods; the client knows the segment only, and whatever routes a
// test gives it. What nobody routes goes to the gateway, which swallows it.
//
// A test reads like the question it asks:
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
//   - [Host.Serve]: servers over TCP, UDP and SCTP that answer with who they are
//     and whom they saw.
//   - [Probe]: one question and its [Answer]; many at once ([Probe.Spread]), at a
//     steady rate ([Probe.Stream]), on one flow again and again ([Probe.Open]),
//     or until the answer is the wanted one ([Probe.Until]).
//
// The namespaces have no names: they exist by the file descriptors of this
// process and by the processes that it started inside, which die with it. So the
// kernel removes every trace however the process ends (return, panic, Ctrl-C or
// kill -9), any number of laboratories may run at once, and there is nothing to
// sweep. To look into one that is running, use [Host.Path] with nsenter(1).
//
// It needs root and Linux, and writes nothing outside its own namespaces; where the
// kernel module br_netfilter is missing it loads it, as every node has it.
package netns
