// The attention of every head: thumbnails of all layers and heads, and one head in detail. Hover over a token to see what
// it attends to and what attends to it. `createAttentionMap(root, data)` fills `root` from the data of
// `Attention.to_json`. `data.open` may name the kind, layer and head to show first; `data.gold` has the gold alignment of
// cross-attention as [row, column]; `data.lens` has the logit lens. `onChange` is called with what is open, `more` has elements to append, and
// `showHeading` says whether to show the sentence as a heading. `headTools` and `overviewTools` are appended to the two cards,
// and `isSilenced(kind, layer, head)` says which heads are crossed out.

import { colour, colourTable, COLOUR_RAMPS, createCanvas, MIN_SIDE_CELL, paintCells, resizeCanvas, textColourOn } from "./heat_map.js";
import { createLogitLens } from "./logit_lens.js";
import { addScrollFade, capitalize, clampIndex, make, moveFocus, percent, pointingHint, scrollWithin, truncate, visibleToken } from "./dom.js";
import { createMatrix, fitMatrix, NO_CELL } from "./matrix.js";
import { indexOfLargest, meanOfHeads } from "./numbers.js";
import { withTokenNames } from "./token_names.js";

const KINDS = {
  encoder: { title: "Encoder", summary: "source attends to source", rows: "token", columns: "attends to" },
  decoder: { title: "Decoder", summary: "target attends to the target so far", rows: "reads → predicts", columns: "attends to" },
  cross: { title: "Cross", summary: "target attends to source", rows: "reads → predicts", columns: "attends to (source)" },
};
const MEAN_HEAD = -1; // in place of a head: the mean of a layer's heads
const MIN_LINE_WEIGHT = 0.03; // lines of smaller weights are omitted while no token is selected
const MIN_SELECTED_WEIGHT = 0.002; // the same for the lines of a selected token
const MAX_COMFORTABLE_TOKENS = 26; // longer texts get smaller rows
const MAX_LARGE_HEADING = 100; // characters; a longer heading is smaller
const LEGEND_TICKS = [0, 0.01, 0.1, 0.25, 0.5, 1];

