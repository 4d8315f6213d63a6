"use strict";
(function () {
  const drawings = JSON.parse(document.getElementById("drawings").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const paper = window.matchMedia("print");
  const settings = {
    responsive: true,
    displaylogo: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "pan2d"],
    showTips: false,
  };

  // Only where a colour is meant does a name like --series-1 stand for one: texts pass untouched.
  const COLOURS = new Set(["color", "gridcolor", "linecolor", "zerolinecolor", "tickcolor", "bgcolor", "bordercolor"]);

  function coloured(value, style) {
    return typeof value === "string" && value.startsWith("--") ? style.getPropertyValue(value).trim() : value;
  }

  function dressed(value, style) {
    if (Array.isArray(value)) return value.map((item) => dressed(item, style));
    if (value === null || typeof value !== "object") return value;
    const made = {};
    for (const [name, item] of Object.entries(value)) {
      if (COLOURS.has(name)) made[name] = coloured(item, style);
      else if (name === "colorscale") made[name] = item.map(([at, colour]) => [at, coloured(colour, style)]);
      else made[name] = dressed(item, style);
    }
    return made;
  }

  function draw() {
    const style = getComputedStyle(document.documentElement);
    for (const [name, drawing] of Object.entries(drawings)) {
      const place = document.getElementById(name);
      if (place.firstElementChild && place.firstElementChild.classList.contains("waiting")) place.textContent = "";
      const made = dressed(drawing, style);
      Plotly.react(place, made.data, made.layout, settings);
    }
  }

  if (typeof Plotly !== "undefined") {
    draw();
    dark.addEventListener("change", draw);
    paper.addEventListener("change", () => {
      draw();
      for (const name of Object.keys(drawings)) Plotly.Plots.resize(document.getElementById(name));
    });
  }

  function compare(a, b, numbers, sign) {
    // What is missing stays last, whichever way the rest goes.
    if (a === "" || b === "") return (a === "") - (b === "");
    const order = numbers ? Number(a) - Number(b) : a.localeCompare(b, undefined, { numeric: true });
    return sign * order;
  }

  function sort(head) {
    const body = head.closest("table").tBodies[0];
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const keys = new Map(Array.from(body.rows, (row) => [row, row.cells[head.cellIndex].dataset.sort]));
    const numbers = Array.from(keys.values()).every((key) => key === "" || !Number.isNaN(Number(key)));
    for (const other of head.parentNode.cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    body.append(...Array.from(keys.keys()).sort((a, b) => compare(keys.get(a), keys.get(b), numbers, sign)));
    document.getElementById("status").textContent =
      `Sorted by ${head.textContent.trim()}, ${head.getAttribute("aria-sort")}.`;
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("th[aria-sort] > button");
    if (button) sort(button.parentNode);
  });
})();
