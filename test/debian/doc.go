// Package debian lays out packages of a Debian release in a folder, so that tests can run the programs of several releases
// on one machine. It needs apt and dpkg-deb, and takes the mirror from the machine's apt sources.
package debian
