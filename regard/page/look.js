// What every head looks at: all layers and heads small, one of them large; point at a token to see where it looks and
// who looks at it. `look(root, data)` fills `root` with what `Attention.to_json` tells; `data.open` may name a kind, a
// layer and a head to begin with, `data.gold` has the links [row, column] that cross-attention should find. Text is only
// ever set as text. A page around it may be told what is open (`changed`), add views of its own (`more`) and have
// its own heading (`headed`).

import { canvasOf, colour, layOut, lookup, NARROW, paintCells, prepare, RAMPS, readableOn, ROOMY } from "./paint.js";
import { capital, cut, fading, make, moveAmong, percent, reveal, standing, within } from "./parts.js";

const KINDS = {
  encoder: ["Encoder", "source looks at source", "token", "looks at"],
  decoder: ["Decoder", "target looks at target so far", "reads → writes", "looks at"],
  cross: ["Cross", "target looks at source", "reads → writes", "looks at, in the source"],
};
const MEAN = -1;
const START = "start"; // in place of the token that a translation starts from, whatever it is called
const FAINT = 0.03; // lines below are left out while no token is chosen
const MANY = 26; // tokens; more have less room each
const LONG = 100; // characters; more are written smaller
const TICKS = [0, 0.01, 0.1, 0.25, 0.5, 1];

