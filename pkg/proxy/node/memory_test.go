package node

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

// TestGroupLimit reads the memory limit in the ways in which control groups are visible on a node and in a container.
func TestGroupLimit(t *testing.T) {
	const none1 = "9223372036854771712\n"
	for _, test := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"no file at all", nil, 0},
		{"version 2, in a container", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "268435456\n"}, 268435456},
		{"version 2, no limit", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0},
		{"version 2, the machine itself", map[string]string{"proc/self/cgroup": "0::/init.scope\n", "sys/fs/cgroup/cgroup.procs": "1\n"}, 0},
		{"version 2, a pod's limit is smaller", map[string]string{"proc/self/cgroup": "0::/kubepods/pod1/c1\n",
			"sys/fs/cgroup/kubepods/pod1/c1/memory.max": "max\n", "sys/fs/cgroup/kubepods/pod1/memory.max": "100000000\n", "sys/fs/cgroup/kubepods/memory.max": "8000000000\n"}, 100000000},
		{"version 2, a path outside of the container", map[string]string{"proc/self/cgroup": "0::/../../pod1/c1\n", "sys/fs/cgroup/memory.max": "200000000\n"}, 200000000},
		{"version 1", map[string]string{"proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/kubepods/pod1/c1\n1:name=systemd:/\n0::/\n",
			"sys/fs/cgroup/memory/kubepods/pod1/c1/memory.limit_in_bytes": "300000000\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": none1}, 300000000},
		{"version 1, in a container", map[string]string{"proc/self/cgroup": "4:memory:/kubepods/pod1/c1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "400000000\n"}, 400000000},
		{"version 1, no limit", map[string]string{"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": none1}, 0},
		{"nonsense", map[string]string{"proc/self/cgroup": "0::/\n4\n\n4:memory:/x\n", "sys/fs/cgroup/memory.max": "-1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "lots\n"}, 0},
	} {
		root := fstest.MapFS{}
		for name, text := range test.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := groupLimit(root); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

// TestLimitMemory sets a share of the limit, and changes neither a limit that the user set nor one of a machine without limit.
func TestLimitMemory(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	root := fstest.MapFS{"proc/self/cgroup": {Data: []byte("0::/\n")}, "sys/fs/cgroup/memory.max": {Data: []byte("1000000000\n")}}
	for _, test := range []struct {
		env        string
		root       fstest.MapFS
		group, set int64
		want       int64
	}{
		{"", root, 1_000_000_000, 600_000_000, 600_000_000},
		{"512MiB", root, 0, 0, math.MaxInt64},
		{"", fstest.MapFS{}, 0, 0, math.MaxInt64},
	} {
		debug.SetMemoryLimit(math.MaxInt64)
		t.Setenv("GOMEMLIMIT", test.env)
		group, set := LimitMemory(test.root)
		if got := debug.SetMemoryLimit(-1); group != test.group || set != test.set || got != test.want {
			t.Errorf("GOMEMLIMIT=%q: %d, %d; Go's limit is %d, want %d", test.env, group, set, got, test.want)
		}
	}
}
