// Points to explore: colour, filters, parallel coordinates, and two points side by side. `explore.py` makes the data.
const sweep = JSON.parse(document.getElementById("data").textContent);
const byNumber = new Map(sweep.points.map(p => [p.number, p]));
const columns = [
  ...sweep.axes.map((a, n) => ({key: a.name, label: a.name, axis: true, of: p => p.axes[n]})),
  ...sweep.quantities.map((q, n) => ({key: q.key, label: q.label, main: q.main, of: p => p.values[n]})),
];
const column = key => columns.find(c => c.key === key);
const kinds = ["front", "beaten", "breaks a constraint"];
const kindOf = p => p.state !== "done" ? 2 : p.front ? 0 : 1;
const kindColours = ["#1f5fa8", "#8fa8c4", "#c9c9c9"], pairColours = ["#c4451c", "#7b4fa3"];
const hidden = new Set();  // "axis value" of the values filtered out
const pair = [sweep.chosen[0], sweep.chosen[1] ?? sweep.chosen[0]];
let turn = 1;  // which of the two the next click replaces

const at = id => document.getElementById(id);
function make(parent, name, attributes = {}, text) {
  const svg = name === "svg" || parent?.namespaceURI.endsWith("svg");
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent?.append(made);
  return made;
}
function short(value) {
  for (const [factor, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= factor * 0.9995) return `${Number((value / factor).toPrecision(3))}${letter}`;
  return String(Number(value.toPrecision(3)));
}
const full = value => Math.abs(value) >= 100 || Number.isInteger(value)
  ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
const ratio = (a, b) => a && b ? (b / a).toFixed(2) : "";

// A scale of values: logarithmic where they span much. Whole places 0..1, and ticks.
function scaleOf(values) {
  const low = Math.min(...values), high = Math.max(...values), log = low > 0 && high / low > 8;
  const f = log ? Math.log : v => v, a = f(low), b = f(high), ticks = [];
  const place = v => b > a ? (f(v) - a) / (b - a) : 0.5;
  if (log) {
    const sparse = high / low > 1e4 ? [1] : [1, 2, 5];
    for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++)
      for (const m of sparse) ticks.push(m * 10 ** e);
  } else if (b > a) {
    const raw = (b - a) / 5, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find(m => m * power >= raw) * power;
    for (let n = Math.ceil(a / step); n * step <= b; n++) ticks.push(n * step);
  } else ticks.push(low);
  return {place, ticks: ticks.filter(t => t >= low && t <= high)};
}
const ramp = ["#440154", "#3b528b", "#21918c", "#5ec962", "#d8c71a"].map(c => [1, 3, 5].map(n => parseInt(c.slice(n, n + 2), 16)));
function shade(t) {
  const x = Math.min(Math.max(t, 0), 1) * (ramp.length - 1), n = Math.min(Math.floor(x), ramp.length - 2);
  return `rgb(${ramp[n].map((v, i) => Math.round(v + (ramp[n + 1][i] - v) * (x - n)))})`;
}
// Colours of points by the chosen column, and the entries of its legend.
function painter() {
  const chosen = column(at("colour").value);
  if (!chosen) return {paint: p => kindColours[kindOf(p)], legend: kinds.map((k, n) => [k, kindColours[n]])};
  const values = sweep.points.map(chosen.of), distinct = [...new Set(values)].sort((a, b) => a - b);
  if (distinct.length <= 10) {
    const place = v => distinct.length > 1 ? distinct.indexOf(v) / (distinct.length - 1) : 0;
    return {paint: p => shade(place(chosen.of(p))), legend: distinct.map(v => [(chosen.axis ? full : short)(v), shade(place(v))])};
  }
  const {place} = scaleOf(values), ends = [distinct[0], distinct[distinct.length >> 1], distinct.at(-1)];
  return {paint: p => shade(place(chosen.of(p))), legend: ends.map(v => [short(v), shade(place(v))])};
}
const passes = p => sweep.axes.every((a, n) => !hidden.has(`${a.name} ${p.axes[n]}`));
const told = p => [`point ${p.number}${p.reason ? `, ${p.reason}` : ""}`,
  ...columns.filter(c => c.axis || ["x", "y", "colour"].some(id => at(id).value === c.key) || c.key === sweep.latency)
    .map(c => `${c.label} ${full(c.of(p))}`)].join("\n");