export function look(root, data, { changed = () => {}, more = [], headed = true } = {}) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const closing = new AbortController();
  const start = indexOf(data, data.open?.kind);
  const state = { map: null, layer: 0, head: MEAN, chosen: NOTHING, hover: null, until: null };
  const view = build(root, data, start, more, headed);
  const shades = () => (dark.matches ? RAMPS.dark : RAMPS.light);
  let pictures = [];

  function openKind(index, { layer = null, head = null } = {}) {
    const map = named(data, data.maps[index]);
    const known = (number, list) => (number !== null && number >= 0 && number < list.length ? number : null);
    Object.assign(state, { map, chosen: NOTHING, hover: null, until: null });
    Object.assign(state, { layer: known(layer, map.weights) ?? map.weights.length - 1, head: known(head, map.weights[0]) ?? MEAN });
    view.kinds[index].checked = true;
    view.goldChoice.hidden = !hasGold();
    fillHeads();
    fillTokens();
    paint();
    reveal(view.heads.parentElement, view.heads.querySelector("[aria-pressed=true]"));
  }

  function openHead(layer, head) {
    Object.assign(state, { layer, head, hover: null });
    show();
  }

  function choose(place) {
    Object.assign(state, { chosen: place, hover: null, until: null });
    show();
  }

  // As it was when this row was written: the rows behind it are veiled. Past the last row, all is open again.
  function stepTo(row) {
    if (!state.map.writes.length) return;
    const last = row >= state.map.queries.length - 1;
    Object.assign(state, { chosen: { t: within(row, state.map.queries), s: null }, hover: null, until: last ? null : row });
    show();
    reveal(view.lines, view.queries.children[state.chosen.t]);
  }

  function hover(place) {
    if (!same(place, state.hover)) {
      state.hover = place;
      show();
    }
  }

  const hasGold = () => Boolean(data.gold?.length) && state.map.kind === "cross";
  const goldLinks = () => (hasGold() && view.gold.checked ? data.gold : []);
  const weights = () => pictures[state.layer][state.head === MEAN ? pictures[state.layer].length - 1 : state.head];

  // The small pictures: a row for each layer, a column for each head and one for their mean.
  function fillHeads() {
    const { map } = state;
    const heads = map.weights[0].length;
    pictures = map.weights.map((layer) => [...layer, mean(layer)].map((values) => ({ values, canvas: canvasOf(values) })));
    view.heads.style.setProperty("--columns", heads + 1);
    view.heads.style.setProperty("--shape", Math.min(1.6, Math.max(0.6, map.keys.length / map.queries.length)));
    view.heads.classList.toggle("look-fine", Math.max(map.keys.length, map.queries.length) > 40);
    const top = [...Array(heads).keys(), "mean"].map((name) => make("span", { "aria-hidden": "true" }, `${name}`));
    const rows = pictures.map((layer, l) => [
      make("span", { class: "look-side", "aria-hidden": "true" }, `layer ${l}`),
      ...layer.map((picture, h) => headButton(l, h === heads ? MEAN : h, picture.canvas)),
    ]);
    view.heads.replaceChildren(make("span", { class: "look-side", "aria-hidden": "true" }, "head"), ...top, ...rows.flat());
  }

  function headButton(layer, head, canvas) {
    const button = make("button", { type: "button", "aria-label": called(layer, head), title: called(layer, head) }, canvas);
    button.addEventListener("click", () => {
      button.focus({ preventScroll: true });
      showMap();
    });
    button.addEventListener("focus", () => openHead(layer, head));
    return button;
  }

  // Scrolls no further than it takes to see the large map; one that is higher than the window, from its top.
  function showMap() {
    const { top, bottom, height } = view.matrix.getBoundingClientRect();
    const fits = height <= innerHeight;
    const seen = Math.min(bottom, innerHeight) - Math.max(top, 0);
    if (seen < (fits ? height : innerHeight / 2)) view.matrix.scrollIntoView({ block: fits ? "nearest" : "start" });
  }

  // The two lists of tokens.
  function fillTokens() {
    const { map } = state;
    const [, , rows, columns] = KINDS[map.kind];
    view.lines.classList.toggle("look-dense", Math.max(map.queries.length, map.keys.length) > MANY);
    view.rowCaption.textContent = map.writes.length ? rows : "token";
    view.columnCaption.textContent = columns;
    view.queries.replaceChildren(...map.queries.map((_, t) => tokenButton({ t, s: null }, queryLabel(t), queryName(t))));
    view.keys.replaceChildren(...map.keys.map((token, s) => tokenButton({ t: null, s }, [plain(token)], map.names.keys[s])));
    measureLines();
  }

  // How wide the lines are when no token is cut.
  function measureLines() {
    view.lines.classList.add("look-whole");
    view.panels.style.setProperty("--lines", `${Math.ceil(view.lines.getBoundingClientRect().width)}px`);
    view.lines.classList.remove("look-whole");
  }

  function queryLabel(t) {
    const read = state.map.queries[t];
    const write = state.map.writes[t];
    return write ? [make("i", {}, plain(read), " → "), plain(write)] : [plain(read)];
  }

  function queryName(t) {
    const write = state.map.writes[t];
    const read = state.map.names.queries[t];
    return write ? `reads ${read}, writes ${write}` : read;
  }

  const plain = (token) => make("bdi", token === START || data.special.includes(token) ? { class: "look-special" } : {}, standing(token));

  function tokenButton(place, label, name) {
    const text = make("span", { class: "look-token" }, ...label);
    const button = make("button", { type: "button", title: name, "aria-label": name }, text, make("span", { class: "look-share" }));
    let before = false; // whether it was chosen already when the pointer came down: then a click lets go of it
    button.addEventListener("pointerdown", () => (before = same(state.chosen, place)));
    button.addEventListener("pointerover", (event) => event.pointerType !== "touch" && hover(place));
    button.addEventListener("focus", () => choose(place));
    button.addEventListener("click", (event) => {
      const again = event.detail === 0 ? same(state.chosen, place) : before;
      if (document.activeElement !== button) button.focus();
      choose(again ? NOTHING : place);
    });
    return button;
  }

  // Everything in colour: when the theme changes, and for another kind of attention.
  function paint() {
    const table = lookup(shades());
    for (const { values, canvas } of pictures.flat()) paintCells(canvas, values, table);
    paintCells(view.scale, [Array.from({ length: 256 }, (_, i) => (i / 255) ** 2)], table);
    show();
  }

  function show() {
    const { map } = state;
    const place = state.hover ?? state.chosen;
    const { values } = weights();
    const name = called(state.layer, state.head);
    view.title.textContent = capital(name);
    view.goldTold.textContent = hasGold() ? found(values, data.gold) : "";
    view.readout.replaceChildren(...sentence(map, values, place));
    markHeads();
    markTokens(view.queries, map.queries.map((_, t) => (place.s === null ? null : values[t][place.s])), state.chosen.t, place.t);
    markTokens(view.keys, map.keys.map((_, s) => (place.t === null ? null : values[place.t][s])), state.chosen.s, place.s);
    drawMatrix(values, place, name);
    drawLinks(values, place);
    const steps = map.writes.length > 0; // the rows of an encoder are no steps
    const head = state.head === MEAN ? null : state.head;
    changed({ kind: map.kind, layer: state.layer, head, row: steps ? place.t : null, chosen: steps ? state.chosen.t : null });
  }

  function markHeads() {
    const columns = pictures[0].length;
    const open = state.layer * columns + (state.head === MEAN ? columns - 1 : state.head);
    view.heads.querySelectorAll("button").forEach((button, i) => {
      button.setAttribute("aria-pressed", i === open);
      button.tabIndex = i === open ? 0 : -1;
    });
  }

  function markTokens(list, shares, chosen, active) {
    const ramp = shades();
    [...list.children].forEach((button, i) => {
      const share = shares[i];
      const rgb = share === null ? null : colour(ramp, share);
      button.setAttribute("aria-pressed", i === chosen);
      button.classList.toggle("look-later", list === view.queries && state.until !== null && i > state.until);
      button.tabIndex = i === (chosen ?? 0) ? 0 : -1;
      button.style.backgroundColor = rgb ? `rgb(${rgb})` : i === active ? "var(--edge)" : "";
      button.style.color = rgb ? readableOn(rgb) : "";
      button.lastChild.textContent = share === null ? "" : percent(share);
    });
  }

  function drawLinks(values, { t: row, s: column }) {
    const height = Math.max(view.queries.offsetHeight, view.keys.offsetHeight);
    const { context, width } = prepare(view.links, view.links.parentElement.clientWidth, height);
    const step = view.queries.offsetHeight / values.length;
    const idle = row === null && column === null;
    const link = (t, s) => {
      const [from, to] = [(t + 0.5) * step, (s + 0.5) * step];
      context.beginPath();
      context.moveTo(0, from);
      context.bezierCurveTo(width / 2, from, width / 2, to, width, to);
      context.stroke();
    };
    context.strokeStyle = style("--line");
    values.forEach((shares, t) => shares.forEach((share, s) => {
      if (state.until !== null && t > state.until) return;
      const wanted = idle ? share >= FAINT : (row === t && share > 0.002) || (row === null && column === s && share > 0.002);
      if (!wanted) return;
      context.globalAlpha = Math.min(1, idle ? share : Math.sqrt(share));
      context.lineWidth = 0.8 + 4 * share;
      link(t, s);
    }));
    Object.assign(context, { globalAlpha: 1, lineWidth: 1.6, strokeStyle: style("--mark") });
    context.setLineDash([5, 4]);
    for (const [t, s] of goldLinks()) if (idle || row === t || (row === null && column === s)) link(t, s);
  }

  // The heat map beside the lines or, where its cells would be too small, above; on a phone below, unless there are many.
  function arrange(rows, columns, family) {
    const width = view.panels.clientWidth;
    const gap = parseFloat(getComputedStyle(view.panels).columnGap);
    const room = width - parseFloat(view.panels.style.getPropertyValue("--lines")) - gap;
    const plan = layOut(room, rows, columns, family);
    const above = width < 600 ? columns.length > MANY : plan.width > room || plan.cell < NARROW;
    const order = above ? [view.matrix, view.lines] : [view.lines, view.matrix];
    if (view.panels.firstChild !== order[0]) view.panels.replaceChildren(...order);
    view.panels.classList.toggle("look-wide", above);
  }

  function drawMatrix(values, place, name) {
    const { map } = state;
    const label = (token, most) => `\u2068${cut(standing(token), most)}\u2069`; // apart, whichever way it is written
    const rows = map.queries.map((read, t) => (map.writes[t] ? `${label(read, 10)} → ${label(map.writes[t], 10)}` : label(read, 24)));
    const columns = map.keys.map((key) => label(key, 16));
    const family = style("font-family");
    arrange(rows, columns, family);
    const plan = view.plan = layOut(view.matrix.clientWidth - 8, rows, columns, family);
    const { context } = prepare(view.map, plan.width, plan.height);
    const { left, top, cell } = plan;
    context.imageSmoothingEnabled = false;
    context.drawImage(weights().canvas, left, top, cell * columns.length, cell * rows.length);
    context.textBaseline = "middle";
    context.textAlign = "right";
    rows.forEach((label, t) => drawLabel(context, plan, label, left - 6, top + (t + 0.5) * cell, 0, t === place.t));
    context.textAlign = "left";
    columns.forEach((label, s) => drawLabel(context, plan, label, left + (s + 0.5) * cell, top - 6, -Math.PI / 3, s === place.s));
    if (cell >= ROOMY) drawNumbers(context, plan, values);
    context.strokeStyle = style("--mark");
    context.lineWidth = 2;
    for (const [t, s] of goldLinks()) ring(context, left + (s + 0.5) * cell, top + (t + 0.5) * cell, cell / 2 - 2);
    if (state.until !== null) {
      context.globalAlpha = 0.8;
      context.fillStyle = style("--card");
      context.fillRect(0, top + (state.until + 1) * cell, plan.width, plan.height);
      context.globalAlpha = 1;
    }
    if (place.t !== null) context.strokeRect(left, top + place.t * cell, cell * columns.length, cell);
    if (place.s !== null) context.strokeRect(left + place.s * cell, top, cell, cell * rows.length);
    view.map.setAttribute("aria-label", `Heat map of ${name}: a row for each token that looks, a column for each it looks at; the arrow keys move from cell to cell`);
  }

  function drawLabel(context, plan, label, x, y, angle, active) {
    context.save();
    context.translate(x, y);
    context.rotate(angle);
    context.font = `${active ? 700 : 400} ${plan.font}px ${plan.family}`;
    context.fillStyle = style(active ? "--mark" : "--ink");
    context.fillText(label, 0, 0);
    context.restore();
  }

  // In two colours, so that it is seen on any weight.
  function ring(context, x, y, radius) {
    for (const [colour, width] of [["--card", 4], ["--mark", 2]]) {
      Object.assign(context, { strokeStyle: style(colour), lineWidth: width });
      context.beginPath();
      context.arc(x, y, Math.max(2, radius), 0, 2 * Math.PI);
      context.stroke();
    }
  }

  function drawNumbers(context, { left, top, cell, family }, values) {
    const ramp = shades();
    context.textAlign = "center";
    context.font = `${Math.round(cell * 0.36)}px ${family}`;
    values.forEach((shares, t) => shares.forEach((share, s) => {
      if (share < 0.005) return;
      context.fillStyle = readableOn(colour(ramp, share));
      context.fillText(`${Math.round(100 * share)}`, left + (s + 0.5) * cell, top + (t + 0.5) * cell);
    }));
  }

  const style = (name) => getComputedStyle(root).getPropertyValue(name);

  function cellAt(event) {
    const { left, top, cell } = view.plan;
    const [s, t] = [Math.floor((event.offsetX - left) / cell), Math.floor((event.offsetY - top) / cell)];
    const inside = s >= 0 && t >= 0 && s < state.map.keys.length && t < state.map.queries.length;
    return inside ? { t, s } : null;
  }

  function moveInMatrix(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const { t, s } = state.chosen;
    choose({ t: within(t + step[0], state.map.queries), s: within(s + step[1], state.map.keys) });
  }

  function enterMatrix() {
    const t = state.chosen.t ?? 0;
    choose({ t, s: state.chosen.s ?? largest(weights().values[t]) });
  }

  view.kinds.forEach((input, i) => input.addEventListener("change", () => openKind(i)));
  view.heads.addEventListener("keydown", (event) => moveAmong(event, view.heads.querySelectorAll("button"), pictures[0].length));
  for (const [list, other] of [[view.queries, view.keys], [view.keys, view.queries]]) {
    list.addEventListener("keydown", (event) => moveAmong(event, list.children, 1, other));
    list.addEventListener("pointerleave", () => hover(null));
  }
  view.map.addEventListener("pointermove", (event) => event.pointerType !== "touch" && hover(cellAt(event)));
  view.map.addEventListener("pointerleave", () => hover(null));
  view.map.addEventListener("click", (event) => choose(cellAt(event) ?? NOTHING));
  view.map.addEventListener("keydown", moveInMatrix);
  view.map.addEventListener("focus", () => view.map.matches(":focus-visible") && enterMatrix());
  root.addEventListener("keydown", (event) => event.key === "Escape" && choose(NOTHING));
  view.gold.addEventListener("change", show);
  dark.addEventListener("change", paint, { signal: closing.signal });
  openKind(start, data.open);
  const resized = new ResizeObserver(() => requestAnimationFrame(() => {
    if (closing.signal.aborted) return;
    measureLines();
    show();
  }));
  resized.observe(view.panels);
  closing.signal.addEventListener("abort", () => resized.disconnect());
  return { stepTo, open: (kind, place) => openKind(indexOf(data, kind), place), close: () => closing.abort() };
}

