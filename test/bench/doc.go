// Command bench measures the resources that a proxy uses, and the time until packets see a change in the API server. It
// runs the proxy as a process in its own network namespace, with a synthetic API server, and observes it only from
// outside: with packets and through /proc.
//
//	make bench          both modes and all sizes, at most 25 minutes
//	make bench-quick    at most 4 minutes
//	make bench PEER=1   also measures Kubernetes' own kube-proxy, which it builds (make peer); at most an hour and ten minutes
//	go run ./test/bench -h
//
// Tables of README.md and docs/scale.md are made from docs/bench.json. To replace them, run make bench PEER=1, copy
// bin/bench/bench.json to docs, and run make docs.
//
// With -starts it measures only cold starts and restarts, several of each program alternately, with medians; with -profiles it
// also writes profiles of them, for go tool pprof.
//
// With -rules it compares only rulesets, of programs and of files, in short turns: medians of ratios are steady even on a busy machine. The
// text of each is written to the folder of -out.
//
// The flag -h, and the line above each table, show what is measured for each mode. Measurements that do not fit into the
// time limit are skipped and listed below the tables, also those that a peer does not complete in its time for a mode and
// size, and everything with at least as many Services as a cluster that it could not start with in time.
//
// A latency is the time from just before the API server sends an event to the first answer that shows the change. Connections
// start 0.1 ms apart at first, and later 1 % of the time waited so far, at most 5 ms. A removed Service is gone from the first
// connection after which none is answered for 0.2 s. A cold start is the time from the start of the process to the first answer from the
// last Service of the cluster. The Services that change have at most two endpoints each, because a connection to one of
// fifty endpoints would rarely reach the one that changed; all others have the number of endpoints of the size.
//
// The lower bound of a cold start is the bare cost: reading the same objects from the same server with Kubernetes' own
// decoder, and writing as many elements as an nf_tables proxy needs into maps like ours that no rule uses, without counters. Both
// are measured in the same run, one after the other.
//
// CPU time is that of the process and of the programs that it runs, such as nft and iptables-restore; what the kernel does for it
// in its own threads is not included. Memory is that of the process alone. "CPU each" is for a change in a series with pauses,
// without what the proxy uses when idle. Kernel memory is the growth of SUnreclaim and VmallocUsed in
// /proc/meminfo, for the whole machine, and therefore accurate to a few megabytes.
//
// The bare cost of a restart is reading the objects, and the elements from the kernel; that of a new Service or endpoint is one
// transaction that writes its elements while all others are there.
//
// Connect times are those of a TCP handshake that the kernel completes by itself, from one pod of the node to another
// through the node: alternately through a Service and directly to the same endpoints. Both pass the rules. The cost of
// the rules for other traffic is the difference to a direct connection before the proxy started.
//
// Established traffic is that of long-lived connections, for UDP and TCP: one byte there and back, and packets of 1,400 bytes
// in one direction. A Service on the node is compared with one rule that translates the same address on another node without
// a proxy, alternately. One thread uses both ends of a connection, so that only the kernel's work is measured. More packets,
// and shorter round trips, are better: a ratio of 1 means that the proxy's rules cost no more than that one.
//
// In a rolling update of one Service a connection rarely reaches the pod that was replaced: the delay is that of a change of
// another Service during the update, as it is for churn. The idle cost is measured when the proxy has been idle for 10 s (or for the
// duration -idle, if that is shorter), then while another program adds and deletes an element of its own table.
//
// Before each measurement the proxy must have done the work of the one before: it uses less than 5 % of a core for 0.4 s.
//
// The API server runs in this process, on the same machine, and sends without TLS and compression: the CPU time that it
// and the probes use is not available to the proxy. Use the figures to compare programs on one machine in one run.
package main
