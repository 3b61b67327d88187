// Package image tests the container image and the manifests together: the image is built and unpacked, and the containers
// of the DaemonSet run from it with runc in a lab's node, with exactly the user, capabilities, mounts and seccomp
// profile that the manifests of build/manifests grant.
//
// It is a module of its own, because it needs libraries that the program does not.
package image
