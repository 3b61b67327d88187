// Command image builds the container image of kube-proxy without a container engine or a registry: a root file system laid
// out from Debian packages that packages.json pins by version and digest, and the binaries in a layer above it, for several
// architectures, as an OCI image layout.
//
// The same packages and binaries give the same bytes, and so the same digest, wherever and whenever it runs: files are
// sorted, belong to root and have the time of the commit.
//
//	main.go      flags, and the order of the steps
//	packages.go  packages.json, and apt, which resolves and fetches its packages
//	rootfs.go    which files of the packages the image needs
//	oci.go       layers, images, index and archives
//	sbom         the bill of materials of an image or a program, as SPDX
package main
