"use strict";
(function () {
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

  function unfold() {
    // A part that is folded opens where a link leads to it.
    const at = location.hash && document.getElementById(location.hash.slice(1));
    const behind = at && at.querySelector(":scope > details.part");
    if (behind) behind.open = true;
  }

  window.addEventListener("hashchange", unfold);
  unfold();

  document.addEventListener("click", (event) => {
    const button = event.target.closest("th[aria-sort] > button");
    if (button) sort(button.parentNode);
  });
})();
