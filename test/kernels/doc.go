// Command kernels runs tests with the kernel and the tools of Debian releases, each in an emulated machine: clusters run the
// kernels of distributions, and some tests need modules that this machine's kernel may not have (ip_vs, ip_set, dummy).
//
//	suites.go    the tests that run there, and on which releases
//	build.go     compiles them, and the program
//	modules.go   unpacks the kernel's modules and lists what each needs
//	image.go     builds an initramfs from the packages of a release (test/debian) and these files
//	machine.go   boots it, runs one script in it, and returns its exit code
//	results.go   reads the results of the suites from its output
//
// Packages are cached in a folder below os.UserCacheDir. Nothing is installed on this machine.
package main
