package page

import "cmp"

func (w *writer) service(s *service) {
	w.put("<nav aria-label=\"Where this page is\"><a href=\"/#services\">Services</a> <span aria-hidden=\"true\">/</span> %v</nav>\n", s.Namespace)
	w.put("<h1>%v <span class=\"note\">in namespace %v</span></h1>\n", s.Name, s.Namespace)
	w.tiles(s.Tiles)
	w.put("<section class=\"live\" id=\"live-problems\" aria-label=\"Problems\">\n")
	for _, p := range s.Problems {
		tone := toneOf(p.Reason)
		w.put(`<p class="why %v">`, tone)
		w.badge(tone, p.Reason)
		w.put(" %v</p>\n", p.Message)
	}
	w.put("</section>\n<section class=\"live\" id=\"live-facts\" aria-label=\"Properties\">\n<dl class=\"facts\">\n")
	for _, f := range s.Facts {
		w.put("<div><dt>%v</dt><dd>", f.Name)
		for _, value := range f.Values {
			w.put("<span>%v</span> ", value)
		}
		w.put("</dd></div>\n")
	}
	w.put("</dl>\n</section>\n<section class=\"live\" id=\"live-ports\" aria-label=\"Ports\">\n")
	for i := range s.Ports {
		w.port(&s.Ports[i])
	}
	w.put("<p class=\"note\">%v</p>\n</section>\n", s.Note)
}

func (w *writer) port(p *port) {
	w.put("<h2>%v</h2>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Addresses of %v\"><table>\n", p.Title, p.Title)
	w.put(`<thead><tr><th scope="col">Address</th><th scope="col">Kind</th><th scope="col">Policy</th><th scope="col">Decision</th><th scope="col" class="n">Endpoints</th><th scope="col" class="n">Connections</th><th scope="col" class="n">Refused</th></tr></thead>
<tbody>
`)
	for i := range p.Addresses {
		a := &p.Addresses[i]
		tone := bad
		if a.Verdict == "Balance" {
			tone = good
		}
		w.put("<tr><th scope=\"row\" class=\"a\">%v <span class=\"note\">port %v</span></th><td>%v</td><td>%v</td>\n<td>", a.Address, a.Port, a.Kind, a.TrafficPolicy)
		w.badge(tone, a.Verdict)
		w.put(" <span class=\"note\">%v</span></td>\n", a.Reason)
		w.numbers(count(a.Endpoints), counterText(a.Connections), counterText(a.Refused))
		w.put("</tr>\n")
	}
	if len(p.Addresses) == 0 {
		w.put("<tr><td colspan=\"7\">No address of this port is served.</td></tr>\n")
	}
	w.put("</tbody></table></div>\n")
	if len(p.Families) == 0 {
		w.put("<p class=\"lead\">No EndpointSlice of this Service has endpoints.</p>\n")
		return
	}
	w.put("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Endpoints of %v\"><table class=\"endpoints\">\n", p.Title)
	w.put(`<thead><tr><th scope="col">Endpoint</th><th scope="col">Where</th><th scope="col">State</th><th scope="col">Used for policy</th><th scope="col" class="n">Connections</th><th scope="col">Spread</th></tr></thead>
`)
	for i := range p.Families {
		w.family(&p.Families[i])
	}
	w.put("</table></div>\n")
}

func (w *writer) family(f *familyEndpoints) {
	w.put("<tbody>\n<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"6\">%v", f.Family)
	w.putIf(` <span class="note">%v (the line in each bar)</span>`, f.Spread)
	w.put("</th></tr>\n")
	for i := range f.Endpoints {
		w.endpoint(&f.Endpoints[i])
	}
	if f.More > 0 {
		w.put("<tr><td colspan=\"6\">%v more are not shown; <code>kube-proxy service describe</code> shows all.</td></tr>\n", count(f.More))
	}
	w.put("</tbody>\n")
}

func (w *writer) endpoint(e *endpoint) {
	w.put("<tr")
	if e.Used == "" {
		w.put(` class="unused"`)
	}
	w.put(`><th scope="row" class="a">%v</th><td>%v</td><td>`, e.Address, where(e.Location))
	w.badge(e.Tone, e.State)
	w.put("</td><td>%v</td>\n<td class=\"n\">%v</td>\n<td class=\"spread\">", cmp.Or(e.Used, "–"), e.Count)
	if e.Connections != nil {
		w.WriteString(`<svg width="100%" height="12" aria-hidden="true"><rect class="track" width="100%" height="12" rx="2"/>`)
		w.put(`<rect class="share" width="%v%%" height="12" rx="2"/>`, e.Share.Percent)
		if mean := e.Share.Mean; mean > 0 {
			w.put(`<line x1="%v%%" x2="%v%%" y1="0" y2="12"/>`, mean, mean)
		}
		w.put("</svg>")
	}
	w.put("%v</td></tr>\n", e.Why)
}
