module github.com/seed-11a05479/kube-proxy/build/release

go 1.26.0

replace github.com/seed-11a05479/kube-proxy/build/image => ../image

require github.com/seed-11a05479/kube-proxy/build/image v0.0.0

require (
	github.com/anchore/go-struct-converter v0.1.0 // indirect
	github.com/spdx/tools-golang v0.5.7 // indirect
)
