// Command kernels runs tests on other kernels, with other tools, than this machine's: those of a Debian release, in an
// emulated machine. Clusters run on what distributions ship, and some of what is tested needs modules that this machine's
// kernel may not have (ip_vs, ip_set, dummy).
//
//	packages.go  fetches the packages of a release, and lays them out in a folder
//	image.go     makes an initramfs of such a folder and a few files more
//	machine.go   boots it, runs one command in it, and returns its output and exit code
//	suites.go    what is run there
//
// Packages and what is made of them are kept in a folder below os.UserCacheDir. Nothing of it is installed.
package main
