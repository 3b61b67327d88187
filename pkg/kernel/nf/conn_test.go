package nf

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// TestCost checks that the processor time of a request counts as that of its caller, on whichever goroutine it runs.
func TestCost(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	socket, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := socket.Close(); err != nil {
			t.Error(err)
		}
	}()
	bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, ctx := range map[string]context.Context{"without an end": context.Background(), "bounded": bounded} {
		ctx, spent := host.MeasureCPU(ctx)
		finished, err := socket.Do(ctx, func() error {
			_, own := host.MeasureCPU(context.Background())
			for own() < 20*time.Millisecond { // it measures the thread, which is busy with this
			}
			return nil
		})
		if !finished || err != nil {
			t.Fatal(finished, err)
		}
		if cost := spent(); cost < 15*time.Millisecond {
			t.Errorf("context %s: a request that used at least 20ms cost %s", name, cost)
		}
	}
}

// refusing is a kernel that refuses the second message of each batch.
type refusing struct {
	Socket
	sent int
}

func (r *refusing) Limit() int         { return 1 << 20 }
func (r *refusing) Reserve(int) uint32 { return 100 }

func (r *refusing) Exchange(data []byte, answer func(netlink.Message) error) error {
	r.sent++
	for m := netlink.ReadMessages(data); m.Next(); {
		if m.Seq != 101 {
			continue
		}
		b := binary.NativeEndian.AppendUint32(nil, 36)
		b = binary.NativeEndian.AppendUint16(b, unix.NLMSG_ERROR)
		b = binary.NativeEndian.AppendUint16(b, 0)
		b = binary.NativeEndian.AppendUint64(b, uint64(m.Seq))
		errno := unix.EBUSY
		b = binary.NativeEndian.AppendUint32(b, -uint32(errno))
		b = append(b, make([]byte, unix.NLMSG_HDRLEN)...)
		answers := netlink.ReadMessages(b)
		if !answers.Next() {
			return netlink.ErrMalformed
		}
		if err := answer(answers.Message); err != nil {
			return err
		}
	}
	return nil
}

// TestRefusal commits over a socket that is not the kernel's.
func TestRefusal(t *testing.T) {
	kernel := &refusing{}
	b := NewBatch(IPv4, testTable, 0)
	b.DeleteChain("a")
	b.DeleteChain("b")
	err := New(kernel).Commit(t.Context(), b)
	if refused, ok := errors.AsType[*Refusal](err); !ok || refused.Op != "delete chain a" || !errors.Is(err, unix.EBUSY) || kernel.sent != 1 {
		t.Errorf("%v, sent %d times", err, kernel.sent)
	}
	for len(b.Bytes()) <= kernel.Limit() {
		b.Delete("endpoints", slotKey(1, 0))
	}
	if err := New(kernel).Commit(t.Context(), b); !errors.Is(err, unix.EMSGSIZE) || kernel.sent != 1 {
		t.Errorf("larger than can be sent: %v, sent %d times", err, kernel.sent)
	}
}
