package main

import "fmt"

// suite is tests of one package that are run in the emulated machine.
type suite struct {
	folder  string
	pattern string
}

// suites are all of them.
func suites() []suite {
	return []suite{{"./test/kernels/ipvs", "^TestKernel"}}
}

// command runs the tests. One that is skipped proves nothing, and fails the run.
func (s suite) command() string {
	return fmt.Sprintf(`export CI=true KUBE_PROXY=/kube-proxy PEER=/peer
[ -e /peer ] || unset PEER
/test -test.v -test.run '%s' -test.timeout 14m > /tmp/out 2>&1
code=$?
cat /tmp/out
if grep -q -e '--- SKIP' /tmp/out; then code=1; fi
(exit $code)`, s.pattern)
}
