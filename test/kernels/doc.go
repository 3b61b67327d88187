// Command kernels runs tests with the kernel and the tools of a Debian release, in an emulated machine: clusters run the
// kernels of distributions, and some tests need modules that this machine's kernel may not have (ip_vs, ip_set, dummy).
//
//	image.go     builds an initramfs from the packages of a release (test/debian) and some other files
//	machine.go   boots it, runs one command in it, and returns its output and exit code
//	suites.go    the tests that run there
//
// Packages and images are cached in a folder below os.UserCacheDir. Nothing is installed on this machine.
package main
