// Replaces the live parts of the page with those of a newer one. What the reader does is left alone: the focus, selected
// text, open details, scrolled tables and the search form.
(() => {
  "use strict";
  const every = 5000, pause = document.getElementById("pause"), lost = document.getElementById("lost");
  let paused = false, busy = false, timer = 0;

  // same finds the element of a part that has the focus now: the link with the same address and text, or the same table.
  const same = (part, was) => [...part.querySelectorAll("a, summary, [tabindex]")].find((e) =>
    e.tagName === was.tagName && e.getAttribute("href") === was.getAttribute("href") &&
    (e.getAttribute("aria-label") || e.textContent) === (was.getAttribute("aria-label") || was.textContent));

  const replace = (old, fresh) => {
    const focus = old.contains(document.activeElement) ? document.activeElement : null;
    const open = [...old.querySelectorAll("details[open]")].map((e) => e.id);
    const scrolled = [...old.querySelectorAll(".wide")].map((e) => e.scrollLeft);
    old.replaceChildren(...fresh.childNodes);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    old.querySelectorAll(".wide").forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
    if (focus) same(old, focus)?.focus({ preventScroll: true });
  };

  const refresh = async () => {
    if (paused || busy || document.hidden || !document.getSelection().isCollapsed) return;
    busy = true;
    try {
      const response = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10000) });
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      if (paused) return; // the reader pressed the button meanwhile
      if (!response.ok) throw new Error(fresh.querySelector(".lead")?.textContent || "status " + response.status);
      for (const old of document.querySelectorAll(".live")) {
        const part = fresh.getElementById(old.id);
        if (part && part.innerHTML !== old.innerHTML) replace(old, part);
      }
      lost.textContent = "";
    } catch (error) {
      lost.textContent = "Not up to date: " + error.message;
    } finally {
      busy = false;
    }
  };

  const next = async () => {
    clearTimeout(timer);
    await refresh();
    clearTimeout(timer);
    timer = setTimeout(next, every);
  };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Resume" : "Pause";
    next();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) next(); });
  timer = setTimeout(next, every);
})();
