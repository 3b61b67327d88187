package browser

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

var update = flag.Bool("update", false, "rewrite the screenshots of docs/images")

const (
	images = "../../docs/images"
	// patience is how long a test waits for a page.
	patience = 30 * time.Second
	// services is the size of the cluster.
	services = 10_000
	// maxBytes bounds a page.
	maxBytes = 200_000
)

// chromium starts a browser for all tests of a test.
func chromium(t *testing.T) context.Context {
	t.Helper()
	options := []chromedp.ExecAllocatorOption{
		chromedp.NoFirstRun, chromedp.NoSandbox, chromedp.Headless, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("hide-scrollbars", true), chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(patience),
		chromedp.CombinedOutput(testWriter{t}),
	}
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(allocated)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		message := fmt.Sprintf("start Chromium (make installs it as root on Debian: build/need.sh chromium): %v", err)
		if os.Getenv("CI") != "" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	return ctx
}

// testWriter discards the browser's own output, which is about the machine.
type testWriter struct{ *testing.T }

func (testWriter) Write(p []byte) (int, error) { return len(p), nil }

// tab is a tab of the browser. It fails the test if a page breaks a rule of its Content-Security-Policy, throws an
// exception, asks a question, or loads something from elsewhere.
type tab struct {
	*testing.T
	ctx context.Context
	url string

	mu       sync.Mutex
	requests []string
}

// open opens a tab for a scene.
func open(browser context.Context, t *testing.T, s *scene) *tab {
	t.Helper()
	server := httptest.NewServer(s.page)
	t.Cleanup(server.Close)
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*patience)
	t.Cleanup(cancel)
	tab := &tab{T: t, ctx: ctx, url: server.URL}
	if err := chromedp.Listen(ctx, tab.listen); err != nil {
		t.Fatal(err)
	}
	call(tab, log.Enable, cdp.Empty{})
	call(tab, network.Enable, network.EnableParams{})
	return tab
}