export function createAttentionMap(root, data, { onChange = () => {}, more = [], headTools = [], overviewTools = [], showHeading = true, isSilenced = () => false } = {}) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const controller = new AbortController();
  const firstKind = kindIndex(data, data.open?.kind);
  const state = { map: null, layer: 0, head: MEAN_HEAD, chosen: NO_CELL, hover: null, lastRow: null };
  const style = (name) => getComputedStyle(root).getPropertyValue(name);
  const ramp = () => (dark.matches ? COLOUR_RAMPS.dark : COLOUR_RAMPS.light);
  const view = build(root, data, firstKind, { more, showHeading, headTools, overviewTools, style, ramp });
  let thumbnails = []; // of each layer and head, the mean last

  function openKind(index, { layer = null, head = null, cell = NO_CELL } = {}) {
    const map = withTokenNames(data, data.maps[index]);
    const valid = (number, list) => (number !== null && number >= 0 && number < list.length ? number : null);
    const isInside = (i, list) => i === null || (i >= 0 && i < list.length);
    const chosen = isInside(cell.t, map.queries) && isInside(cell.s, map.keys) ? cell : NO_CELL;
    Object.assign(state, { map, chosen, hover: null, lastRow: null });
    Object.assign(state, { layer: valid(layer, map.weights) ?? map.weights.length - 1, head: valid(head, map.weights[0]) ?? MEAN_HEAD });
    view.kinds[index].checked = true;
    view.goldChoice.hidden = !hasGold();
    fillHeads();
    fillTokens();
    paint();
    scrollWithin(view.heads.parentElement, view.heads.querySelector("[aria-pressed=true]"));
  }

  function openHead(layer, head) {
    Object.assign(state, { layer, head, hover: null });
    show();
  }

  function choose(cell) {
    Object.assign(state, { chosen: cell, hover: null, lastRow: null });
    show();
  }

  // Shows the state after this row was predicted: later rows are dimmed. After the last row nothing is dimmed.
  function stepTo(row) {
    if (!state.map.writes.length) return;
    const isLast = row >= state.map.queries.length - 1;
    Object.assign(state, { chosen: { t: clampIndex(row, state.map.queries), s: null }, hover: null, lastRow: isLast ? null : row });
    show();
    scrollWithin(view.lines, view.queries.children[state.chosen.t]);
  }

  function hover(cell) {
    if (!isSameCell(cell, state.hover)) {
      state.hover = cell;
      show();
    }
  }

  const hasGold = () => Boolean(data.gold?.length) && state.map.kind === "cross";
  const goldLinks = () => (hasGold() && view.gold.checked ? data.gold : []);
  const openThumbnail = () => thumbnails[state.layer][state.head === MEAN_HEAD ? thumbnails[state.layer].length - 1 : state.head];

  // The thumbnails: a row per layer, a column per head and one for their mean.
  function fillHeads() {
    const { map } = state;
    const heads = map.weights[0].length;
    thumbnails = map.weights.map((layer) => [...layer, meanOfHeads(layer)].map((weights) => ({ weights, canvas: createCanvas(weights) })));
    view.heads.style.setProperty("--columns", heads + 1);
    view.heads.style.setProperty("--shape", Math.min(1.6, Math.max(0.6, map.keys.length / map.queries.length)));
    view.heads.classList.toggle("attention-fine", Math.max(map.keys.length, map.queries.length) > 40);
    const columnLabels = [...Array(heads).keys(), "mean"].map((name) => make("span", { "aria-hidden": "true" }, `${name}`));
    const rows = thumbnails.map((layer, l) => [
      make("span", { class: "attention-side", "aria-hidden": "true" }, `layer ${l}`),
      ...layer.map(({ canvas }, h) => headButton(l, h === heads ? MEAN_HEAD : h, canvas)),
    ]);
    view.heads.replaceChildren(make("span", { class: "attention-side", "aria-hidden": "true" }, "head"), ...columnLabels, ...rows.flat());
  }

  function headButton(layer, head, canvas) {
    const pattern = data.patterns?.[state.map.kind]?.[layer][head];
    const title = pattern ? `${headName(layer, head)}: ${describePattern(pattern)}` : headName(layer, head);
    const button = make("button", { type: "button", "aria-label": headName(layer, head), title }, canvas);
    if (isSilenced(state.map.kind, layer, head)) button.classList.add("attention-silenced");
    button.addEventListener("click", () => {
      button.focus({ preventScroll: true });
      showMap();
    });
    button.addEventListener("focus", () => openHead(layer, head));
    return button;
  }

  // Scrolls just far enough to show the heat map; one that is higher than the window is shown from its top.
  function showMap() {
    const { top, bottom, height } = view.matrix.box.getBoundingClientRect();
    const fits = height <= innerHeight;
    const visible = Math.min(bottom, innerHeight) - Math.max(top, 0);
    if (visible < (fits ? height : innerHeight / 2)) view.matrix.box.scrollIntoView({ block: fits ? "nearest" : "start" });
  }

  // The two lists of tokens, queries and keys.
  function fillTokens() {
    const { map } = state;
    const { rows, columns } = KINDS[map.kind];
    view.lines.classList.toggle("attention-dense", Math.max(map.queries.length, map.keys.length) > MAX_COMFORTABLE_TOKENS);
    view.rowCaption.textContent = map.writes.length ? rows : "token";
    view.columnCaption.textContent = columns;
    view.queries.replaceChildren(...map.queries.map((_, t) => tokenButton({ t, s: null }, queryLabel(t), (text) => queryName(t, text))));
    view.keys.replaceChildren(...map.keys.map((_, s) => tokenButton({ t: null, s }, [tokenLabel("keys", s)], (text) => text("keys", s))));
    measureLines();
  }

  // Measures the width of the lines when no token is truncated.
  function measureLines() {
    view.lines.classList.add("attention-full-width");
    view.panels.style.setProperty("--lines", `${Math.ceil(view.lines.getBoundingClientRect().width)}px`);
    view.lines.classList.remove("attention-full-width");
  }

  function queryLabel(t) {
    const read = tokenLabel("queries", t);
    return state.map.writes[t] ? [make("i", {}, read, " → "), tokenLabel("writes", t)] : [read];
  }

  function queryName(t, text) {
    return state.map.writes[t] ? `reads ${text("queries", t)}, predicts ${text("writes", t)}` : text("queries", t);
  }

  // A token as it is labelled, and with what the model calls it if that is something else.
  const labelText = (side, i) => state.map[side][i];

  function fullText(side, i) {
    const [label, name] = [labelText(side, i), state.map.names[side][i]];
    return label === name ? label : `${label} (${name})`;
  }

  function tokenLabel(side, i) {
    const isSpecial = data.special.includes(state.map.names[side][i]);
    return make("bdi", isSpecial ? { class: "attention-special" } : {}, visibleToken(state.map[side][i]));
  }

  // `describe` receives a function that returns the text of a token.
  function tokenButton(cell, label, describe) {
    const text = make("span", { class: "attention-token" }, ...label);
    const button = make("button", { type: "button", title: describe(fullText), "aria-label": describe(labelText) }, text, make("span", { class: "attention-share" }));
    let wasChosen = false; // when the pointer was pressed: then a click deselects the token
    button.addEventListener("pointerdown", () => (wasChosen = isSameCell(state.chosen, cell)));
    button.addEventListener("pointerover", (event) => event.pointerType !== "touch" && hover(cell));
    button.addEventListener("focus", () => choose(cell));
    button.addEventListener("click", (event) => {
      const isChosen = event.detail === 0 ? isSameCell(state.chosen, cell) : wasChosen;
      if (document.activeElement !== button) button.focus();
      choose(isChosen ? NO_CELL : cell);
    });
    return button;
  }

  // Repaints everything that depends on the colour scheme or the kind of attention.
  function paint() {
    const table = colourTable(ramp());
    for (const { weights, canvas } of thumbnails.flat()) paintCells(canvas, weights, table);
    view.lens?.paint(ramp());
    paintCells(view.scale, [Array.from({ length: 256 }, (_, i) => (i / 255) ** 2)], table);
    show();
  }

  function show() {
    const { map } = state;
    const cell = state.hover ?? state.chosen;
    const { weights } = openThumbnail();
    const name = headName(state.layer, state.head);
    view.title.textContent = capitalize(name);
    view.goldScore.textContent = hasGold() ? describeGold(weights, data.gold) : "";
    view.readout.replaceChildren(...describeCell(map, weights, cell));
    markHeads();
    markTokens(view.queries, map.queries.map((_, t) => (cell.s === null ? null : weights[t][cell.s])), state.chosen.t, cell.t);
    markTokens(view.keys, map.keys.map((_, s) => (cell.t === null ? null : weights[cell.t][s])), state.chosen.s, cell.s);
    drawMatrix(weights, cell, name);
    drawLinks(weights, cell);
    const hasSteps = map.writes.length > 0; // the rows of an encoder are not steps
    const head = state.head === MEAN_HEAD ? null : state.head;
    const row = hasSteps ? cell.t : null;
    onChange({ kind: map.kind, layer: state.layer, head, row, chosen: hasSteps ? state.chosen.t : null, cell: state.chosen, weights });
  }

  function markHeads() {
    const columns = thumbnails[0].length;
    const open = state.layer * columns + (state.head === MEAN_HEAD ? columns - 1 : state.head);
    view.heads.querySelectorAll("button").forEach((button, i) => {
      button.setAttribute("aria-pressed", i === open);
      button.tabIndex = i === open ? 0 : -1;
    });
  }

  function markTokens(list, shares, chosen, active) {
    const colours = ramp();
    [...list.children].forEach((button, i) => {
      const share = shares[i];
      const isLater = list === view.queries && state.lastRow !== null && i > state.lastRow; // it is not written yet
      const rgb = share === null || isLater ? null : colour(colours, share);
      button.setAttribute("aria-pressed", i === chosen);
      button.classList.toggle("attention-later", isLater);
      button.tabIndex = i === (chosen ?? 0) ? 0 : -1;
      button.style.backgroundColor = rgb ? `rgb(${rgb})` : i === active ? "var(--edge)" : "";
      button.style.color = rgb ? textColourOn(rgb) : "";
      button.lastChild.textContent = share === null ? "" : percent(share);
    });
  }

  function drawLinks(weights, { t: row, s: column }) {
    const height = Math.max(view.queries.offsetHeight, view.keys.offsetHeight);
    const { context, width } = resizeCanvas(view.links, view.links.parentElement.clientWidth, height);
    const step = view.queries.offsetHeight / weights.length;
    const nothingSelected = row === null && column === null;
    const drawLink = (t, s) => {
      const [from, to] = [(t + 0.5) * step, (s + 0.5) * step];
      context.beginPath();
      context.moveTo(0, from);
      context.bezierCurveTo(width / 2, from, width / 2, to, width, to);
      context.stroke();
    };
    context.strokeStyle = style("--line");
    weights.forEach((shares, t) => shares.forEach((share, s) => {
      if (state.lastRow !== null && t > state.lastRow) return;
      const isSelected = row === t || (row === null && column === s);
      const isDrawn = nothingSelected ? share >= MIN_LINE_WEIGHT : isSelected && share > MIN_SELECTED_WEIGHT;
      if (!isDrawn) return;
      context.globalAlpha = Math.min(1, nothingSelected ? share : Math.sqrt(share));
      context.lineWidth = 0.8 + 4 * share;
      drawLink(t, s);
    }));
    Object.assign(context, { globalAlpha: 1, lineWidth: 1.6, strokeStyle: style("--mark") });
    context.setLineDash([5, 4]);
    for (const [t, s] of goldLinks()) if (nothingSelected || row === t || (row === null && column === s)) drawLink(t, s);
  }

  // Places the heat map next to the lines, or above them if its cells would be too small; on a phone below them, unless
  // there are many tokens.
  function arrange(map) {
    const width = view.panels.clientWidth;
    const gap = parseFloat(getComputedStyle(view.panels).columnGap);
    const room = width - parseFloat(view.panels.style.getPropertyValue("--lines")) - gap;
    const layout = fitMatrix(room, map, style("font-family"));
    const isAbove = width < 600 ? map.keys.length > MAX_COMFORTABLE_TOKENS : layout.width > room || layout.cell < MIN_SIDE_CELL;
    const order = isAbove ? [view.matrix.root, view.lines] : [view.lines, view.matrix.root];
    if (view.panels.firstChild !== order[0]) view.panels.replaceChildren(...order);
    view.panels.classList.toggle("attention-wide", isAbove);
  }

  function drawMatrix(weights, cell, name) {
    arrange(state.map);
    view.matrix.draw({ map: state.map, weights, image: openThumbnail().canvas, cell, gold: goldLinks(), lastRow: state.lastRow, name });
  }

  function moveInMatrix(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const { t, s } = state.chosen;
    choose({ t: clampIndex(t + step[0], state.map.queries), s: clampIndex(s + step[1], state.map.keys) });
    view.matrix.reveal(state.chosen);
  }

  function enterMatrix() {
    const t = state.chosen.t ?? 0;
    choose({ t, s: state.chosen.s ?? indexOfLargest(openThumbnail().weights[t]) });
  }

  view.kinds.forEach((input, i) => input.addEventListener("change", () => openKind(i)));
  view.heads.addEventListener("keydown", (event) => moveFocus(event, view.heads.querySelectorAll("button"), thumbnails[0].length));
  for (const [list, other] of [[view.queries, view.keys], [view.keys, view.queries]]) {
    list.addEventListener("keydown", (event) => moveFocus(event, list.children, 1, other));
    list.addEventListener("pointerleave", () => hover(null));
  }
  const { canvas, cellAt } = view.matrix;
  canvas.addEventListener("pointermove", (event) => event.pointerType !== "touch" && hover(cellAt(event)));
  canvas.addEventListener("pointerleave", () => hover(null));
  canvas.addEventListener("click", (event) => choose(cellAt(event) ?? NO_CELL));
  canvas.addEventListener("keydown", moveInMatrix);
  canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && enterMatrix());
  root.addEventListener("keydown", (event) => event.key === "Escape" && choose(NO_CELL));
  view.gold.addEventListener("change", show);
  dark.addEventListener("change", paint, { signal: controller.signal });
  openKind(firstKind, data.open);
  const observer = new ResizeObserver(() => requestAnimationFrame(() => {
    if (controller.signal.aborted) return;
    measureLines();
    show();
  }));
  observer.observe(view.panels);
  controller.signal.addEventListener("abort", () => observer.disconnect());
  return { stepTo, open: (kind, selection) => openKind(kindIndex(data, kind), selection), close: () => controller.abort() };
}

