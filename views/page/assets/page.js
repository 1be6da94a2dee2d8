"use strict";
// Puts new texts into the cells of the page as the server sends them. Without it the page is
// the same, as of when it was loaded.
(() => {
  const told = document.getElementById("live");
  const cells = new Map();
  for (const each of document.querySelectorAll("[data-live]")) {
    cells.set(each.dataset.live, [...(cells.get(each.dataset.live) ?? []), each]);
  }
  const say = (text) => {
    if (told.textContent !== text) told.textContent = text;
  };
  const stream = new EventSource("/page/live");
  stream.addEventListener("cells", (event) => {
    for (const [name, cell] of Object.entries(JSON.parse(event.data))) {
      for (const each of cells.get(name) ?? []) {
        if (each.textContent !== cell.text) each.textContent = cell.text;
        if (cell.state) each.dataset.state = cell.state;
      }
    }
    document.body.dataset.live = "yes";
    say("");
  });
  stream.addEventListener("views", () => location.reload());
  stream.onerror = () => {
    document.body.dataset.live = "no";
    say(" (no connection to the server: the numbers stand still)");
  };
})();
