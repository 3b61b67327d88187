// Command release writes the files of a release into a folder: the programs for each platform, also as a plugin of kubectl, the container image, the
// Helm chart, a bill of materials for each program and image, the notes, and the checksums of all of these.
//
// The same commit, version and packages give the same bytes wherever and whenever it runs.
//
//	main.go      flags, and the order of the steps
//	programs.go  the programs and their bills of materials
//	krew.go      the programs as a plugin of kubectl
//	chart.go     the chart as an archive
//	notes.go     the notes, from CHANGELOG.md and the git log
//	sums.go      the checksums
package main