// Creates all elements, and returns those that change.
function build(root, data, firstKind, { more, showHeading, headTools, overviewTools, style, ramp }) {
  const kinds = data.maps.map(({ kind }, i) => make("input", { type: "radio", name: "attention-kind", value: kind, ...(i === firstKind && { checked: "" }) }));
  const choices = kinds.map((input) => make("label", {}, input, KINDS[input.value].title, make("small", {}, KINDS[input.value].summary)));
  const heads = make("div", { class: "attention-heads", role: "group", "aria-label": "Layers and heads, numbered from 0; use the arrow keys to move" });
  const scale = make("canvas", { width: 256, height: 1 });
  const ticks = LEGEND_TICKS.map((tick) => make("span", {}, `${100 * tick}`));
  ticks.forEach((tick, i) => (tick.style.left = `${100 * Math.sqrt(LEGEND_TICKS[i])}%`));
  const legend = make("div", { class: "attention-legend", "aria-hidden": "true" }, scale, make("span", {}, "percent"), make("div", { class: "attention-ticks" }, ...ticks));
  const title = make("h2", {});
  const readout = make("p", { class: "attention-readout", "aria-live": "polite", id: "attention-readout" });
  const queries = make("div", { class: "attention-list attention-queries", role: "group", "aria-label": "Query tokens" });
  const keys = make("div", { class: "attention-list attention-keys", role: "group", "aria-label": "Key tokens" });
  const links = make("canvas", { class: "attention-links", "aria-hidden": "true" });
  const [rowCaption, columnCaption] = [make("span", { class: "attention-caption" }), make("span", { class: "attention-caption" })];
  const lines = addScrollFade(make("div", { class: "attention-lines" }, rowCaption, make("span", {}), columnCaption, queries, make("div", {}, links), keys));
  const matrix = createMatrix({ style, ramp, id: "attention-readout" });
  const panels = make("div", { class: "attention-panels" }, lines, matrix.root);
  const gold = make("input", { type: "checkbox", checked: "" });
  const goldScore = make("span", { class: "hint" });
  const goldChoice = make("p", { class: "attention-gold" }, make("label", {}, gold, " gold alignment"), " ", goldScore);
  const lens = data.lens ? createLogitLens(withTokenNames(data, { ...data.lens, kind: "lens", keys: data.lens.queries })) : null;
  root.className = "attention";
  root.replaceChildren(
    ...(showHeading ? [createHeading(data)] : []),
    ...(data.maps.length > 1 ? [make("fieldset", { class: "attention-kinds" }, make("legend", {}, "Kind of attention"), ...choices)] : []),
    make("section", { class: "attention-card attention-overview", "aria-label": "Overview" },
      make("h2", {}, "All layers and heads"), addScrollFade(make("div", { class: "attention-scroll" }, heads)), legend, ...overviewTools),
    make("section", { class: "attention-card attention-large", "aria-label": "One head" }, title, ...headTools, ...(data.gold?.length ? [goldChoice] : []), panels, readout),
    ...more,
    ...(lens ? [lens.root] : []),
  );
  return { gold, goldScore, goldChoice, kinds, heads, scale, title, readout, queries, keys, links, rowCaption, columnCaption, panels, lines, matrix, lens };
}

