package nfttest

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// refusal is an error with the kernel's number.
type refusal struct {
	errno unix.Errno
	text  string
}

func (r *refusal) Error() string { return r.text + ": " + r.errno.Error() }

// Unwrap returns the number.
func (r *refusal) Unwrap() error { return r.errno }

// As makes a refusal one of the kernel's, to [nft.Refused].
func (r *refusal) As(target any) bool {
	e, ok := target.(**nft.BatchError)
	if ok {
		*e = &nft.BatchError{Op: "commit", Errno: r.errno, Text: r.text}
	}
	return ok
}

func refuse(errno unix.Errno, format string, args ...any) *refusal {
	return &refusal{errno: errno, text: fmt.Sprintf(format, args...)}
}

// mayAdd returns the refusal that a test requested for an object, if any.
func (s *fakeState) mayAdd(object string, key []byte) error {
	if s.refuse != nil {
		if errno := s.refuse(object, key); errno != 0 {
			return refuse(errno, "refused by a test")
		}
	}
	return nil
}

// wrap adds the operation and the table to an error.
func (f *Fake) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return nf.Wrap(op, nf.ParseFamily(string(f.family)), f.name, err)
}
