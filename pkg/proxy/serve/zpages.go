package serve

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/component-base/version"
	"sigs.k8s.io/yaml"
)

// component is the program's name in a cluster.
const component = "kube-proxy"

// zpage is a page in two formats: an object of the API group config.k8s.io for programs, and text for people.
type zpage struct {
	kind string
	// title is the text's first line, after the component's name.
	title string
	// fields are the object's fields except kind, apiVersion and metadata.
	fields map[string]any
	text   string
}

// statusz returns the page with the program's version, start time and these paths (KEP-4827).
func statusz(start time.Time, paths []string) http.Handler {
	paths = slices.Sorted(slices.Values(paths))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, up := start.UTC(), time.Since(start).Truncate(time.Second)
		goVersion, binary := runtime.Version(), version.Get().String()
		zpage{
			kind:  "Statusz",
			title: "statusz",
			fields: map[string]any{
				"startTime": start.Format(time.RFC3339), "uptimeSeconds": int64(up.Seconds()),
				"goVersion": goVersion, "binaryVersion": binary, "paths": paths,
			},
			text: fmt.Sprintf("Started: %s\nUp: %s\nGo version: %s\nBinary version: %s\nPaths: %s\n",
				start.Format(time.UnixDate), up, goVersion, binary, strings.Join(paths, " ")),
		}.answer(w, r)
	})
}

// flagz returns the page with the program's flags (KEP-4828).
func flagz(flags map[string]string) http.Handler {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		fmt.Fprintf(&text, "%s=%s\n", name, flags[name])
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		zpage{kind: "Flagz", title: "flags", fields: map[string]any{"flags": flags}, text: text.String()}.answer(w, r)
	})
}

// answer writes the format that the request accepts: text unless it asks for JSON or YAML of a supported version.
func (z zpage) answer(w http.ResponseWriter, r *http.Request) {
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		media, params, err := mime.ParseMediaType(accepted)
		switch {
		case err != nil && strings.TrimSpace(accepted) != "":
			continue
		case media == "" || media == "text/plain" || media == "text/*" || media == "*/*":
			plain(w, fmt.Sprintf("%s %s\nThis format is for people; programs should request application/json;g=config.k8s.io;v=v1beta1;as=%s\n\n%s",
				component, z.title, z.kind, z.text))
			return
		case z.offers(media, params):
			z.object(w, media, params["v"])
			return
		}
	}
	http.Error(w, fmt.Sprintf("not acceptable; use text/plain or application/json;g=config.k8s.io;v=v1beta1;as=%s", z.kind),
		http.StatusNotAcceptable)
}

// offers reports whether a media type with parameters requests this object in a supported version.
func (z zpage) offers(media string, params map[string]string) bool {
	return (media == "application/json" || media == "application/yaml") &&
		params["g"] == "config.k8s.io" && params["as"] == z.kind && (params["v"] == "v1beta1" || params["v"] == "v1alpha1")
}

// object writes the object for programs.
func (z zpage) object(w http.ResponseWriter, media, version string) {
	z.fields["kind"] = z.kind
	z.fields["apiVersion"] = "config.k8s.io/" + version
	z.fields["metadata"] = map[string]string{"name": component}
	marshal := json.Marshal
	if media == "application/yaml" {
		marshal = yaml.Marshal
	}
	body, err := marshal(z.fields)
	if err != nil {
		http.Error(w, fmt.Sprintf("writing %s: %v", z.kind, err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body)
}
