package sbom_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"

	"github.com/seed-11a05479/kube-proxy/build/image/sbom"
)

// TestWrite writes the bill of materials of an image that consists of the program that builds images, and a package.
func TestWrite(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("go", "build", "-o", program, "..").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	parts, err := sbom.Binary(program, "kube-proxy", "v1.2.3+abc")
	if err != nil {
		t.Fatal(err)
	}
	deb := sbom.Component{ID: "deb-libc6", Name: "libc6", Version: "2.36-9", PURL: "pkg:deb/debian/libc6@2.36-9?arch=amd64", SHA256: strings.Repeat("0", 64)}
	data, err := sbom.Write(sbom.Subject{Name: "kube-proxy", Platform: "linux/amd64", PURL: "pkg:oci/kube-proxy?arch=amd64", Version: "v1.2.3+abc",
		Revision: "abc", Source: "https://example.org", Created: time.Unix(1700000000, 0)}, append(parts, deb, deb))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := spdxjson.Read(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(doc); err != nil {
		t.Error(err)
	}
	if doc.SPDXVersion != "SPDX-2.3" || doc.CreationInfo.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("document %s of %s", doc.SPDXVersion, doc.CreationInfo.Created)
	}
	var ids, locators []string
	for _, p := range doc.Packages {
		if id := string(p.PackageSPDXIdentifier); slices.Contains(ids, id) {
			t.Errorf("identifier %s is used twice", id)
		} else {
			ids = append(ids, id)
		}
		for _, ref := range p.PackageExternalReferences {
			locators = append(locators, ref.Locator)
		}
	}
	for _, want := range []string{"pkg:oci/kube-proxy?arch=amd64", "pkg:deb/debian/libc6@2.36-9?arch=amd64", "pkg:golang/github.com/spdx/tools-golang@", "pkg:golang/stdlib@"} {
		if !slices.ContainsFunc(locators, func(l string) bool { return strings.HasPrefix(l, want) }) {
			t.Errorf("no package %s in %q", want, locators)
		}
	}
}
