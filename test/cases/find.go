package cases

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Named returns the cases of a folder: those of a name in each of their families, or all if that is "".
func Named(t testing.TB, dir, name string) []*Case {
	t.Helper()
	all, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(c *Case) bool { return name != "" && !strings.HasPrefix(c.Name, name+"/") })
	if len(all) == 0 {
		t.Fatalf("%s has no case %s", dir, name)
	}
	return all
}

// Of returns the case of a name in one family.
func Of(t testing.TB, dir, name string, family cluster.Family) *Case {
	t.Helper()
	all := Named(t, dir, name)
	at := slices.IndexFunc(all, func(c *Case) bool { return c.Name == name+"/"+family.String() })
	if at < 0 {
		t.Fatalf("%s has no case %s in %s", dir, name, family)
	}
	return all[at]
}
