// Keys, pieces that come late, brushing of histograms. Every page works without it.
const all = (what, where = document) => [...where.querySelectorAll(what)];

// A piece of the page that is slower than the rest; the request ends when the reader leaves.
const leaving = new AbortController();
addEventListener("pagehide", () => leaving.abort());
for (const place of all("[data-late]")) {
  fetch(place.dataset.late, { signal: leaving.signal })
    .then((answer) => answer.text())
    .then((page) => {
      const late = new DOMParser().parseFromString(page, "text/html").querySelector("#late, .error");
      if (document.getElementById("late")) late?.removeAttribute("id");
      if (late) place.replaceChildren(document.adoptNode(late));
      all(".histogram", place).forEach(brush);
      stack(place);
      reachable();
    })
    .catch(() => {});
}
const reachable = () => all(".scroll").forEach((box) => { if (box.scrollWidth > box.clientWidth) box.tabIndex = 0; });
// On a phone the cells of a row stand below one another, each with the name of its column.
function stack(where) {
  for (const table of all(".scroll > table:not(.diff)", where)) {
    const names = all("thead th", table).map((name) => name.innerText.trim());
    all("tbody tr", table).forEach((row) => [...row.cells].forEach((cell, at) => {
      if (at && cell.innerText.trim() && names.length > 1) cell.dataset.name = names[at] ?? "";
    }));
    table.classList.add("stacked");
  }
}
stack(document);
reachable(); // what is scrolled can be scrolled by keys
for (const place of all("[data-reload]")) setTimeout(() => location.reload(), 1500);

// A button that opens what a phone has no room for.
for (const button of all("[data-toggle]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const isOpen = document.getElementById(button.dataset.toggle).classList.toggle("open");
    button.setAttribute("aria-expanded", isOpen);
  });
}

// Drag over a histogram: the documents between two values.
function brush(chart) {
  let from = null;
  const box = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const edges = chart.dataset.edges.split(",");
  const at = (event) => {
    const frame = chart.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - frame.left) / frame.width));
  };
  const draw = (a, b) => {
    const width = chart.viewBox.baseVal.width;
    box.setAttribute("x", Math.min(a, b) * width);
    box.setAttribute("width", Math.abs(b - a) * width);
    box.setAttribute("height", chart.viewBox.baseVal.height);
    box.setAttribute("class", "chosen");
    box.setAttribute("pointer-events", "none");
    chart.append(box);
  };
  chart.addEventListener("pointerdown", (event) => { from = at(event); chart.setPointerCapture(event.pointerId); event.preventDefault(); });
  chart.addEventListener("pointermove", (event) => { if (from !== null) draw(from, at(event)); });
  chart.addEventListener("pointerup", (event) => {
    const [a, b] = [from, at(event)].sort((x, y) => x - y);
    from = null;
    if (b - a < 0.01) {
      const link = document.elementsFromPoint(event.clientX, event.clientY).map((one) => one.closest("a")).find(Boolean);
      if (link) location.assign(link.getAttribute("href"));
      return;
    }
    const next = new URL(location.href);
    next.pathname = next.pathname.replace(/^(\/datasets\/[^/]+).*/, "$1/documents");
    next.searchParams.delete("after");
    const bins = edges.length - 1, first = Math.floor(a * bins), last = Math.ceil(b * bins);
    for (const [end, edge, free] of [["min", first, first === 0], ["max", last, last >= bins]]) {
      if (free) next.searchParams.delete(`${chart.dataset.name}.${end}`);
      else next.searchParams.set(`${chart.dataset.name}.${end}`, edges[edge]);
    }
    location.assign(next);
  });
}
all(".histogram").filter((chart) => !chart.closest("[data-still]")).forEach(brush);