const NOTHING = { t: null, s: null };

// The page's skeleton, and the parts of it that change.
function build(root, data, start, more, headed) {
  const kinds = data.maps.map(({ kind }, i) => make("input", { type: "radio", name: "look-kind", value: kind, ...(i === start && { checked: "" }) }));
  const choices = kinds.map((input) => make("label", {}, input, KINDS[input.value][0], make("small", {}, KINDS[input.value][1])));
  const heads = make("div", { class: "look-heads", role: "group", "aria-label": "Layers and heads, counted from 0: the arrow keys move" });
  const scale = make("canvas", { width: 256, height: 1 });
  const ticks = TICKS.map((tick) => make("span", {}, `${100 * tick}`));
  ticks.forEach((tick, i) => (tick.style.left = `${100 * Math.sqrt(TICKS[i])}%`));
  const legend = make("div", { class: "look-legend", "aria-hidden": "true" }, scale, make("span", {}, "per cent"), make("div", { class: "look-ticks" }, ...ticks));
  const title = make("h2", {});
  const readout = make("p", { class: "look-readout", "aria-live": "polite", id: "look-readout" });
  const queries = make("div", { class: "look-list look-queries", role: "group", "aria-label": "Tokens that look" });
  const keys = make("div", { class: "look-list look-keys", role: "group", "aria-label": "Tokens that are looked at" });
  const links = make("canvas", { class: "look-links", "aria-hidden": "true" });
  const [rowCaption, columnCaption] = [make("span", { class: "look-caption" }), make("span", { class: "look-caption" })];
  const lines = fading(make("div", { class: "look-lines" }, rowCaption, make("span", {}), columnCaption, queries, make("div", {}, links), keys));
  const map = make("canvas", { tabindex: 0, role: "application", "aria-roledescription": "heat map", "aria-describedby": "look-readout" });
  const matrix = fading(make("div", { class: "look-matrix" }, map));
  const panels = make("div", { class: "look-panels" }, lines, matrix);
  const gold = make("input", { type: "checkbox", checked: "" });
  const goldTold = make("span", { class: "look-hint" });
  const goldChoice = make("p", { class: "look-gold" }, make("label", {}, gold, " gold alignment"), " ", goldTold);
  root.className = "look";
  root.replaceChildren(
    ...(headed ? [heading(data)] : []),
    ...(data.maps.length > 1 ? [make("fieldset", { class: "look-kinds" }, make("legend", {}, "Kind of attention"), ...choices)] : []),
    make("section", { class: "look-card look-overview", "aria-label": "Overview" },
      make("h2", {}, "All layers and heads"), fading(make("div", { class: "look-scroll" }, heads)), legend),
    make("section", { class: "look-card look-large", "aria-label": "One head" }, title, ...(data.gold?.length ? [goldChoice] : []), panels, readout),
    ...more,
  );
  return { gold, goldTold, goldChoice, kinds, heads, scale, title, readout, queries, keys, links, rowCaption, columnCaption, panels, lines, matrix, map, plan: null };
}

