package nftables

import (
	"context"
	"iter"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
)

// hooked is a table in whose operations a test intervenes.
type hooked struct {
	*nfttest.Fake
	// around does an operation, whose name is that of the method, or not, and returns its error; nil does all of them.
	around func(operation string, do func() error) error
	// countless means that the kernel does not report the number of elements.
	countless bool
	// used counts the elements that are read and written.
	used int
}

// newHooked returns an empty table of IPv4.
func newHooked() *hooked { return &hooked{Fake: nfttest.New(nf.IPv4, TableName)} }

// before has a function called before the operations of a name.
func (h *hooked) before(operation string, call func() error) {
	h.around = func(name string, do func() error) error {
		if name == operation {
			if err := call(); err != nil {
				return err
			}
		}
		return do()
	}
}

func (h *hooked) do(operation string, do func() error) error {
	if h.around == nil {
		return do()
	}
	return h.around(operation, do)
}

func (h *hooked) Again() (nft.Table, error) {
	return &hooked{Fake: h.Beside(h.Fake), around: h.around, countless: h.countless}, nil
}

func (h *hooked) Commit(ctx context.Context, b *nf.Batch) error {
	h.used += b.Len()
	return h.do("Commit", func() error { return h.Fake.Commit(ctx, b) })
}

func (h *hooked) Run(ctx context.Context, tx *nft.Transaction) error {
	return h.do("Run", func() error { return h.Fake.Run(ctx, tx) })
}

func (h *hooked) Objects(ctx context.Context) (o nf.Objects, err error) {
	err = h.do("Objects", func() error { o, err = h.Fake.Objects(ctx); return err })
	for i := range o.Sets {
		if h.countless {
			o.Sets[i].Count = -1
		}
	}
	return o, err
}

func (h *hooked) Fingerprint(ctx context.Context, except string) (digest string, objects map[string]string, err error) {
	err = h.do("Fingerprint", func() error { digest, objects, err = h.Fake.Fingerprint(ctx, except); return err })
	return digest, objects, err
}

func (h *hooked) Elements(ctx context.Context, set string) iter.Seq2[nf.Element, error] {
	return h.sequence("Elements", h.Fake.Elements(ctx, set))
}

func (h *hooked) Find(ctx context.Context, set string, keys iter.Seq[[]byte]) iter.Seq2[nf.Element, error] {
	return h.sequence("Find", h.Fake.Find(ctx, set, keys))
}

func (h *hooked) sequence(operation string, of iter.Seq2[nf.Element, error]) iter.Seq2[nf.Element, error] {
	return func(yield func(nf.Element, error) bool) {
		done := false
		err := h.do(operation, func() error {
			done = true
			of(func(e nf.Element, err error) bool { h.used++; return yield(e, err) })
			return nil
		})
		if err != nil && !done {
			yield(nf.Element{}, err)
		}
	}
}
