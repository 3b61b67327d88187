// Package features is part of an example: everything in this file is as it should be.
package features

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"sync"
)

//go:embed tables.go
var source string

var (
	errGone           = errors.New("gone")
	pattern           = regexp.MustCompile("a+")
	names             = []string{"a", "b"}
	table             = map[string][]int{"a": {1}}
	prefix            = netip.MustParsePrefix("10.0.0.0/8")
	once              = sync.OnceValue(func() int { return 1 })
	update            = flag.Bool("update", false, "")
	_       io.Reader = (*reader)(nil)
)

type reader struct{ names []string }

func (r *reader) Read([]byte) (int, error) { return 0, io.EOF }

func read() error {
	names := slices.Clone(names) // another variable of the same name
	names[0] = "c"
	names = append(names, source)
	for _, errGone := range []error{errGone} {
		return fmt.Errorf("%w %v %v %v", errGone, table["a"][0], prefix.Addr().Is4(), pattern.MatchString("a"))
	}
	r := reader{}
	r.names = names
	_, err := (&r).Read(nil)
	return errors.Join(err, fmt.Errorf("%d %v", once(), *update))
}
