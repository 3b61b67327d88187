module github.com/seed-11a05479/kube-proxy/build/dependencies

go 1.26.0

require github.com/google/licensecheck v0.3.1