func (t *tab) listen(event any) {
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if !strings.Contains(e.Entry.Text, "404") { // the test asks for a Service that does not exist
			t.Errorf("the browser logs: %s %s", e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		t.Errorf("exception: %v", e.ExceptionDetails)
	case *page.EventJavascriptDialogOpening:
		t.Errorf("dialog: %s", e.Message)
	case *network.EventRequestWillBeSent:
		t.mu.Lock()
		t.requests = append(t.requests, e.Request.URL)
		t.mu.Unlock()
		if !strings.HasPrefix(e.Request.URL, t.url+"/") && !strings.HasPrefix(e.Request.URL, "data:") {
			t.Errorf("the page loads %s", e.Request.URL)
		}
	}
}

func (t *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(t.ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// call runs a command of the browser's protocol.
func call[P, R any](t *tab, command cdp.Command[P, R], params P) {
	t.Helper()
	if _, err := chromedp.Call(t.ctx, command, params); err != nil {
		t.Fatal(err)
	}
}

// do runs a script for its effect.
func (t *tab) do(script string) {
	t.Helper()
	value[bool](t, "(() => {"+script+"; return true})()")
}

// visit loads a page.
func (t *tab) visit(path string) {
	t.Helper()
	t.run(chromedp.Navigate(t.url + path))
}

// value evaluates an expression.
func value[T any](t *tab, expression string) T {
	t.Helper()
	v, err := chromedp.Run(t.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// becomes waits until an expression is true.
func (t *tab) becomes(expression string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	for {
		// An error is one of a document that is being replaced.
		if is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression)); is && err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("timed out waiting for %s", expression)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// refreshed makes the page refresh itself, as it does every five seconds, until an expression is true.
func (t *tab) refreshed(expression string) {
	t.Helper()
	t.becomes(`document.dispatchEvent(new Event("visibilitychange")), ` + expression)
}

const rows = `document.querySelectorAll("table.services tbody tr").length`

// TestStatusPage uses the page of 10,000 Services as a person does.
func TestStatusPage(t *testing.T) {
	all := make([]*cluster.Service, services)
	for n := range all {
		all[n] = serviceOf(n)
	}
	browser, s := chromium(t), newScene(all...)
	t.Run("overview", func(t *testing.T) { overview(open(browser, t, s)) })
	t.Run("search and sort", func(t *testing.T) { searchAndSort(open(browser, t, s), true) })
	t.Run("without JavaScript", func(t *testing.T) {
		tab := open(browser, t, s)
		call(tab, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		searchAndSort(tab, false)
	})
	t.Run("refresh", func(t *testing.T) { refresh(open(browser, t, s), s) })
	t.Run("narrow", func(t *testing.T) { narrow(open(browser, t, s)) })
	t.Run("screenshots", func(t *testing.T) { screenshots(open(browser, t, s)) })
}

// overview measures when the page can be used, and counts what it shows.
func overview(t *tab) {
	t.visit("/")
	type timing struct{ Interactive, Complete, Bytes float64 }
	for _, visit := range []string{"first", "second"} {
		at := value[timing](t, `(({domInteractive, loadEventEnd, decodedBodySize}) => ({Interactive: domInteractive, Complete: loadEventEnd, Bytes: decodedBodySize}))(performance.getEntriesByType("navigation")[0])`)
		t.Logf("%d Services, %s visit: %.0f bytes, usable after %.0f ms, complete after %.0f ms", services, visit, at.Bytes, at.Interactive, at.Complete)
		if at.Bytes == 0 || at.Bytes > maxBytes {
			t.Errorf("the page has %.0f bytes, more than %d", at.Bytes, maxBytes)
		}
		if got := value[int](t, rows); got != 100 {
			t.Errorf("%d rows, want 100", got)
		}
		t.run(chromedp.Reload())
	}
	for expression, want := range map[string]string{
		`document.querySelector(".tiles .value").textContent`:    "10,000",
		`document.querySelector(".state").textContent`:           "Healthy",
		`document.querySelector("#live-list nav p").textContent`: "1 – 100 of 10,000",
		`document.title`: "worker-3 – kube-proxy",
		`String(document.querySelectorAll("figure svg").length)`:                   "2",
		`getComputedStyle(document.querySelector(".tiles")).display`:               "grid", // the style is applied
		`document.querySelector(".finding .badge").textContent`:                    "NoEndpoints",
		`String(document.documentElement.scrollWidth <= window.innerWidth)`:        "true",
		`String(document.querySelectorAll("figure rect.failed").length > 0)`:       "true",
		`String(document.querySelectorAll("figure rect").length > 80)`:             "true",
		`document.querySelector("th[aria-sort=ascending]").textContent`:            "Service",
		`document.querySelector("#live-findings table td:last-child").textContent`: "nft",
	} {
		if got := value[string](t, expression); got != want {
			t.Errorf("%s is %q, want %q", expression, got, want)
		}
	}
}

// searchAndSort goes from the list to a Service with forms and links only.
func searchAndSort(t *tab, scripts bool) {
	t.visit("/")
	t.run(chromedp.SendKeys("input[type=search]", "shop web"), chromedp.Submit("form"))
	t.becomes(`location.search.includes("q=shop+web") && document.readyState === "complete"`)
	found := value[int](t, rows)
	if found < 10 || found >= 100 {
		t.Errorf("%d Services match", found)
	}
	if got := value[string](t, `document.querySelector("input[type=search]").value`); got != "shop web" {
		t.Errorf("the form has %q", got)
	}
	t.run(chromedp.Click(`//th/a[text()="Ready"]`))
	t.becomes(`document.querySelector("th[aria-sort=descending]")?.textContent === "Ready" && document.readyState === "complete"`)
	if got := value[int](t, rows); got != found {
		t.Errorf("after sorting there are %d Services, before %d", got, found)
	}
	t.run(chromedp.Click(`//table//a[text()="web"]`))
	t.becomes(`location.pathname === "/services/shop/web" && document.readyState === "complete"`)
	// Readings pause for nine times as long as one took: on a busy machine the first look may have no counters.
	for began := time.Now(); value[int](t, `document.querySelectorAll(".spread rect.share").length`) < 4; t.run(chromedp.Reload()) {
		if time.Since(began) > patience {
			t.Fatal("the connections of endpoints have no bars")
		}
		time.Sleep(time.Second)
	}
	if hidden := value[bool](t, `document.getElementById("pause").hidden`); hidden == scripts {
		t.Errorf("the button to pause is hidden: %t", hidden)
	}
	t.visit("/?page=100")
	if last := value[string](t, `document.querySelector("#live-list nav p").textContent`); last != "9,901 – 10,000 of 10,000" {
		t.Errorf("the last page is %q", last)
	}
	t.visit("/services/shop/wbe")
	if text := value[string](t, `document.querySelector(".lead").textContent`); !strings.Contains(text, "did you mean shop/web?") {
		t.Errorf("a missing Service: %s", text)
	}
}

// refresh makes the page replace its parts, as it does every five seconds, while it is used.
func refresh(t *tab, s *scene) {
	t.visit("/?sort=-rate")
	t.do(`
		window.marker = 1;
		document.querySelector("#minutes").open = true;
		document.querySelector("table.services").dataset.old = 1; // makes this part differ from a newer one
		window.scrollTo(0, 700);
		document.querySelector("input[type=search]").value = "half a wo";
		document.querySelector("th[aria-sort=descending] a").focus({preventScroll: true})`)
	top := value[float64](t, `window.scrollY`)
	t.refreshed(`!document.querySelector("table.services").dataset.old`)
	for expression, want := range map[string]bool{
		`window.marker === 1`: true, `document.querySelector("#minutes").open`: true,
		`document.querySelector("input[type=search]").value === "half a wo"`: true,
		`document.activeElement.textContent === "Per second"`:                true,
		fmt.Sprintf(`window.scrollY === %v`, top):                            true,
		`document.getElementById("lost").textContent`:                        false,
	} {
		if got := value[bool](t, "Boolean("+expression+")"); got != want {
			t.Errorf("after a refresh, %s is %t", expression, got)
		}
	}

	t.refreshed(`document.querySelector("table.services tbody td:nth-child(7)").textContent !== "–"`) // there are rates

	t.run(chromedp.Click("#pause"))
	t.becomes(`document.getElementById("pause").textContent === "Resume"`)
	was := value[string](t, `document.querySelector("time").textContent`)
	time.Sleep(1100 * time.Millisecond)
	t.do(`document.dispatchEvent(new Event("visibilitychange"))`)
	if now := value[string](t, `document.querySelector("time").textContent`); now != was {
		t.Errorf("while paused the page went from %s to %s", was, now)
	}
	t.run(chromedp.Click("#pause"))
	t.becomes(fmt.Sprintf(`document.querySelector("time").textContent !== %q`, was))

	failure := errors.New("no rights")
	s.kernel.err.Store(&failure)
	defer s.kernel.err.Store(nil)
	t.refreshed(`document.querySelector("#live-list > .note").textContent.includes("no rights")`)
}

// narrow looks at the pages on a telephone: nothing but tables is wider than the screen.
func narrow(t *tab) {
	t.run(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	for _, path := range []string{"/", "/services/shop/web"} {
		t.visit(path)
		if width := value[int](t, `document.documentElement.scrollWidth`); width > 360 {
			t.Errorf("%s is %d wide", path, width)
		}
	}
}

// screenshots writes those of the documentation.
func screenshots(t *tab) {
	if !*update {
		t.Skip("without -update")
	}
	if err := os.MkdirAll(images, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, shot := range []struct {
		name, path, scheme string
		width, height      int64
	}{
		{"status-page", "/?sort=-rate", "light", 1200, 1560},
		{"status-page-dark", "/?sort=-rate&show=problems", "dark", 1200, 900},
		{"status-page-service", "/services/shop/web", "light", 1200, 1150},
	} {
		t.run(chromedp.EmulateViewport(shot.width, shot.height))
		call(t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: shot.scheme}}})
		t.visit(shot.path)
		time.Sleep(3 * time.Second)
		t.visit(shot.path) // with rates
		png, err := chromedp.Run(t.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(images, shot.name+".png"), png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHostileNames shows Services whose names are HTML, scripts and quotes: the page shows them as they are, and nothing of
// them runs.
func TestHostileNames(t *testing.T) {
	all := hostile()
	tab := open(chromium(t), t, newScene(all...))
	tab.visit("/")
	names := value[[]string](tab, `[...document.querySelectorAll("table.services tbody th a")].map((e) => e.textContent)`)
	links := value[[]string](tab, `[...document.querySelectorAll("table.services tbody th a")].map((e) => e.getAttribute("href"))`)
	shown := map[string]bool{}
	for _, name := range names {
		shown[name] = true
	}
	for _, s := range all {
		if !shown[s.Name.Name] {
			t.Errorf("%q is not shown as it is", s.Name.Name)
		}
	}
	for _, path := range append(links, `/?q="><script>hacked=1</script>&show='onfocus='hacked=1`) {
		tab.visit(path)
		if strange := value[int](tab, `document.querySelectorAll("img, iframe, script:not(body > script:last-of-type), [onerror], [onmouseover], [onfocus]").length`); strange != 0 {
			t.Errorf("%s: %d unexpected elements", path, strange)
		}
		if value[bool](tab, `typeof hacked !== "undefined"`) {
			t.Fatalf("%s: a script of a name ran", path)
		}
		if width := value[int](tab, `document.documentElement.scrollWidth - window.innerWidth`); width > 0 {
			t.Errorf("%s is %d too wide", path, width)
		}
	}
	for i, path := range links {
		tab.visit(path)
		if heading := value[string](tab, `document.querySelector("h1").firstChild.textContent.trim()`); heading != strings.TrimSpace(names[i]) {
			t.Errorf("the page of %q is that of %q", names[i], heading)
		}
	}
}
