package page

import "cmp"

func (w *writer) overview(o *overview) {
	w.put("<h1 class=\"quiet\">Status of this node’s proxy</h1>\n")
	w.tiles(o.Tiles)
	w.charts(&o.Charts)
	w.put("<section class=\"live\" id=\"live-findings\" aria-labelledby=\"findings\">\n<h2 id=\"findings\">Findings</h2>\n")
	w.findings(o)
	w.repairs(o)
	w.put("</section>\n")
	w.services(&o.List)
}

func (w *writer) charts(all *charts) {
	w.put("<section class=\"live\" id=\"live-charts\" aria-label=\"The last hour\">\n<div class=\"charts\">\n")
	for i := range all.All {
		w.chart(&all.All[i])
	}
	w.put(`</div>
<details id="minutes"><summary>The same as a table</summary>
<div class="wide" tabindex="0" role="region" aria-label="Syncs by minute"><table>
<thead><tr><th scope="col">Minute (UTC)</th><th scope="col" class="n">Syncs</th><th scope="col" class="n">Failed</th><th scope="col" class="n">Slowest</th><th scope="col" class="n">Together</th><th scope="col" class="n">Changes</th></tr></thead>
<tbody>
`)
	for _, m := range all.Rows {
		w.put(`<tr><th scope="row">%v</th>`, m.Start.UTC().Format("15:04"))
		w.numbers(count(m.Syncs), count(m.Failed), seconds(m.Slowest), seconds(m.Seconds), count(m.Changes))
		w.put("</tr>\n")
	}
	if len(all.Rows) == 0 {
		w.put("<tr><td colspan=\"6\">There was no sync.</td></tr>\n")
	}
	w.put("</tbody></table></div>\n</details>\n</section>\n")
}

func (w *writer) chart(c *chart) {
	w.put("<figure>\n<figcaption><h2>%v</h2> <span class=\"note\">%v</span></figcaption>\n<div class=\"plot\">\n", c.Title, c.Note)
	w.put(`<ol class="axis" aria-hidden="true">`)
	for _, label := range c.Labels {
		w.put("<li>%v</li>", label)
	}
	w.put("</ol>\n<svg viewBox=\"0 0 %v 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"%v: %v\">\n", c.Width, c.Title, c.Summary)
	w.put("<path class=\"grid\" d=\"%v\"/>\n", c.Grid)
	for _, column := range c.Columns {
		w.put("<rect")
		if column.Failed {
			w.put(` class="failed"`)
		}
		w.put(" x=\"%v\" y=\"%v\" width=\"%v\" height=\"%v\"><title>%v</title></rect>\n", column.X, column.Y, column.Width, column.Height, column.Title)
	}
	w.put("<path class=\"base\" d=\"M0 100H%v\"/>\n</svg>\n", c.Width)
	w.put("<p class=\"times\" aria-hidden=\"true\"><span>60 min ago</span><span>30 min</span><span>now</span></p>\n</div>\n</figure>\n")
}

func (w *writer) findings(o *overview) {
	for i := range o.Findings {
		f := &o.Findings[i]
		w.put("<div class=\"finding\">\n<h3>")
		w.badge(f.Tone, f.Reason)
		w.put(" <span class=\"note\">%v</span></h3>\n<ul>\n", plural(f.Count, f.Noun))
		for _, c := range f.Cases {
			w.put("<li>")
			if c.URL != "" {
				w.link(c.URL, c.Name)
			} else {
				w.put("<b>%v</b>", c.Name)
			}
			w.put(" <span>%v</span></li>\n", c.Message)
		}
		if f.More > 0 {
			w.put("<li>")
			if more := plural(f.More, "more "+f.Noun); f.URL != "" {
				w.link(f.URL, more)
			} else {
				w.put("<span>%v</span>", more)
			}
			w.put("</li>\n")
		}
		w.put("</ul>\n</div>\n")
	}
	switch {
	case len(o.Findings) > 0:
	case o.Synced:
		w.put("<p class=\"lead\">This node serves connections to all Services.</p>\n")
	default:
		w.put("<p class=\"lead\">Nothing is known before the first sync.</p>\n")
	}
}

