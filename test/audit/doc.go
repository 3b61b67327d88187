// Package audit holds the findings of "kube-proxy audit" about a change of the proxy mode against packets. Each file of testdata is the shape of a
// cluster: a configuration and objects as a distribution writes them, and the findings (golden).
//
// TestKernelAudit sends packets to every address and port of the Services, and to some that no Service has, before and after the change: through
// Kubernetes' own kube-proxy, if PEER names it (PEER=$(make -s peer) go test ./test/audit), else this one in its mode, and then through this one in
// the other mode. A difference that no finding names fails the test, and so does a finding that no packet shows. The shape in ipvs mode needs
// an emulated kernel, and Kubernetes' own kube-proxy (make kernels PEER=1).
//
// TestKernelRandomClusters needs PEER: it compares packets, flows and health checks through it and this proxy, in the same mode, while both serve the
// same random cluster, which changes.
package audit