function heading({ model, source, target }) {
  return make("header", { class: "look-head" },
    make("p", { class: "look-model" }, "What every head of ", make("strong", {}, model), " looks at"),
    make("h1", source.length > LONG ? { class: "look-long" } : {}, source),
    ...(target === null ? [] : [make("p", { class: "look-target" }, `→ ${target}`)]));
}

// A map with its tokens as they are shown, and `names` as they are called: a translation starts from a token of no meaning.
function named({ maps, special }, map) {
  const starts = map.kind !== "encoder" && maps.some(({ kind }) => kind === "cross");
  const shown = ([first, ...rest], written) => (written && starts && special.includes(first) ? [START, ...rest] : [first, ...rest]);
  const { queries, keys } = map;
  return { ...map, queries: shown(queries, true), keys: shown(keys, map.kind === "decoder"), names: { queries, keys } };
}

// Which map is of this kind; the one that links source and target, or else the first, where there is none.
function indexOf({ maps }, kind) {
  const found = [kind, "cross"].map((each) => maps.findIndex((map) => map.kind === each));
  return found.find((index) => index >= 0) ?? 0;
}

// How many of the tokens that have gold links look most at one of them.
function found(values, gold) {
  const rows = [...new Set(gold.map(([t]) => t))];
  const right = rows.filter((t) => gold.some(([row, s]) => row === t && s === largest(values[t])));
  return `this one looks most at the right token for ${right.length} of ${rows.length}`;
}