// Draw a rectangle on a map: the documents in it.
for (const map of all("svg.map")) {
  let from = null;
  const box = document.createElementNS("http://www.w3.org/2000/svg", "rect"), size = map.viewBox.baseVal;
  const at = (event) => {
    const frame = map.getBoundingClientRect(), share = (v) => Math.min(1, Math.max(0, v));
    return [share((event.clientX - frame.left) / frame.width), share((event.clientY - frame.top) / frame.height)];
  };
  const corners = (event) => at(event).map((v, i) => [Math.min(v, from[i]), Math.max(v, from[i])]);
  map.addEventListener("dragstart", (event) => event.preventDefault());
  map.addEventListener("pointerdown", (event) => { from = at(event); event.preventDefault(); });
  map.addEventListener("pointermove", (event) => {
    if (from === null) return;
    const [[left, right], [top, low]] = corners(event);
    const placed = { x: left * size.width, width: (right - left) * size.width, y: top * size.height, height: (low - top) * size.height };
    for (const [name, value] of Object.entries({ ...placed, class: "chosen", "pointer-events": "none" })) box.setAttribute(name, value);
    map.append(box);
  });
  map.addEventListener("pointerup", (event) => {
    const [[left, right], [top, low]] = corners(event);
    from = null;
    if (right - left < 0.005 || low - top < 0.005) return;
    event.preventDefault();
    const [x0, x1, y0, y1] = map.dataset.bounds.split(",").map(Number), x = (v) => x0 + v * (x1 - x0), y = (v) => y1 - v * (y1 - y0);
    const next = new URL(map.dataset.list, location);
    next.searchParams.set("map", `${map.dataset.table}:${[x(left), x(right), y(low), y(top)].map((v) => v.toPrecision(6)).join(",")}`);
    location.assign(next);
  });
}

// A form that is followed while it changes: the pieces of the page with data-live are taken from its answer. While it
// moves these are sums; texts come once it rests.
const REST = 300;
for (const form of all("form[data-follow]")) {
  let asked = new AbortController(), resting;
  const follow = (live) => {
    asked.abort();
    asked = new AbortController();
    const next = new URL(form.action);
    new FormData(form).forEach((value, name) => next.searchParams.set(name, value));
    fetch(next, { signal: asked.signal, headers: { "x-live": live } })
      .then((answer) => answer.text())
      .then((page) => {
        const came = new DOMParser().parseFromString(page, "text/html");
        for (const piece of all("[data-live]", came)) document.getElementById(piece.id)?.replaceWith(document.adoptNode(piece));
        history.replaceState(null, "", next);
      })
      .catch(() => {});
  };
  form.addEventListener("input", (event) => {
    const { steps, of } = event.target.dataset;
    if (steps) form.elements[of].value = steps.split(" ")[event.target.value];
    for (const slider of all(`[data-of="${event.target.name}"]`, form)) slider.value = slider.dataset.steps.split(" ").filter((step) => step < +event.target.value).length;
    clearTimeout(resting);
    follow("moving");
    resting = setTimeout(follow, REST, "rest");
  });
  all("[data-steps]", form).forEach((slider) => (slider.hidden = false));
}

// One box ticks all of a page.
for (const box of all("[data-ticks]")) {
  box.hidden = false;
  box.addEventListener("change", () => all(`[name^="doc."][form="${box.dataset.ticks}"]`).forEach((one) => (one.checked = box.checked)));
}

// Keys. Rows are whatever has data-row.
let at = -1;
function move(step) {
  const rows = all("[data-row]");
  if (!rows.length) return;
  at = Math.min(rows.length - 1, Math.max(0, at + step));
  rows.forEach((row, number) => row.classList.toggle("at", number === at));
  rows[at].querySelector("a")?.focus({ preventScroll: true });
  rows[at].scrollIntoView({ block: "nearest" });
}
const page = (which) => document.querySelector(`[data-page="${which}"]`)?.click();
const keys = {
  j: () => move(1), k: () => move(-1), n: () => page("next"), p: () => page("previous") ?? page("first"),
  x: () => all("[data-row]")[at]?.querySelector("input")?.click(),
  g: () => location.assign("/"), "?": () => document.getElementById("help").showModal(),
  "/": () => { const fields = all('[data-key="/"]'); (fields.at(-1) ?? fields[0])?.focus(); },
};
let sent = false; // a key is meant for the page that is seen, so none counts while the next one comes
addEventListener("submit", (event) => (sent = !event.submitter?.hasAttribute("data-stays")));
addEventListener("pageshow", () => (sent = false));
addEventListener("keydown", (event) => {
  if (sent) return;
  if (event.key === "Escape" && event.target.matches("input")) event.target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog[open]")) return;
  const named = document.querySelector(`[data-hotkey="${CSS.escape(event.key)}"]`);
  const act = named ? () => named.click() : keys[event.key];
  if (act) { event.preventDefault(); act(); }
});
