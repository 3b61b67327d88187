package main

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

// newSBOM lists what an image of one architecture is made of, as SPDX 2.3 in JSON: its Debian packages, and the Go modules
// of its binaries, which tell them themselves.
func newSBOM(arch string, about about, packages []pin, versionID string, binaries []string) ([]byte, error) {
	doc := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      "kube-proxy " + about.Version + " linux/" + arch,
		DocumentNamespace: about.Source + "/sbom/" + url.PathEscape(about.Version) + "/" + about.Revision + "/linux-" + arch,
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "build/image"}},
			Created:  about.Created.UTC().Format(time.RFC3339),
		},
	}
	image := newPackage("Image", "kube-proxy", about.Version, "pkg:oci/kube-proxy?arch="+arch)
	image.PackageLicenseDeclared = "Apache-2.0"
	doc.Packages = append(doc.Packages, image)
	relate := func(from, to common.ElementID, how string) {
		doc.Relationships = append(doc.Relationships, &v2_3.Relationship{
			RefA: common.DocElementID{ElementRefID: from}, RefB: common.DocElementID{ElementRefID: to}, Relationship: how,
		})
	}
	relate("DOCUMENT", image.PackageSPDXIdentifier, "DESCRIBES")
	add := func(p *v2_3.Package) {
		doc.Packages = append(doc.Packages, p)
		relate(image.PackageSPDXIdentifier, p.PackageSPDXIdentifier, "CONTAINS")
	}
	for _, p := range packages {
		entry := newPackage("deb-"+p.Name, p.Name, p.Version,
			fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=debian-%s", url.PathEscape(p.Name), url.PathEscape(p.Version), arch, versionID))
		entry.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: p.SHA256}}
		add(entry)
	}
	seen := map[string]bool{}
	for _, binary := range binaries {
		info, err := buildinfo.ReadFile(filepath.Clean(binary))
		if err != nil {
			return nil, fmt.Errorf("modules of %s: %w", binary, err)
		}
		add(newPackage("binary-"+filepath.Base(binary), filepath.Base(binary), about.Version, "pkg:golang/"+info.Main.Path+"@"+url.PathEscape(about.Version)))
		for _, module := range append(info.Deps, goRelease(info.GoVersion)) {
			if id := "go-" + module.Path + "-" + module.Version; !seen[id] {
				seen[id] = true
				add(newPackage(id, module.Path, module.Version, "pkg:golang/"+module.Path+"@"+url.PathEscape(module.Version)))
			}
		}
	}
	var out bytes.Buffer
	if err := spdxjson.Write(doc, &out, spdxjson.Indent("  ")); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// goRelease is the standard library as a module, as vulnerability scanners know it.
func goRelease(version string) *debug.Module {
	return &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(version, "go")}
}

// newPackage is an SPDX package. id is made of letters, digits, dots and hyphens, as SPDX asks.
func newPackage(id, name, version, purl string) *v2_3.Package {
	clean := strings.Map(func(r rune) rune {
		if r < 128 && (r == '.' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return r
		}
		return '-'
	}, id)
	return &v2_3.Package{
		PackageSPDXIdentifier: common.ElementID("Package-" + clean), PackageName: name, PackageVersion: version,
		PackageDownloadLocation: "NOASSERTION", PackageLicenseConcluded: "NOASSERTION", PackageLicenseDeclared: "NOASSERTION",
		PackageCopyrightText: "NOASSERTION", FilesAnalyzed: false,
		PackageExternalReferences: []*v2_3.PackageExternalReference{{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: purl}},
	}
}