function scatter(points, paint) {
  const host = at("scatter"), width = Math.max(host.clientWidth, 280), height = Math.round(Math.min(430, width * 0.75));
  const left = 52, right = 14, top = 14, bottom = 44;
  const x = column(at("x").value), y = column(at("y").value);
  const sx = scaleOf(sweep.points.map(x.of)), sy = scaleOf(sweep.points.map(y.of));
  const px = v => left + 12 + sx.place(v) * (width - left - right - 24), py = v => height - bottom - 10 - sy.place(v) * (height - top - bottom - 20);
  host.replaceChildren();
  const svg = make(host, "svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${y.label} over ${x.label}`});
  let last = -99;
  for (const t of sx.ticks) {
    make(svg, "line", {x1: px(t), x2: px(t), y1: top, y2: height - bottom, class: "grid"});
    if (px(t) - last > 38) { make(svg, "text", {x: px(t), y: height - bottom + 16, "text-anchor": "middle"}, short(t)); last = px(t); }
  }
  for (const t of sy.ticks) {
    make(svg, "line", {x1: left, x2: width - right, y1: py(t), y2: py(t), class: "grid"});
    make(svg, "text", {x: left - 6, y: py(t) + 4, "text-anchor": "end"}, short(t));
  }
  make(svg, "text", {x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle"}, x.label);
  make(svg, "text", {transform: `translate(13 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle"}, y.label);
  for (const p of [...points].sort((a, b) => kindOf(b) - kindOf(a))) {
    const spot = make(svg, "circle", {cx: px(x.of(p)), cy: py(y.of(p)), r: 5.5, fill: paint(p), tabindex: 0, role: "button",
      class: `spot${kindOf(p) ? "" : " best"}`, "data-number": p.number, "aria-label": `point ${p.number}`});
    spot.dataset.about = told(p);
    for (const event of ["mouseenter", "focus"]) spot.addEventListener(event, () => show(spot));
    for (const event of ["mouseleave", "blur"]) spot.addEventListener(event, () => { about.hidden = true; });
    spot.addEventListener("click", () => choose(p.number));
    spot.addEventListener("keydown", event => { if (event.key === "Enter") choose(p.number); });
  }
  pair.forEach((number, n) => {
    const p = byNumber.get(number);
    make(svg, "circle", {cx: px(x.of(p)), cy: py(y.of(p)), r: 9 + 2 * n, class: "ring", stroke: pairColours[n]});
    make(svg, "text", {x: px(x.of(p)) + (n ? -14 : 12), y: py(y.of(p)) - 9, class: "mark", fill: pairColours[n],
      "text-anchor": n ? "end" : "start"}, "AB"[n]);
  });
}

// Parallel coordinates, the axes one below the other, so that a narrow page shows as many as a wide one.
function parallel(points, paint) {
  const host = at("parallel"), width = Math.max(host.clientWidth, 280), step = 44, left = 16, right = 22;
  const keys = new Set([...sweep.axes.map(a => a.name), sweep.latency, at("x").value, at("y").value]);
  const rows = columns.filter(c => keys.has(c.key)), scales = rows.map(c => {
    const values = c.axis ? [...new Set(sweep.points.map(c.of))].sort((a, b) => a - b) : sweep.points.map(c.of);
    if (!c.axis) return scaleOf(values);
    return {place: v => values.length > 1 ? values.indexOf(v) / (values.length - 1) : 0.5, ticks: values};
  });
  const px = (n, v) => left + scales[n].place(v) * (width - left - right), py = n => 24 + n * step;
  const line = p => rows.map((c, n) => `${px(n, c.of(p)).toFixed(1)},${py(n)}`).join(" ");
  host.replaceChildren();
  const svg = make(host, "svg", {viewBox: `0 0 ${width} ${24 + step * rows.length}`, role: "img", "aria-label": "Parallel coordinates"});
  for (const p of [...points].sort((a, b) => kindOf(b) - kindOf(a)))
    make(svg, "polyline", {points: line(p), stroke: paint(p), class: kindOf(p) ? "path" : "path best"});
  pair.forEach((number, n) => make(svg, "polyline", {points: line(byNumber.get(number)), stroke: pairColours[n], class: "path chosen"}));
  rows.forEach((c, n) => {
    make(svg, "line", {x1: left, x2: width - right, y1: py(n), y2: py(n), class: "rail"});
    make(svg, "text", {x: 2, y: py(n) - 8, class: "name"}, c.label);
    let last = -99;
    for (const t of scales[n].ticks)
      if (px(n, t) - last > 40) { make(svg, "text", {x: px(n, t), y: py(n) + 14, "text-anchor": "middle"}, (c.axis ? full : short)(t)); last = px(n, t); }
  });
}

// Rows of two points that are made of the same layers, as `tilewright.measure.compare` matches them.
function matched(sides) {
  const group = new Map();
  const root = key => {
    if (!group.has(key)) group.set(key, key);
    while (group.get(key) !== key) key = group.get(key);
    return key;
  };
  sides.forEach((rows, side) => rows.forEach((row, n) => {
    for (const member of row[0]) group.set(root(member), root(`${side} ${n}`));
  }));
  const found = new Map();
  sides.forEach((rows, side) => rows.forEach((row, n) => {
    const key = root(`${side} ${n}`);
    if (!found.has(key)) found.set(key, [[], []]);
    found.get(key)[side].push(row);
  }));
  return [...found.values()].map(both => {
    const sum = n => both.map(rows => rows.reduce((total, row) => total + row[n], 0));
    const [a, b] = sum(2), changes = new Map([["bound", b - a]]);
    both.forEach((rows, side) => rows.forEach(row => {
      for (let n = 0; n < row[4].length; n += 2) {
        const cause = sweep.losses[row[4][n]];
        changes.set(cause, (changes.get(cause) ?? 0) + (side ? 1 : -1) * row[4][n + 1]);
      }
    }));
    const members = [...new Set((both[0].length ? both[0] : both[1]).flatMap(row => row[0]))];
    return {members, cycles: sum(1), nanojoules: sum(3), changes};
  });
}
const signed = n => `${n < 0 ? "−" : "+"}${full(Math.abs(n))}`;
function named(names) {
  const text = names.length > 2 ? `${names[0]} ..${names.length}.. ${names.at(-1)}` : names.join(" + ");
  return text.length > 44 ? `…${text.slice(-43)}` : text;
}
function table(parent, heads, rows) {
  const made = make(make(parent, "div", {class: "wide"}), "table");
  const line = (within, name, cells) => cells.forEach((cell, n) =>
    make(within, name, n && !(cell?.text) ? {} : {class: "text"}, cell?.text ?? cell));
  line(make(make(made, "thead"), "tr"), "th", heads);
  const body = make(made, "tbody");
  for (const cells of rows) line(make(body, "tr"), "td", cells);
  return made;
}
function sideBySide() {
  const host = at("side"), [a, b] = pair.map(n => byNumber.get(n)), open = new Set([...host.querySelectorAll("details[open]")].map(d => d.dataset.name));
  const first = !host.childElementCount;
  host.replaceChildren();
  const differ = columns.filter(c => c.axis ? c.of(a) !== c.of(b) : c.main);
  table(host, ["", `A: point ${a.number}`, `B: point ${b.number}`, "B / A"],
    differ.map(c => [c.label, full(c.of(a)), full(c.of(b)), ratio(c.of(a), c.of(b))]));
  sweep.networks.forEach((network, place) => {
    const sides = pair.map(n => network.points[n]);
    if (sides.some(s => !s)) { make(host, "p", {}, `${network.name}: the page has no layers of point ${pair[sides.findIndex(s => !s)]}; report it with --point.`); return; }
    const [ca, cb] = sides.map(rows => rows.reduce((total, row) => total + row[1], 0));
    const details = make(host, "details", {"data-name": network.name});
    details.open = first ? place === 0 : open.has(network.name);
    make(details, "summary", {}, `${network.name}: ${full(ca)} to ${full(cb)} cycles (${ratio(ca, cb)})`);
    const most = Math.max(...sides.flat().map(row => row[1]), 1), pairs = matched(sides);
    const made = table(details, ["layers", "A cycles", "B cycles", "B / A", "A µJ", "B µJ", {text: "difference made by"}], pairs.map(row => [
      named(row.members.map(m => network.members[m])), ...row.cycles.map(full), ratio(...row.cycles), ...row.nanojoules.map(n => full(n / 1e3)),
      {text: [...row.changes].filter(c => c[1]).sort((x, y) => Math.abs(y[1]) - Math.abs(x[1])).slice(0, 2).map(c => `${c[0]} ${signed(c[1])}`).join(", ")}]));
    pairs.forEach((row, n) => row.cycles.forEach((cycles, side) => {
      const cell = made.tBodies[0].rows[n].cells[1 + side], share = (100 * cycles / most).toFixed(1);
      cell.style.background = `linear-gradient(90deg, ${pairColours[side]}33 ${share}%, transparent ${share}%)`;
      cell.dataset.value = cycles;
    }));
  });
}

function choose(number) {
  if (!pair.includes(number)) {
    pair[turn] = number;
    turn = 1 - turn;
  }
  draw();
}
function draw() {
  about.hidden = true;
  const points = sweep.points.filter(passes), {paint, legend} = painter();
  scatter(points, paint);
  parallel(points, paint);
  at("legend").replaceChildren();
  for (const [text, colour] of legend) make(make(at("legend"), "span"), "i", {style: `background:${colour}`}).after(text);
  at("count").textContent = `${points.length} of ${sweep.points.length} points`;
  for (const button of at("filters").querySelectorAll("button")) button.setAttribute("aria-pressed", !hidden.has(button.dataset.value));
  ["first", "second"].forEach((id, n) => { at(id).value = pair[n]; });
  sideBySide();
}
function start() {
  const defaults = {x: sweep.plotted[0], y: sweep.plotted[1], colour: ""};
  make(at("colour"), "option", {value: ""}, "front");
  for (const id of ["x", "y", "colour"]) {
    for (const c of columns) make(at(id), "option", {value: c.key}, c.label);
    at(id).value = defaults[id];
    at(id).addEventListener("change", draw);
  }
  for (const a of sweep.axes) {
    const group = make(at("filters"), "span", {class: "axis"}, `${a.name} `);
    for (const value of a.values) {
      const key = `${a.name} ${value}`;
      make(group, "button", {type: "button", "data-value": key}, full(value)).addEventListener("click", () => {
        if (!hidden.delete(key)) hidden.add(key);
        draw();
      });
    }
  }
  ["first", "second"].forEach((id, n) => {
    for (const p of sweep.points) make(at(id), "option", {value: p.number}, `${p.number}: ${p.axes.join(", ")}`);
    at(id).addEventListener("change", () => { pair[n] = Number(at(id).value); turn = 1 - n; draw(); });
  });
  window.addEventListener("resize", draw);
  draw();
}
start();
