// Two heads side by side: of one model or of two, for one sentence or for two. A cell that is selected on one side is selected
// on the other: at the same position if both have the same tokens, otherwise where the same tokens are.

import { createRequests } from "./api.js";
import { describePattern, headName } from "./attention_map.js";
import { clampIndex, make, percent, visibleToken } from "./dom.js";
import { colourTable, COLOUR_RAMPS, createCanvas, paintCells } from "./heat_map.js";
import { createMatrix, NO_CELL } from "./matrix.js";
import { meanOfHeads } from "./numbers.js";
import { withTokenNames } from "./token_names.js";

const MEAN_OPTION = "mean"; // in the list of heads: the mean of a layer's heads
const SIDE_NAMES = ["First", "Second"]; // next to each other or, on a phone, one below the other
const SELECTION_HINT = "Select a cell on one side: the other side shows the same one, or the cell of the same tokens.";

// `models` are those of the server, `requested` the texts of the left side. `initial` has the model, source, layer and head of
// the right side, or is null while the comparison is closed; `onChange` receives the same.
export function createCompare(data, { models, requested, initial, onChange }) {
  const { notice, request, cancel } = createRequests(() => load());
  const controller = new AbortController();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const open = make("button", { type: "button" }, "Compare with another head, sentence or model");
  const model = make("select", {}, ...models.map(({ name }) => make("option", { value: name }, name)));
  const source = make("input", { type: "text", maxlength: 300 });
  const head = make("select", {});
  const close = make("button", { type: "button" }, "Close");
  const form = make("form", { class: "compare-form" },
    make("label", {}, "Model ", model), make("label", { class: "compare-sentence" }, "Sentence ", source), make("label", {}, "Head ", head), make("button", { type: "submit" }, "Show"), close);
  const readout = make("p", { class: "compare-readout", "aria-live": "polite" });
  const panels = [createPanel(0), createPanel(1)];
  const body = make("div", { class: "compare-body" }, form, notice, make("div", { class: "compare-panels" }, ...panels.map(({ root }) => root)), readout);
  const root = make("section", { class: "attention-card compare", "aria-label": "Compare" }, make("h2", {}, "Compare"), make("div", { class: "tools" }, open));
  let state = initial; // the right side: model, source, layer, head
  let [left, right] = [null, null]; // what each side shows: data, kind, layer, head, map, weights
  let cells = [NO_CELL, NO_CELL];
  let [responseFor, response] = ["", null];
  let shown = ""; // what the left side shows

  function createPanel(side) {
    const style = (name) => getComputedStyle(root).getPropertyValue(name);
    const title = make("h3", {});
    const pattern = make("p", { class: "hint" });
    const matrix = createMatrix({ style, ramp: () => ramp(), id: "compare-readout" });
    const step = (event) => ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] })[event.key];
    matrix.canvas.addEventListener("click", (event) => select(side, matrix.cellAt(event) ?? NO_CELL));
    matrix.canvas.addEventListener("pointermove", (event) => event.pointerType !== "touch" && select(side, matrix.cellAt(event) ?? cells[side]));
    matrix.canvas.addEventListener("keydown", (event) => {
      if (!step(event)) return;
      event.preventDefault();
      const { map } = sides()[side];
      const { t, s } = cells[side];
      select(side, { t: clampIndex((t ?? 0) + step(event)[0], map.queries), s: clampIndex((s ?? 0) + step(event)[1], map.keys) });
      matrix.reveal(cells[side]);
    });
    return { root: make("div", { class: "compare-panel" }, title, pattern, matrix.root), title, pattern, matrix };
  }

  const ramp = () => (dark.matches ? COLOUR_RAMPS.dark : COLOUR_RAMPS.light);
  const sides = () => [left, right];

  function select(side, cell) {
    const other = counterpart(sides()[side]?.map, sides()[1 - side]?.map, cell);
    const next = side === 0 ? [cell, other] : [other, cell];
    if (JSON.stringify(next) === JSON.stringify(cells)) return;
    cells = next;
    draw();
  }

  function view(from, kind, layer, chosenHead) {
    const found = from.maps.find((map) => map.kind === kind) ?? from.maps.at(-1);
    const map = withTokenNames(from, found);
    const depth = Math.min(layer, map.weights.length - 1);
    const number = chosenHead === null || chosenHead >= map.weights[0].length ? null : chosenHead;
    const weights = number === null ? meanOfHeads(map.weights[depth]) : map.weights[depth][number];
    return { from, map, layer: depth, head: number, weights, pattern: number === null ? null : from.patterns?.[map.kind]?.[depth]?.[number] };
  }

  function draw() {
    if (!left || !right || !body.isConnected) return;
    const table = colourTable(ramp());
    sides().forEach(({ map, layer, head: number, weights, pattern, from }, i) => {
      const name = `${from.model}, ${map.kind}, ${headName(layer, number ?? -1)}`;
      const image = createCanvas(weights);
      paintCells(image, weights, table);
      panels[i].title.textContent = name;
      panels[i].pattern.textContent = pattern ? `pattern: ${describePattern(pattern)}` : "";
      panels[i].matrix.draw({ map, weights, image, cell: cells[i], gold: [], lastRow: null, name });
    });
    readout.replaceChildren(...describe());
  }

  function describe() {
    const parts = sides().map(({ map, weights }, i) => {
      const { t, s } = cells[i];
      if (t === null || s === null) return null;
      const query = map.writes[t] || map.queries[t];
      return [`${SIDE_NAMES[i]}: `, make("q", {}, make("bdi", {}, visibleToken(query))), " attends to ", make("q", {}, make("bdi", {}, visibleToken(map.keys[s]))), " with ", make("b", {}, percent(weights[t][s])), ". "];
    });
    if (parts.every((part) => part === null)) return [make("span", { class: "hint" }, SELECTION_HINT)];
    return parts.flatMap((part, i) => part ?? [make("span", { class: "hint" }, `${SIDE_NAMES[i]}: these tokens are not there. `)]);
  }

  // Shows what is open in the view on the left side.
  function update(next) {
    if (JSON.stringify(next) === shown) return;
    shown = JSON.stringify(next);
    const { kind, layer, head: number, cell } = next;
    left = view(data, kind, layer, number);
    if (right) right = view(right.from, kind, state.layer, state.head);
    fillHeads();
    if (cell) cells = [cell, counterpart(left.map, right?.map, cell)];
    draw();
  }

  function fillHeads() {
    if (!right) return;
    const options = right.map.weights.flatMap((layer, l) => [...layer.keys(), MEAN_OPTION].map((h) => make("option", { value: `${l}.${h}` }, `layer ${l}, ${h === MEAN_OPTION ? "mean" : `head ${h}`}`)));
    head.replaceChildren(...options);
    head.value = `${right.layer}.${right.head ?? MEAN_OPTION}`;
  }

  async function load() {
    const wanted = { model: model.value, source: source.value.trim() };
    if (!wanted.source) return;
    const key = JSON.stringify(wanted);
    if (wanted.model === requested.model && wanted.source === requested.source) [responseFor, response] = [key, data];
    const isLoaded = responseFor === key;
    markStale(!isLoaded); // also if the request fails: what is shown is not what the form says
    if (isLoaded) cancel(); // the response to an earlier choice must not replace this one
    else {
      const received = await request("/api/attend", wanted);
      if (!received) return;
      [responseFor, response] = [key, received];
      markStale(false);
    }
    right = view(response, left.map.kind, state.layer, state.head);
    cells = [cells[0], counterpart(left.map, right.map, cells[0])];
    fillHeads();
    draw();
  }

  // Dims the second side while it shows something else than the form says.
  function markStale(isStale) {
    for (const element of [panels[1].root, readout]) element.classList.toggle("stale", isStale);
  }

  function show() {
    open.hidden = state !== null;
    if (!state) return;
    root.append(body);
    model.value = models.some(({ name }) => name === state.model) ? state.model : requested.model;
    source.value = state.source;
    load();
  }

  function change(next) {
    state = { ...state, ...next };
    onChange(state);
    load();
  }

  open.addEventListener("click", () => {
    const others = left.map.weights[left.layer].length;
    state = { model: requested.model, source: requested.source, layer: left.layer, head: left.head === null ? 0 : (left.head + 1) % others };
    onChange(state);
    show();
    head.focus();
  });
  close.addEventListener("click", () => {
    cancel();
    [state, right, cells] = [null, null, [cells[0], NO_CELL]];
    onChange(state);
    body.remove();
    show();
    open.focus();
  });
  head.addEventListener("change", () => {
    const [layer, number] = head.value.split(".");
    change({ layer: Number(layer), head: number === MEAN_OPTION ? null : Number(number) });
  });
  model.addEventListener("change", () => change({ model: model.value, source: source.value.trim() }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    change({ model: model.value, source: source.value.trim() });
  });
  readout.id = "compare-readout";
  dark.addEventListener("change", draw, { signal: controller.signal });
  const observer = new ResizeObserver(() => requestAnimationFrame(draw));
  observer.observe(body);
  return {
    root,
    update,
    start: show,
    close() {
      cancel();
      observer.disconnect();
      controller.abort();
    },
  };
}

// The cell of another map with the same tokens as a cell of a map.
export function counterpart(from, to, { t, s }) {
  if (!from || !to) return NO_CELL;
  const rows = (map) => map.queries.map((read, i) => (map.writes[i] ? map.writes[i] : read));
  return { t: sameToken(rows(from), rows(to), t), s: sameToken(from.keys, to.keys, s) };
}

// The index in another list of the same occurrence of a token, or null.
function sameToken(from, to, index) {
  if (index === null) return null;
  if (from.length === to.length && from.every((token, i) => token === to[i])) return index;
  const plain = (token) => token.replace(/^·/, "").toLowerCase();
  const occurrence = from.slice(0, index).filter((token) => plain(token) === plain(from[index])).length;
  const matches = [...to.keys()].filter((i) => plain(to[i]) === plain(from[index]));
  return matches[occurrence] ?? null;
}