// What there is to say of a place: a token that looks, one that is looked at, or both.
function sentence(map, values, { t, s }) {
  const named = (token) => `“${cut(token, 18)}”`;
  const writing = (i) => (map.writes[i] ? `writing ${named(map.writes[i])} after ${named(map.queries[i])}` : named(map.queries[i]));
  if (t === null && s === null) return [make("span", { class: "look-hint" }, "Point at a token, or move with Tab and the arrow keys, to see where it looks and who looks at it.")];
  if (t !== null && s !== null) return [`${capital(writing(t))} looks at ${named(map.keys[s])}: `, make("b", {}, percent(values[t][s]))];
  const shares = t !== null ? values[t] : values.map((row) => row[s]);
  const names = t !== null ? map.keys.map(named) : map.queries.map((_, i) => writing(i));
  const best = shares.map((_, i) => i).sort((a, b) => shares[b] - shares[a]).slice(0, 3).filter((i) => shares[i] > 0);
  const told = best.flatMap((i, n) => [n ? ", " : "", `${names[i]} `, make("b", {}, percent(shares[i]))]);
  return [t !== null ? `${capital(writing(t))} looks most at ` : `${named(map.keys[s])} is looked at most ${map.writes.length ? "when" : "by"} `, ...told];
}

function called(layer, head) {
  return head === MEAN ? `layer ${layer}, mean of its heads` : `layer ${layer}, head ${head}`;
}

function same(a, b) {
  return a === b || (a !== null && b !== null && a.t === b.t && a.s === b.s);
}

function largest(shares) {
  return shares.indexOf(Math.max(...shares));
}

function mean(heads) {
  return heads[0].map((row, t) => row.map((_, s) => heads.reduce((sum, head) => sum + head[t][s], 0) / heads.length));
}
