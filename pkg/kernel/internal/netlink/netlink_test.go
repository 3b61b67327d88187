package netlink

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// decoded is an attribute as Attrs reads it.
type decoded struct {
	typ  uint16
	data string
}

func TestAttrs(t *testing.T) {
	nested, start := BeginNest(nil, 5)
	nested = AppendUint32(nested, 1, 7)
	EndNest(nested, start)
	for _, test := range []struct {
		name      string
		in        []byte
		want      []decoded
		malformed bool
	}{
		{"none", nil, nil, false},
		{"padded", AppendString(AppendBytes(nil, 1, []byte("abc")), 2, "de"), []decoded{{1, "abc"}, {2, "de\x00"}}, false},
		{"empty", AppendBytes(nil, 3, nil), []decoded{{3, ""}}, false},
		{"nested flag, not part of the type", nested, []decoded{{5, string(AppendUint32(nil, 1, 7))}}, false},
		{"without the last padding", AppendBytes(nil, 1, []byte("abcde"))[:9], []decoded{{1, "abcde"}}, false},
		{"shorter than its header says", AppendBytes(nil, 1, []byte("abcd"))[:7], nil, true},
		{"shorter than a header", []byte{4, 0, 1}, nil, true},
		{"a length below that of the header", []byte{3, 0, 1, 0}, nil, true},
		{"something after the last", append(AppendBytes(nil, 1, nil), 9), []decoded{{1, ""}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []decoded
			a := ReadAttrs(test.in)
			for a.Next() {
				got = append(got, decoded{a.Type, string(a.Data)})
			}
			if !slices.Equal(got, test.want) || a.Malformed() != test.malformed {
				t.Errorf("got %v, malformed %v, want %v, %v", got, a.Malformed(), test.want, test.malformed)
			}
			if a.Next() {
				t.Error("there is one more")
			}
		})
	}
}

func TestAttrValues(t *testing.T) {
	b := AppendUint32(nil, 1, 0x01020304)
	b = AppendBytes(b, 2, binary.BigEndian.AppendUint64(nil, 1<<40))
	b = AppendBytes(b, 3, []byte{1, 2})
	b = AppendString(b, 4, "name")
	a := ReadAttrs(b)
	a.Next()
	if got := a.Uint32(); got != 0x01020304 {
		t.Errorf("Uint32 is %x", got)
	}
	a.Next()
	if got := a.Uint64(); got != 1<<40 {
		t.Errorf("Uint64 is %x", got)
	}
	a.Next()
	if got := a.Uint16(); got != 0x0102 || a.Malformed() {
		t.Errorf("Uint16 is %x, malformed %v", got, a.Malformed())
	}
	for name, read := range map[string]func(a *Attrs){
		"Uint16": func(a *Attrs) { a.Uint16() }, "Uint32": func(a *Attrs) { a.Uint32() }, "Uint64": func(a *Attrs) { a.Uint64() },
	} {
		wrong := ReadAttrs(AppendBytes(nil, 1, []byte("abc")))
		wrong.Next()
		if read(&wrong); !wrong.Malformed() {
			t.Errorf("%s accepts 3 bytes", name)
		}
	}
	if got := String(Attr(b, 4)); got != "name" {
		t.Errorf("the name is %q", got)
	}
	if got := Attr(b, 5); got != nil {
		t.Errorf("an attribute that is not there is %v", got)
	}
}

// message builds a message with the attribute 1.
func message(h Header, seq uint32, value string) []byte {
	b := AppendMessage(nil, h)
	SetSeq(b, 0, seq)
	b = AppendString(b, 1, value)
	EndMessage(b, 0)
	return b
}

func TestMessages(t *testing.T) {
	h := Header{Type: unix.NFNL_SUBSYS_CTNETLINK<<8 | 1, Flags: unix.NLM_F_REQUEST, Family: unix.NFPROTO_IPV6, Resource: 0x6b70}
	first, second := message(h, 7, "one"), message(h, 8, "two")
	for _, test := range []struct {
		name      string
		in        []byte
		want      []string
		malformed bool
	}{
		{"none", nil, nil, false},
		{"two", slices.Concat(first, second), []string{"7 one at 0", "8 two at 28"}, false},
		{"the second cut off", slices.Concat(first, second[:20]), []string{"7 one at 0"}, true},
		{"less than a header", first[:15], nil, true},
		{"a length below that of the header", append([]byte{15, 0, 0, 0}, first[4:]...), nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			m := ReadMessages(test.in)
			for m.Next() {
				got = append(got, fmt.Sprintf("%d %s at %d", m.Seq, m.AttrString(1), m.Offset))
				if m.Header != h {
					t.Errorf("the header is %+v, want %+v", m.Header, h)
				}
			}
			if !slices.Equal(got, test.want) || m.Malformed() != test.malformed {
				t.Errorf("got %v, malformed %v, want %v, %v", got, m.Malformed(), test.want, test.malformed)
			}
		})
	}
}

