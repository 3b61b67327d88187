package main

import "fmt"

// suite is the tests of one package that run in the emulated machine.
type suite struct {
	folder  string
	pattern string
}

// suites returns all suites.
func suites() []suite {
	return []suite{{"./test/kernels/ipvs", "^TestKernel"}}
}

// command returns the shell command that runs the tests. A skipped test fails the run.
func (s suite) command() string {
	return fmt.Sprintf(`export CI=true KUBE_PROXY=/kube-proxy PEER=/peer
[ -e /peer ] || unset PEER
/test -test.v -test.run '%s' -test.timeout 14m > /tmp/out 2>&1
code=$?
cat /tmp/out
if grep -q -e '--- SKIP' /tmp/out; then code=1; fi
(exit $code)`, s.pattern)
}
