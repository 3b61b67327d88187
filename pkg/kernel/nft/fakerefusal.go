package nft

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// refusal is an error with the kernel's number.
type refusal struct {
	errno unix.Errno
	text  string
}

func (r *refusal) Error() string { return r.text + ": " + r.errno.Error() }

// Unwrap returns the number.
func (r *refusal) Unwrap() error { return r.errno }

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