func (w *writer) repairs(o *overview) {
	if len(o.Repairs) == 0 {
		return
	}
	w.put("<h2>Repaired rules</h2>\n<p class=\"lead\">Other programs modified the proxy’s rules. The proxy wrote them again.")
	if o.Forgotten > 0 {
		w.put(" There were %v earlier ones: <code>kube-proxy drift</code>.", o.Forgotten)
	}
	w.put(`</p>
<div class="wide" tabindex="0" role="region" aria-label="Repaired rules"><table>
<thead><tr><th scope="col">Time (UTC)</th><th scope="col">Family</th><th scope="col">What differed</th><th scope="col">Last writer</th></tr></thead>
<tbody>
`)
	for _, r := range o.Repairs {
		w.put("<tr><td class=\"t\">%v</td><td>%v</td><td>%v</td><td>%v</td></tr>\n", clockOf(r.Time), r.Family, r.What, cmp.Or(r.Writer, "–"))
	}
	w.put("</tbody></table></div>\n")
}

func (w *writer) services(l *list) {
	w.put("<section aria-labelledby=\"services\">\n<h2 id=\"services\">Services</h2>\n<form action=\"/#services\" method=\"get\" role=\"search\">\n")
	w.put(`<label><span>Search</span> <input type="search" name="q" value="%v" placeholder="name, namespace or address" autocomplete="off" spellcheck="false" maxlength="200"></label>
<label><span>Show</span> <select name="show">
`, l.Query.Search)
	for _, c := range l.Choices {
		w.put(`<option value="%v"`, c.Value)
		if c.Selected {
			w.put(" selected")
		}
		w.put(">%v</option>\n", c.Text)
	}
	w.put("</select></label>\n")
	w.putIf("<input type=\"hidden\" name=\"sort\" value=\"%v\">\n", l.Query.SortText())
	w.put("<button type=\"submit\">Search</button>\n")
	if l.Query.Search != "" || l.Query.Show != "" {
		w.put("<a href=\"/#services\">Clear</a>\n")
	}
	w.put("</form>\n<div class=\"live\" id=\"live-list\">\n")
	switch {
	case len(l.Items) > 0:
		w.table(l)
	case l.All > 0:
		w.put("<p class=\"lead\">None of %v matches.</p>\n", plural(l.All, "Service"))
	default:
		w.put("<p class=\"lead\">There are no Services.</p>\n")
	}
	w.put("</div>\n</section>\n")
}

func (w *writer) table(l *list) {
	w.put("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-labelledby=\"services\"><table class=\"services\">\n<thead><tr>")
	for _, h := range l.Headings {
		w.put(`<th scope="col"`)
		if h.Numeric {
			w.put(` class="n"`)
		}
		w.putIf(` aria-sort="%v"`, h.Sorted)
		w.put(">")
		w.link(h.URL, h.Title)
		w.put("</th>")
	}
	w.put("</tr></thead>\n<tbody>\n")
	for i := range l.Items {
		w.item(&l.Items[i])
	}
	w.put("</tbody></table></div>\n<nav aria-label=\"Pages of the list\">\n<p>%v – %v of %v", count(l.First), count(l.Last), count(l.Total))
	if l.Total != l.All {
		w.put(` <span class="note">(of %v Services)</span>`, count(l.All))
	}
	w.put("</p>\n<p>")
	w.putIf(`<a rel="prev" href="%v">Previous</a>`, l.Previous)
	w.put(" ")
	w.putIf(`<a rel="next" href="%v">Next</a>`, l.Next)
	w.put("</p>\n</nav>\n<p class=\"note\">Connections and refused packets are those that the kernel has counted since the rule was last written. %v</p>\n", l.Note)
}

// item writes a row of the table.
func (w *writer) item(i *item) {
	w.put("<tr>\n<th scope=\"row\"><a href=\"%v\">%v</a> <span class=\"note\">%v</span></th>\n", i.URL, i.Name, i.Namespace)
	w.some(i.Addresses, i.MoreAddresses)
	w.some(i.Ports, i.MorePorts)
	w.put("<td class=\"n\">%v <span class=\"note\">/ %v</span></td>\n", i.Ready, i.All)
	w.put("<td class=\"n\">%v</td>\n<td class=\"n\">%v</td>\n<td class=\"n\">%v</td>\n<td>", i.Connections, i.Rate, i.Refused)
	for _, p := range i.Problems {
		w.badge(p.Tone, p.Reason)
		w.put(" ")
	}
	if len(i.Problems) == 0 {
		w.badge(good, "OK")
	}
	w.put("</td>\n</tr>\n")
}

// some writes a cell with the first values, and the number of the others.
func (w *writer) some(values []string, more int) {
	w.put(`<td class="a">`)
	for _, value := range values {
		w.put("<span>%v</span> ", value)
	}
	if more > 0 {
		w.put(`<span class="note">and %v more</span>`, more)
	}
	w.put("</td>\n")
}
