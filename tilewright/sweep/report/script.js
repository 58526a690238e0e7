"use strict";
// What a spot of a plot tells, beside it, by mouse, touch or keyboard.
const about = document.getElementById("about");
function show(spot) {
  about.textContent = spot.dataset.about;
  about.hidden = false;
  const box = spot.getBoundingClientRect(), wide = about.offsetWidth, page = document.documentElement.clientWidth;
  const left = Math.max(4, Math.min(box.right + 8, page - wide - 4));
  const over = box.right + 8 > page - wide - 4;  // no room beside it: above it
  about.style.left = `${left + window.scrollX}px`;
  about.style.top = `${window.scrollY + (over ? Math.max(4, box.top - about.offsetHeight - 8) : box.top)}px`;
}
for (const spot of document.querySelectorAll(".spots circle")) {
  for (const event of ["mouseenter", "focus", "click"]) spot.addEventListener(event, () => show(spot));
  for (const event of ["mouseleave", "blur"]) spot.addEventListener(event, () => { about.hidden = true; });
}
// Tables sort by the heading that is clicked; again, the other way round.
for (const head of document.querySelectorAll(".sortable th")) {
  head.tabIndex = 0;
  const sort = () => {
    const column = head.cellIndex, up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = head.closest("table").tBodies[0];
    const value = row => Number(row.cells[column].dataset.value);
    const rows = [...body.rows].sort((a, b) => (up ? 1 : -1) * (value(a) - value(b)));
    body.append(...rows);
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
}