function createHeading({ model, source, target }) {
  return make("header", { class: "attention-head" },
    make("p", { class: "attention-model" }, "Attention of every head of ", make("strong", {}, model)),
    make("h1", source.length > MAX_LARGE_HEADING ? { class: "attention-long" } : {}, source),
    ...(target === null ? [] : [make("p", { class: "attention-target" }, `→ ${target}`)]));
}

// The index of the map of this kind; by default cross-attention, or the first map.
function kindIndex({ maps }, kind) {
  const indices = [kind, "cross"].map((each) => maps.findIndex((map) => map.kind === each));
  return indices.find((index) => index >= 0) ?? 0;
}

// Says how the gold alignment is drawn, and for how many of the aligned tokens the largest weight is on it.
function describeGold(weights, gold) {
  const rows = [...new Set(gold.map(([t]) => t))];
  const correct = rows.filter((t) => gold.some(([row, s]) => row === t && s === indexOfLargest(weights[t])));
  return `circles and dashed lines · largest weight on the correct token for ${correct.length} of ${rows.length} tokens`;
}

// Describes the attention of a query, to a key, or of a cell.
function describeCell(map, weights, { t, s }) {
  const quote = (token) => `“${truncate(token, 18)}”`;
  const predicting = (i) => `predicting ${quote(map.writes[i])} after ${quote(map.queries[i])}`;
  const query = (i) => (map.writes[i] ? predicting(i) : quote(map.queries[i]));
  if (t === null && s === null) return [make("span", { class: "hint" }, pointingHint("a token", "what it attends to and what attends to it"))];
  if (t !== null && s !== null) return [`${capitalize(query(t))} attends to ${quote(map.keys[s])}: `, make("b", {}, percent(weights[t][s]))];
  const shares = t !== null ? weights[t] : weights.map((row) => row[s]);
  const names = t !== null ? map.keys.map(quote) : map.queries.map((_, i) => query(i));
  const largest = shares.map((_, i) => i).sort((a, b) => shares[b] - shares[a]).slice(0, 3).filter((i) => shares[i] > 0);
  const list = largest.flatMap((i, n) => [n ? ", " : "", `${names[i]} `, make("b", {}, percent(shares[i]))]);
  const beginning = t !== null ? `${capitalize(query(t))} attends most to ` : `${quote(map.keys[s])} gets most attention ${map.writes.length ? "when" : "from"} `;
  return [beginning, ...list];
}

// The label of a head, and the share that gave it the label.
export function describePattern({ label, share }) {
  return share ? `${label} (${percent(Number(share.toPrecision(2)))})` : label;
}

export function headName(layer, head) {
  return head === MEAN_HEAD ? `layer ${layer}, mean of its heads` : `layer ${layer}, head ${head}`;
}

function isSameCell(a, b) {
  return a === b || (a !== null && b !== null && a.t === b.t && a.s === b.s);
}
