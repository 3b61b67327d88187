// Package nftest is a fake nf_tables for tests: a [Kernel] answers the messages that the kernel gets, so that all doors of it can be
// opened on one. It is as strict as the kernel: the conformance suite of package nft runs against both.
package nftest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Kernel is the nf_tables of one network namespace. It is safe for concurrent use.
type Kernel struct {
	mu         sync.Mutex
	generation nf.Generation
	tables     map[nf.TableName]*table
	handle     uint64
	listeners  []*listener
	refuses    map[nf.TableName]func(object string, key []byte) unix.Errno
	anonymous  bool
	// late are notifications that have not been sent yet, delays means that those of the next transaction are.
	late   []byte
	delays bool
	state  transaction
}

// New returns a Kernel without tables.
func New() *Kernel {
	return &Kernel{generation: 1, tables: map[nf.TableName]*table{}, refuses: map[nf.TableName]func(string, []byte) unix.Errno{}}
}

// Refuse makes the additions of elements, chains and devices to a table fail for which the function returns an error number; nil undoes that.
// object is like "set services" with the element's key, or "chain pick-2" or "device eth0" without one. As in the kernel, the error is about the
// message at fault, unless anonymous is true: then it is about the transaction as a whole.
func (k *Kernel) Refuse(table nf.TableName, anonymous bool, refuse func(object string, key []byte) unix.Errno) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuses[table], k.anonymous = refuse, anonymous
}

// Hold makes all requests wait until the result is called, as if another process held nf_tables' lock.
func (k *Kernel) Hold() (release func()) {
	k.mu.Lock()
	return k.mu.Unlock
}

// AddTable adds an empty table, which a batch of package nf cannot.
func (k *Kernel) AddTable(name nf.TableName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state = transaction{name: name}
	_ = k.addTable(0, nil, false)
	k.end("", 0)
}

// Adopt moves the tables of another Kernel, which has others, to this one.
func (k *Kernel) Adopt(o *Kernel) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.Copy(k.tables, o.tables)
	k.handle = max(k.handle, o.handle)
	o.tables = map[nf.TableName]*table{}
}

// Notify makes a transaction of a program known that wrote chains of a table, without making it.
func (k *Kernel) Notify(program string, process int, table nf.TableName, chains ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state = transaction{name: table}
	for _, chain := range chains {
		k.note(unix.NFT_MSG_NEWCHAIN, chain)
	}
	k.end(program, process)
}

// Open returns a socket of a program.
func (k *Kernel) Open(program string, process int) *Socket {
	s := &Socket{kernel: k, program: program, process: process}
	s.limit.Store(math.MaxInt32 / 2)
	return s
}

// Socket is a [nf.Socket] of a Kernel.
type Socket struct {
	kernel  *Kernel
	program string
	process int
	limit   atomic.Int64
	seq     atomic.Uint32
}

// Reserve is part of [nf.Socket].
func (s *Socket) Reserve(n int) (first uint32) { return s.seq.Add(uint32(n)) - uint32(n) + 1 }

// Limit is part of [nf.Socket].
func (s *Socket) Limit() int { return int(s.limit.Load()) }

// LimitSend is part of [nf.Socket].
func (s *Socket) LimitSend(size int) error {
	s.limit.Store(int64(size))
	return nil
}

// Close is part of [nf.Socket].
func (s *Socket) Close() error { return nil }

// Get is part of [nf.Socket].
func (s *Socket) Get(h netlink.Header, build func([]byte) []byte, answer func(netlink.Message) error) error {
	return s.request(h, build, answer)
}

// Dump is part of [nf.Socket].
func (s *Socket) Dump(h netlink.Header, build func([]byte) []byte, answer func(netlink.Message) error) error {
	h.Flags |= unix.NLM_F_DUMP
	return s.request(h, build, answer)
}

func (s *Socket) request(h netlink.Header, build func([]byte) []byte, answer func(netlink.Message) error) error {
	b := netlink.AppendMessage(nil, h)
	if build != nil {
		b = build(b)
	}
	netlink.EndMessage(b, 0)
	request := netlink.ReadMessages(b)
	request.Next()
	s.kernel.mu.Lock()
	answers, failed := s.kernel.read(request.Message)
	s.kernel.mu.Unlock()
	for m := netlink.ReadMessages(answers); m.Next() && answer != nil; {
		if err := answer(m.Message); err != nil {
			return err
		}
	}
	return failed
}

// Exchange is part of [nf.Socket].
func (s *Socket) Exchange(data []byte, answer func(netlink.Message) error) error {
	if len(data) > s.Limit() {
		return unix.EMSGSIZE
	}
	s.kernel.mu.Lock()
	at, acknowledged, err := s.kernel.commit(data, s.program, s.process)
	anonymous := s.kernel.anonymous
	s.kernel.mu.Unlock()
	var b []byte
	switch r, refused := errors.AsType[*refusal](err); {
	case err == nil:
		b = appendResult(nil, acknowledged, 0, "")
	case !refused:
		return err
	case anonymous:
		first := netlink.ReadMessages(data)
		first.Next()
		b = appendResult(nil, first.Seq, r.errno, r.text)
	default:
		b = appendResult(nil, at, r.errno, r.text)
	}
	m := netlink.ReadMessages(b)
	m.Next()
	return answer(m.Message)
}

// appendResult appends an NLMSG_ERROR.
func appendResult(b []byte, seq uint32, errno unix.Errno, text string) []byte {
	start := len(b)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint16(b, unix.NLMSG_ERROR)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_ACK_TLVS)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint32(b, uint32(-int32(errno)))
	b = append(b, make([]byte, unix.NLMSG_HDRLEN)...)
	if text != "" {
		b = netlink.AppendString(b, unix.NLMSGERR_ATTR_MSG, text)
	}
	netlink.EndMessage(b, start)
	return b
}

// refusal is an error number of the kernel.
type refusal struct {
	errno unix.Errno
	text  string
}

func (r *refusal) Error() string { return r.text + ": " + r.errno.Error() }

// Unwrap returns the number.
func (r *refusal) Unwrap() error { return r.errno }

func refuse(errno unix.Errno, format string, args ...any) *refusal {
	return &refusal{errno, fmt.Sprintf(format, args...)}
}

// appendObject appends a message of the kernel about an object.
func appendObject(b []byte, command int, of nf.TableName, name string, attributes []byte) []byte {
	start := len(b)
	b = append(nf.AppendObject(b, command, 0, of, name), attributes...)
	netlink.EndMessage(b, start)
	return b
}
