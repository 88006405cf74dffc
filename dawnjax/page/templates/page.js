"use strict";
// Leaderboards sort by any column and filter by words and by day. Without this they are complete.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const original = [...body.rows];
  const collator = new Intl.Collator("en", {numeric: true, sensitivity: "base"});
  const value = (row, column, number) => {
    const cell = row.cells[column];
    if (number) return cell.dataset.sort === undefined ? null : Number(cell.dataset.sort);
    return cell.classList.contains("x") ? null : cell.textContent;
  };

  const sortBy = (head, column) => {
    const number = head.classList.contains("n");
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const places = new Map(original.map((row, place) => [row, place]));
    const sorted = original.slice().sort((one, other) => {
      const a = value(one, column, number), b = value(other, column, number);
      if (a === null || b === null) return (a === null) - (b === null) || places.get(one) - places.get(other);
      const order = number ? a - b : collator.compare(a, b);
      return (ascending ? order : -order) || places.get(one) - places.get(other);
    });
    body.append(...sorted);
  };

  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    // A browser does not repeat a button on the table's further printed pages, but does a text.
    const printed = document.createElement("span");
    printed.className = "printed";
    printed.setAttribute("aria-hidden", "true");
    printed.append(...[...head.childNodes].map(node => node.cloneNode(true)));
    button.append(...head.childNodes);
    button.addEventListener("click", () => sortBy(head, column));
    head.append(button, printed);
  });
  heads[0].setAttribute("aria-sort", "ascending");

  const controls = document.createElement("div");
  controls.className = "controls";
  const field = (type, text) => {
    const label = document.createElement("label");
    const input = document.createElement("input");
    input.type = type;
    label.append(text, input);
    controls.append(label);
    input.addEventListener("input", update);
    return input;
  };
  const words = field("search", "Filter");
  const until = original.some(row => row.dataset.date) ? field("date", "Entered up to") : null;
  const count = document.createElement("output");
  count.setAttribute("aria-live", "polite");
  controls.append(count);
  table.closest(".table").prepend(controls);
  const caption = table.caption.textContent;
  words.setAttribute("aria-label", "Filter " + caption);
  if (until) until.setAttribute("aria-label", "Entered up to, " + caption);

  const ranked = heads.map((head, column) => "rank" in head.dataset ? column : -1).filter(c => c >= 0);
  const texts = new Map(original.map(row => [row, row.textContent.toLowerCase()]));
  for (const row of original) {
    for (const column of ranked) row.cells[column].dataset.rank = row.cells[column].dataset.sort || "";
  }

  // Ranks are among the entries of that day; words only hide rows.
  function update() {
    const day = until ? until.value : "";
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const inTime = row => !day || (row.dataset.date && row.dataset.date <= day);
    for (const column of ranked) {
      const rows = original.filter(row => inTime(row) && row.cells[column].dataset.rank)
        .sort((a, b) => a.cells[column].dataset.rank - b.cells[column].dataset.rank);
      rows.forEach((row, place) => {
        const cell = row.cells[column], places = cell.querySelector("small");
        cell.firstChild.nodeValue = String(place + 1);
        cell.dataset.sort = String(place + 1);
        if (places) places.hidden = Boolean(day);  // they are among all entries
      });
    }
    let shown = 0;
    for (const row of original) {
      row.hidden = !inTime(row) || !wanted.every(word => texts.get(row).includes(word));
      shown += !row.hidden;
    }
    const all = shown === original.length;
    count.textContent = all ? "" : shown + " of " + original.length + " shown";
  }
}

// Charts say the value under the pointer, under a finger or at the arrow keys. Without this, the
// title of each mark does.
const tip = document.createElement("div");
tip.className = "tip";
tip.setAttribute("role", "status");
document.body.append(tip);

