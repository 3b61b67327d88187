// Package sbom writes software bills of materials as SPDX 2.3 in JSON, which vulnerability scanners read.
package sbom

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// Subject is what a bill of materials describes.
type Subject struct {
	// Name and Platform, such as kube-proxy and linux/arm64, name it; PURL is its package URL.
	Name, Platform, PURL string
	// Version is that of the release, Revision the commit, Source the address of the repository.
	Version, Revision, Source string
	// Created is the time of the commit.
	Created time.Time
}

// Component is a part of a subject.
type Component struct {
	// ID is unique in the document. Name and Version are its own, PURL is its package URL.
	ID, Name, Version, PURL string
	// SHA256 is the digest of its file, in hexadecimal, or empty.
	SHA256 string
}

// Write returns the document. A component whose ID was used before is left out.
func Write(s Subject, components []Component) ([]byte, error) {
	doc := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      s.Name + " " + s.Version + " " + s.Platform,
		DocumentNamespace: s.Source + "/sbom/" + url.PathEscape(s.Version) + "/" + s.Revision + "/" + s.Name + "-" + strings.ReplaceAll(s.Platform, "/", "-"),
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: s.Source + "/build"}},
			Created:  s.Created.UTC().Format(time.RFC3339),
		},
	}
	relate := func(from, to common.ElementID, how string) {
		doc.Relationships = append(doc.Relationships, &v2_3.Relationship{
			RefA: common.DocElementID{ElementRefID: from}, RefB: common.DocElementID{ElementRefID: to}, Relationship: how,
		})
	}
	whole := newPackage(Component{ID: "Subject", Name: s.Name, Version: s.Version, PURL: s.PURL})
	whole.PackageLicenseDeclared = "Apache-2.0"
	doc.Packages = append(doc.Packages, whole)
	relate("DOCUMENT", whole.PackageSPDXIdentifier, "DESCRIBES")
	seen := map[string]bool{}
	for _, c := range components {
		if seen[c.ID] {
			continue
		}
		seen[c.ID] = true
		part := newPackage(c)
		doc.Packages = append(doc.Packages, part)
		relate(whole.PackageSPDXIdentifier, part.PackageSPDXIdentifier, "CONTAINS")
	}
	var out bytes.Buffer
	if err := spdxjson.Write(doc, &out, spdxjson.Indent("  ")); err != nil {
		return nil, fmt.Errorf("write the bill of materials of %s: %w", s.Name, err)
	}
	return append(out.Bytes(), '\n'), nil
}

// Binary returns the components of a Go program: the program, the modules that the linker noted in it, and the standard
// library, which scanners know as a module.
func Binary(path, name, version string) ([]Component, error) {
	info, err := buildinfo.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, fmt.Errorf("read the modules of %s: %w", path, err)
	}
	all := []Component{{ID: "binary-" + name, Name: name, Version: version, PURL: golang(info.Main.Path, version)}}
	standard := &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}
	for _, module := range append(info.Deps, standard) {
		all = append(all, Component{
			ID: "go-" + module.Path + "-" + module.Version, Name: module.Path, Version: module.Version, PURL: golang(module.Path, module.Version),
		})
	}
	return all, nil
}

// golang is the package URL of a Go module.
func golang(path, version string) string { return "pkg:golang/" + path + "@" + url.PathEscape(version) }

// newPackage returns an SPDX package, whose identifier is made of letters, digits, dots and hyphens, as SPDX asks.
func newPackage(c Component) *v2_3.Package {
	clean := strings.Map(func(r rune) rune {
		if r < 128 && (r == '.' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return r
		}
		return '-'
	}, c.ID)
	p := &v2_3.Package{
		PackageSPDXIdentifier: common.ElementID("Package-" + clean), PackageName: c.Name, PackageVersion: c.Version,
		PackageDownloadLocation: "NOASSERTION", PackageLicenseConcluded: "NOASSERTION", PackageLicenseDeclared: "NOASSERTION",
		PackageCopyrightText: "NOASSERTION", FilesAnalyzed: false,
		PackageExternalReferences: []*v2_3.PackageExternalReference{{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: c.PURL}},
	}
	if c.SHA256 != "" {
		p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: c.SHA256}}
	}
	return p
}