// answer builds NLMSG_ERROR or NLMSG_DONE as the kernel does with NETLINK_CAP_ACK.
func answer(typ, flags uint16, errno int32, attrs []byte) Message {
	body := binary.NativeEndian.AppendUint32(nil, uint32(-errno))
	body = append(body, make([]byte, unix.NLMSG_HDRLEN)...)
	return Message{Header: Header{Type: typ, Flags: flags}, Seq: 3, body: append(body, attrs...)}
}

func TestResult(t *testing.T) {
	offset := AppendBytes(nil, unix.NLMSGERR_ATTR_OFFS, binary.NativeEndian.AppendUint32(nil, 20))
	text := AppendString(nil, unix.NLMSGERR_ATTR_MSG, "no such set")
	for _, test := range []struct {
		name string
		in   Message
		want Result
		err  string
	}{
		{"success", answer(unix.NLMSG_ERROR, 0, 0, nil), Result{Seq: 3}, ""},
		{"a number", answer(unix.NLMSG_ERROR, 0, 2, nil), Result{Seq: 3, Errno: unix.ENOENT}, "no such file or directory"},
		{"a text, and where the fault is", answer(unix.NLMSG_ERROR, unix.NLM_F_ACK_TLVS, 2, slices.Concat(offset, text)),
			Result{3, unix.ENOENT, "no such set"}, "no such file or directory (no such set)"},
		{"attributes without their flag", answer(unix.NLMSG_ERROR, 0, 2, text), Result{Seq: 3, Errno: unix.ENOENT}, "no such file or directory"},
		{"the end of a dump", answer(unix.NLMSG_DONE, 0, 4, nil), Result{Seq: 3, Errno: unix.EINTR},
			"the kernel's tables changed while they were read: interrupted system call"},
		{"the end of a dump, without a number", Message{Header: Header{Type: unix.NLMSG_DONE}, Seq: 3}, Result{Seq: 3}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := test.in.Result()
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			err := got.Err()
			if (err == nil) != (test.err == "") || err != nil && (err.Error() != test.err || !errors.Is(err, test.want.Errno)) {
				t.Errorf("the error is %q, want %q", err, test.err)
			}
			if errors.Is(err, ErrInterrupted) != (test.want.Errno == unix.EINTR) {
				t.Errorf("%v is ErrInterrupted, or should be", err)
			}
		})
	}
}

func TestAdvice(t *testing.T) {
	for errno, want := range map[unix.Errno]string{
		unix.EPERM: "CAP_NET_ADMIN", unix.EACCES: "CAP_NET_ADMIN", unix.ENOBUFS: "read again", unix.ENOMEM: "limit", unix.EINTR: "try later",
	} {
		if got := Advice(errno); !strings.Contains(got, want) {
			t.Errorf("%v: %q", errno, got)
		}
	}
	if got := Advice(unix.EINVAL); got != "" {
		t.Errorf("EINVAL: %q", got)
	}
}

func TestRetry(t *testing.T) {
	other := errors.New("other")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name    string
		ctx     context.Context
		results []error // the last is that of all further calls
		want    error
		calls   int
	}{
		{"success", t.Context(), []error{nil}, nil, 1},
		{"an error", t.Context(), []error{other}, other, 1},
		{"once interrupted", t.Context(), []error{ErrInterrupted, nil}, nil, 2},
		{"ended by the kernel", t.Context(), []error{Result{Errno: unix.EINTR}.Err(), nil}, nil, 2},
		{"always interrupted", t.Context(), []error{ErrInterrupted}, ErrInterrupted, readAttempts},
		{"interrupted when the context has ended", ended, []error{ErrInterrupted}, context.Canceled, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			calls := 0
			err := Retry(test.ctx, func() error {
				calls++
				return test.results[min(calls, len(test.results))-1]
			})
			if !errors.Is(err, test.want) || calls != test.calls {
				t.Errorf("%v after %d calls, want %v after %d", err, calls, test.want, test.calls)
			}
		})
	}
}

// FuzzRead gives the readers arbitrary bytes: they must end, stay within the slice, and find again what they found.
func FuzzRead(f *testing.F) {
	f.Add(message(Header{Type: 1}, 1, "value"))
	f.Add(slices.Concat(message(Header{Type: unix.NLMSG_ERROR, Flags: unix.NLM_F_ACK_TLVS}, 1, strings.Repeat("x", 40)), []byte{1, 2, 3}))
	f.Fuzz(func(t *testing.T, data []byte) {
		end := 0
		for m := ReadMessages(data); m.Next(); {
			if m.Offset < end || m.Offset+unix.NLMSG_HDRLEN+len(m.body) > len(data) {
				t.Fatalf("a message at %d of %d bytes in %d", m.Offset, len(m.body), len(data))
			}
			end = m.Offset + unix.NLMSG_HDRLEN
			m.Result()
			var again []byte
			a := m.Attrs()
			for a.Next() {
				again = AppendBytes(again, a.Type, a.Data)
			}
			b := ReadAttrs(again)
			for a := m.Attrs(); a.Next(); {
				if !b.Next() || b.Type != a.Type || !bytes.Equal(b.Data, a.Data) {
					t.Fatalf("%x became %x", a.Data, b.Data)
				}
			}
			if b.Next() || b.Malformed() {
				t.Fatalf("%x has more attributes than %x", again, data)
			}
		}
	})
}
