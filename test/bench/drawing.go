package main

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// panel is a chart of the drawing: figures by cluster size.
type panel struct {
	title, unit string
	figures     []string
}

// panels returns all charts.
func panels() []panel {
	return []panel{
		{"Latency", "ms", []string{"endpoint change, p50", "new service, p50", "cold start", "restart with one change"}},
		{"CPU for each change", "ms", []string{"endpoint change, CPU each", "new service, CPU each"}},
		{"Memory", "MB", []string{"peak memory, cold start", "memory after cold start"}},
	}
}

// The dimensions of the drawing, in pixels.
const (
	panelWidth, panelHeight = 360, 300
	lineHeight              = 14 // of the legend
	left, top               = 60, 40
	plotWidth, plotHeight   = panelWidth - left - 20, panelHeight - top - 40
)

// line is one figure of one program in one mode.
type line struct {
	name   string
	values []float64 // one for each size; NaN is none
}

// style returns the attributes of the n-th line of a panel. They are repeated after 24 lines, those of three programs.
func style(n int) (colour, dashes string) {
	colours := []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f"}
	return colours[n%len(colours)], []string{"none", "6 3", "2 2"}[n/len(colours)%3]
}

// draw makes an SVG of latency, CPU and memory by cluster size. The vertical axis is logarithmic.
func (r *Report) draw(to io.Writer) error {
	sizes := r.sizes()
	var b strings.Builder
	all := panels()
	legend := 0
	for _, p := range all {
		legend = max(legend, len(r.lines(p, sizes)))
	}
	width, height := panelWidth*len(all), panelHeight+(legend+2)*lineHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="10" y="%d" fill="#555">%s</text>`+"\n", height-8, html.EscapeString(r.Machine.String()))
	for i, p := range all {
		fmt.Fprintf(&b, `<g transform="translate(%d,0)">`+"\n", i*panelWidth)
		p.draw(&b, sizes, r.lines(p, sizes))
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(to, b.String())
	return err
}

// sizes returns the sizes of the runs, ordered by the number of their objects.
func (r *Report) sizes() []string {
	weight := map[string]int{}
	for _, run := range r.Runs {
		weight[run.Size] = run.Services + run.Endpoints
	}
	all := r.order(func(r *Run) string { return r.Size })
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(weight[a], weight[b]) })
	return all
}

// lines returns the lines of a panel.
func (r *Report) lines(p panel, sizes []string) (all []line) {
	programs := r.order(func(r *Run) string { return r.Program })
	for i, program := range programs {
		for _, mode := range r.order(func(r *Run) string { return r.Mode }) {
			for _, figure := range p.figures {
				l := line{name: fmt.Sprintf("%s, %s: %s", label(i), mode, figure)}
				for _, size := range sizes {
					l.values = append(l.values, r.find(program, mode, size, figure))
				}
				if slices.ContainsFunc(l.values, func(v float64) bool { return !math.IsNaN(v) }) {
					all = append(all, l)
				}
			}
		}
	}
	return all
}

// find returns one figure; NaN if it was not measured, or is too small for a logarithmic axis.
func (r *Report) find(program, mode, size, figure string) float64 {
	for _, run := range r.Runs {
		if run.Program == program && run.Mode == mode && run.Size == size {
			if v, ok := run.value(figure); ok && v > 0 {
				return v
			}
		}
	}
	return math.NaN()
}

func (p panel) draw(b *strings.Builder, sizes []string, lines []line) {
	low, high := 0, 1 // powers of ten
	first := true
	for _, l := range lines {
		for _, v := range l.values {
			if math.IsNaN(v) {
				continue
			}
			from, to := int(math.Floor(math.Log10(v))), int(math.Ceil(math.Log10(v)))
			if first {
				low, high, first = from, to, false
			}
			low, high = min(low, from), max(high, to, low+1)
		}
	}
	x := func(i int) float64 { return left + plotWidth*(float64(i)+0.5)/float64(max(1, len(sizes))) }
	y := func(v float64) float64 {
		return top + plotHeight*(1-(math.Log10(v)-float64(low))/float64(high-low))
	}
	fmt.Fprintf(b, `<text x="%d" y="24" font-size="14" font-weight="bold">%s (%s)</text>`+"\n", left, html.EscapeString(p.title), p.unit)
	for power := low; power <= high; power++ {
		at := y(math.Pow10(power))
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n",
			left, left+plotWidth, at, at, left-6, at+4, math.Pow10(power))
	}
	for i, size := range sizes {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(i), top+plotHeight+18, html.EscapeString(size))
	}
	for n, l := range lines {
		colour, dashes := style(n)
		var points []string
		for i, v := range l.values {
			if math.IsNaN(v) {
				continue
			}
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(i), y(v)))
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s %s: %s %s</title></circle>`+"\n",
				x(i), y(v), colour, html.EscapeString(l.name), html.EscapeString(sizes[i]), number(v, true), p.unit)
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-dasharray="%s"/>`+"\n", strings.Join(points, " "), colour, dashes)
		row := panelHeight + n*lineHeight
		fmt.Fprintf(b, `<path d="M%d,%dh25" stroke="%s" stroke-dasharray="%s"/>`+"\n", left-30, row-4, colour, dashes)
		fmt.Fprintf(b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", left, row, colour, html.EscapeString(l.name))
	}
}
