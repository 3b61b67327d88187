// Package nf is the client of nf_tables: everything that speaks its netlink is here once. The doors nft, ipt and trace stand on it.
//
//	conn.go         a connection: requests one after the other, batches, and the end of a context while the kernel is busy
//	request.go      one request: for an object, or for all of a kind, without those of other tables; the generation
//	names.go        numbers and names of families and hooks, and the header of messages
//	batch.go        a transaction: its frame, and elements
//	batchrule.go    tables, chains and rules in a transaction
//	flowtable.go    flowtables
//	expr.go         the expressions of rules, to write
//	object.go       chains, sets, rules, counters and comments, to read
//	table.go        a table: what it holds, read while no transaction comes in between
//	element.go      the elements of a set, complete although others write
//	find.go         the elements of some keys
//	fingerprint.go  a digest of all of a table except its elements
//	filters.go      the chains of all tables that may drop what is received or forwarded
//	watch.go        who writes what, from the kernel's notifications
//	errors.go       a refused batch; what the kernel's numbers mean, and what to do
//
// Everything is encoded as nft and iptables-nft do, so that their programs can print it.
//
// A Conn speaks to its kernel through a [Socket] only, a Watch hears it through a [Listener]: package nftest has a fake nf_tables
// behind both, which answers the messages that the kernel gets, so that the real doors run on it.
package nf