for (const chart of document.querySelectorAll("figure svg")) {
  const marks = [...chart.querySelectorAll("title")].map(title => {
    const shape = title.parentNode, text = title.textContent;
    title.remove();
    return {shape, text, series: text.split("\n")[0]};
  });
  if (!marks.length) continue;
  let at = -1, boxes = null;

  const hide = () => {
    if (at >= 0) marks[at].shape.classList.remove("at");
    at = -1;
    tip.textContent = "";
  };
  const show = place => {
    if (place === at && tip.textContent) return;
    hide();
    at = place;
    marks[at].shape.classList.add("at");
    tip.textContent = marks[at].text;
    const mark = marks[at].shape.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const wide = document.documentElement.clientWidth;
    const left = Math.max(8, Math.min(mark.x + mark.width / 2 - own.width / 2, wide - own.width - 8));
    const above = mark.y - own.height - 10;
    tip.style.left = left + scrollX + "px";
    tip.style.top = (above > 0 ? above : mark.bottom + 10) + scrollY + "px";
  };

  // The nearest mark to a place on the screen within some pixels; the smallest of several there.
  const nearest = (event, reach) => {
    boxes ??= marks.map(({shape}) => shape.getBBox());
    const frame = chart.getBoundingClientRect();
    const scale = chart.viewBox.baseVal.width / frame.width;
    const x = (event.clientX - frame.x) * scale, y = (event.clientY - frame.y) * scale;
    let found = -1, least = [reach * scale, Infinity];
    boxes.forEach((box, place) => {
      const dx = Math.max(box.x - x, 0, x - box.x - box.width);
      const dy = Math.max(box.y - y, 0, y - box.y - box.height);
      const far = Math.hypot(dx, dy), size = box.width * box.height;
      if (far < least[0] || far === least[0] && size < least[1]) [found, least] = [place, [far, size]];
    });
    return found;
  };
  const point = event => {
    const found = nearest(event, event.pointerType === "touch" ? 36 : 24);
    if (found < 0) hide(); else show(found);
  };
  chart.addEventListener("pointerdown", point);
  chart.addEventListener("pointermove", point);
  chart.addEventListener("pointerleave", event => { if (event.pointerType !== "touch") hide(); });

  // Left and right go from mark to mark, up and down to the nearest mark of the next series.
  const series = [...new Set(marks.map(mark => mark.series))];
  const middle = place => {
    const box = marks[place].shape.getBBox();
    return box.x + box.width / 2;
  };
  const ofSeries = step => {
    const wanted = series[series.indexOf(marks[at].series) + step];
    if (wanted === undefined) return at;
    const x = middle(at);
    const far = place => Math.abs(middle(place) - x);
    return marks.map((_, place) => place).filter(place => marks[place].series === wanted)
      .reduce((one, other) => far(other) < far(one) ? other : one);
  };
  const last = marks.length - 1;
  const keys = {
    ArrowRight: () => Math.min(at + 1, last), ArrowLeft: () => Math.max(at - 1, 0),
    ArrowDown: () => ofSeries(1), ArrowUp: () => ofSeries(-1), Home: () => 0, End: () => last,
  };
  chart.tabIndex = 0;
  chart.setAttribute("role", "application");
  chart.setAttribute("aria-roledescription", "chart");
  chart.setAttribute("aria-label", chart.getAttribute("aria-label") + "; arrow keys tell its values");
  chart.addEventListener("focus", () => { if (at < 0 && chart.matches(":focus-visible")) show(0); });
  chart.addEventListener("blur", hide);
  chart.addEventListener("keydown", event => {
    if (event.key === "Escape") hide();
    if (!Object.hasOwn(keys, event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    show(at < 0 ? 0 : keys[event.key]());
  });
}

// A page is printed whole, and a wide one begins with its contents open.
const folded = () => [...document.querySelectorAll("details:not([open])")];
let opened = [];
addEventListener("beforeprint", () => { opened = folded(); for (const part of opened) part.open = true; });
addEventListener("afterprint", () => { for (const part of opened) part.open = false; });
if (matchMedia("(min-width: 60rem)").matches) document.querySelector(".contents").open = true;
