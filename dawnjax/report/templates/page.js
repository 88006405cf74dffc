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

  const ranked = heads.map((head, column) => head.dataset.rank ? column : -1).filter(c => c >= 0);
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
