package page

import (
	"bytes"
	"fmt"
	"html"
	"time"
)

// writer writes HTML. html/template would be shorter, but any use of it makes the linker keep every exported method of every
// type, because a template may name any of them: the program was 18 % larger, and every process took 2.5 MB more.
type writer struct{ bytes.Buffer }

// put writes markup, which is a format of package fmt. The values are escaped for texts and for attributes in quotes.
func (w *writer) put(markup string, values ...any) {
	for i, value := range values {
		values[i] = html.EscapeString(fmt.Sprint(value))
	}
	fmt.Fprintf(w, markup, values...)
}

// putIf writes markup with a value unless the value is empty.
func (w *writer) putIf(markup, value string) {
	if value != "" {
		w.put(markup, value)
	}
}

// link writes a link, or only the text if there is no URL.
func (w *writer) link(url, text string) {
	if url == "" {
		w.put("%v", text)
		return
	}
	w.put(`<a href="%v">%v</a>`, url, text)
}

func count(n int) string         { return number(float64(n)) }
func clockOf(t time.Time) string { return t.UTC().Format("15:04:05") }

// html returns the document as HTML. The style and the script are constants of this package.
func (d *document) html() []byte {
	w := &writer{}
	w.put(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%v – kube-proxy</title>
`, d.Title)
	w.WriteString(`<link rel="icon" href="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M2 8h5m0 0l6-5m-6 5l6 5M7 8h6' stroke='%233465d9' stroke-width='2' fill='none' stroke-linecap='round'/%3E%3C/svg%3E">
`)
	w.WriteString("<style>" + d.Style + "</style>\n")
	w.put(`</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
`)
	w.head(&d.Head)
	w.put("<main id=\"content\">\n<div class=\"live\" id=\"live-why\">")
	if d.Head.Why != "" {
		w.put(`<p class="why %v">%v</p>`, d.Head.Tone, d.Head.Why)
	}
	w.put("</div>\n")
	switch {
	case d.Overview != nil:
		w.overview(d.Overview)
	case d.Service != nil:
		w.service(d.Service)
	case d.Error != "":
		w.put("<h1>%v</h1>\n<p class=\"lead\">%v</p>\n<p><a href=\"/\">All Services</a></p>\n", d.Title, d.Error)
	}
	w.put(`</main>
<footer>
<p>The numbers of this page as JSON: <code>/api/v1alpha1/</code>. For the whole cluster: <code>kube-proxy analyze</code>. For one connection: <code>kube-proxy explain</code>.</p>
<noscript><p>With JavaScript this page would refresh itself every five seconds. Without it, load it again for new numbers.</p></noscript>
</footer>
`)
	w.WriteString("<script>" + d.Script + "</script>\n</body>\n</html>\n")
	return w.Bytes()
}

func (w *writer) head(h *head) {
	w.put("<header>\n<div class=\"bar\">\n<p class=\"brand\"><a href=\"/\">kube-proxy</a>")
	w.putIf(" <span>%v</span>", h.Node)
	w.put("</p>\n<div class=\"live\" id=\"live-head\">\n<p class=\"state %v\">%v</p>\n<dl>\n", h.Tone, h.State)
	w.putIf("<div><dt>Mode</dt><dd>%v</dd></div>\n", h.Mode)
	w.putIf("<div><dt>Version</dt><dd>%v</dd></div>\n", h.Version)
	w.put("<div><dt>As of</dt><dd><time datetime=\"%v\">%v</time> UTC</dd></div>\n", h.Now.UTC().Format(time.RFC3339), clockOf(h.Now))
	w.put(`</dl>
</div>
<p class="refresh"><button type="button" id="pause" hidden>Pause</button> <span id="lost" role="status"></span></p>
</div>
</header>
`)
}

func (w *writer) tiles(all []tile) {
	w.put("<section class=\"live\" id=\"live-tiles\" aria-label=\"Numbers\"><ul class=\"tiles\">\n")
	for _, t := range all {
		w.put("<li")
		w.putIf(` class="%v"`, t.Tone)
		w.put("><span class=\"label\">%v</span> <span class=\"value\">%v</span> <span class=\"note\">%v</span></li>\n", t.Label, t.Value, t.Note)
	}
	w.put("</ul></section>\n")
}

// badge writes a word with a color.
func (w *writer) badge(tone, word string) { w.put(`<span class="badge %v">%v</span>`, tone, word) }

// numbers writes a cell for each number.
func (w *writer) numbers(values ...string) {
	for _, value := range values {
		w.put(`<td class="n">%v</td>`, value)
	}
}
