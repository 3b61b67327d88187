package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestInvalidFlood sends versions of invalid objects, of one or of many, that are valid in between or are not: a namespace logs a
// bounded number of lines, which count those that are missing, and do not hide another namespace's.
func TestInvalidFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
		s := newStore(ctx, services(), cluster.NewBuilder("n1"), &Options{})
		version := 0
		put := func(namespace, name string, addresses ...string) {
			version++
			object := service(name)
			object.Namespace, object.ResourceVersion, object.Spec.ExternalIPs = namespace, fmt.Sprint(version), addresses
			if err := s.take(object); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 1000 {
			put("a", "one", "nonsense")
			put("a", fmt.Sprintf("many-%d", i), "nonsense")
			put("a", "flips", "nonsense")
			put("a", "flips")
			gone := service(fmt.Sprintf("gone-%d", i))
			put("a", gone.Name, "nonsense")
			gone.Namespace = "a"
			if err := s.Delete(gone); err != nil {
				t.Fatal(err)
			}
		}
		bytes := len(strings.Join(lines, "\n"))
		if len(lines) != 20 || bytes > 20_000 {
			t.Errorf("%d lines of %d bytes; the last one is %s", len(lines), bytes, lines[len(lines)-1])
		}
		lines = nil
		put("b", "one", "nonsense")
		if len(lines) != 1 || !strings.Contains(lines[0], `"object"="b/one"`) || !strings.Contains(lines[0], `"notLogged"=0`) {
			t.Errorf("another namespace logs %q", lines)
		}
		time.Sleep(time.Minute)
		lines = nil
		put("a", "one", "nonsense")
		if len(lines) != 1 || !strings.Contains(lines[0], fmt.Sprintf(`"notLogged"=%d`, 4000-20)) {
			t.Errorf("later it logs %q", lines)
		}
	})
}
