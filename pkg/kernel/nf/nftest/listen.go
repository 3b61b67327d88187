package nftest

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// listener is a [nf.Listener] of a Kernel.
type listener struct {
	kernel *Kernel
	more   chan struct{}
	done   chan struct{}
	ends   sync.Once

	mu     sync.Mutex
	queue  [][]byte
	lost   bool
	member bool
}

// maxQueue is how many transactions a listener keeps.
const maxQueue = 1000

// Watch returns a Watch of tables.
func (k *Kernel) Watch(tables ...nf.TableName) *nf.Watch {
	l := &listener{kernel: k, more: make(chan struct{}, 1), done: make(chan struct{})}
	k.mu.Lock()
	k.listeners = append(k.listeners, l)
	k.mu.Unlock()
	w, err := nf.NewWatch(nf.New(k.Open("", 0)), l, tables...)
	if err != nil {
		panic(err)
	}
	return w
}

// Lose makes all watches lose what they have not taken, as if there had been too much.
func (k *Kernel) Lose() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.listeners {
		l.mu.Lock()
		l.queue, l.lost = nil, true
		l.mu.Unlock()
		l.wake()
	}
}

func (l *listener) wake() {
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// Late makes the notifications of the next transaction late: they come with those of the one after it. The kernel sends them at the
// end of a transaction, when others may have read what it wrote, and makes no other meanwhile.
func (k *Kernel) Late() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delays = true
}

// Join is part of [nf.Listener].
func (l *listener) Join() error { return l.set(true) }

// Leave is part of [nf.Listener].
func (l *listener) Leave() error { return l.set(false) }

func (l *listener) set(member bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.member = member
	return nil
}

func (l *listener) send(messages []byte) {
	l.mu.Lock()
	if l.member {
		l.queue = append(l.queue, messages)
	}
	if len(l.queue) > maxQueue { // as if its owner had ended
		l.queue, l.lost = nil, true
	}
	l.mu.Unlock()
	l.wake()
}

// Receive is part of [nf.Listener].
func (l *listener) Receive(each func(netlink.Message)) (found, lost bool) {
	l.mu.Lock()
	var next []byte
	if lost, l.lost = l.lost, false; !lost && len(l.queue) > 0 {
		next, l.queue = l.queue[0], l.queue[1:]
	}
	l.mu.Unlock()
	for m := netlink.ReadMessages(next); m.Next(); {
		each(m.Message)
	}
	return lost || next != nil, lost
}

// Await is part of [nf.Listener].
func (l *listener) Await(ctx context.Context, receive func() bool) error {
	for !receive() {
		select {
		case <-l.more:
		case <-l.done:
			return nf.ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Close is part of [nf.Listener].
func (l *listener) Close() error {
	l.kernel.mu.Lock()
	defer l.kernel.mu.Unlock()
	l.kernel.listeners = slices.DeleteFunc(l.kernel.listeners, func(o *listener) bool { return o == l })
	l.ends.Do(func() { close(l.done) })
	return nil
}

// note notifies of an object that the transaction writes; of an element, keys has one.
func (k *Kernel) note(command int, name string, keys ...string) {
	if len(k.listeners) == 0 {
		return
	}
	var attributes []byte
	for _, key := range keys {
		attributes = appendElements(attributes, key, nil)
	}
	k.state.notices = appendObject(k.state.notices, command, k.state.name, name, attributes)
}

// end ends a transaction.
func (k *Kernel) end(program string, process int) {
	if k.generation++; k.generation == 0 {
		k.generation = 1
	}
	messages := slices.Concat(k.late, k.appendGeneration(k.state.notices, program, process))
	k.state.notices, k.late = nil, nil
	if k.delays {
		k.late, k.delays = messages, false
		return
	}
	for _, l := range k.listeners {
		l.send(messages)
	}
}

func (k *Kernel) appendGeneration(b []byte, program string, process int) []byte {
	start := len(b)
	b = netlink.AppendMessage(b, netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN})
	b = nf.Numbers{{unix.NFTA_GEN_ID, uint32(k.generation)}, {unix.NFTA_GEN_PROC_PID, uint32(process)}}.AppendTo(b)
	b = netlink.AppendString(b, unix.NFTA_GEN_PROC_NAME, program)
	netlink.EndMessage(b, start)
	return b
}
