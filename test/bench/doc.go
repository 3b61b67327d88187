// Command bench measures what a proxy costs, and how soon packets meet what the API server says. It runs the proxy as
// a process of its own in a network namespace of its own, against a synthetic API server, and looks from outside: at
// packets and at /proc, and nowhere else.
//
//	make bench          both modes and all sizes, at most 20 minutes
//	make bench-quick    at most 3 minutes
//	make bench PEER=1   beside Kubernetes' own kube-proxy, which is built for it (make peer); at most an hour
//	go run ./test/bench -h
//
// How much of each mode is measured is said by -h, and above each table. What is not done when the time is over is left
// out, and listed below the tables: so is what a peer does not end in the time that it has for a mode and size.
//
// A time counts from the moment before the API server sends an event to the answer of the first connection that meets
// it; connections begin 0.1 ms apart. A cold start counts from the start of the process to the first answer from the
// last Service of the cluster. The Services that are changed have at most two endpoints each, as a connection to one
// of fifty would rarely meet the one that changed; all others have as many as the size says.
//
// The limit of a cold start is what it does not do without: reading the same objects from the same server with
// Kubernetes' own decoder, and writing as many elements as an nf_tables proxy has to into maps like ours that no rule
// reads. Both are taken in the same run, one after the other and with nothing in between. Kernel memory is what
// SUnreclaim and VmallocUsed of /proc/meminfo grow by, of the whole machine, and so true to some megabytes.
//
// Connect times are those of a TCP handshake that the kernel answers by itself, from one pod of the node to another by
// way of the node: by a Service, and directly to the same endpoints, in turn. Both meet the rules that are in force. What
// the rules cost those that are not for them is the difference to a direct connection before the proxy started.
//
// The API server runs in this process, on the same machine, and sends without TLS and compression: what it and the
// questions use of the processors is missed by the proxy. Figures are for comparing programs on one machine in one run.
package main
