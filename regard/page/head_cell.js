// Inside one cell of the heat map: the query and key, their dot product, scaling, mask, softmax over the row, and the weighted
// sum of the values, each with its numbers. Dragging a weight changes it in the model.

import { addScrollFade, make, percent, pointingHint, scrollToMiddle, visibleToken } from "./dom.js";
import { indexOfLargest, mean, withReplacedWeight } from "./numbers.js";
import { createStrip, formatNumber, largestOf } from "./vector_strip.js";

const MAX_VALUES_SHOWN = 8; // keys whose values are drawn: those with the largest weights
const TOTAL_DIGITS = 4; // with three, 1 ÷ 1.005 would be 1 ÷ 1
const TEMPERATURE = { min: -2, max: 2, step: 0.05 }; // as a power of 2

// `loadBody()` returns what /api/head needs besides the head; `onWeight(cell, weight)` is called when a weight was dragged, with
// null to restore it; `onHead(head)` opens a head. `connect` is `createRequests`. A file has no server: there it is null,
// `stored` has the responses by head, and `onWeight` is null, because nothing can be changed. `previous` is what `remember()` of
// an earlier component returned: it is displayed until the new response arrives, so that a control in it can keep the focus.
export function createHeadCell({ connect, loadBody, onWeight, onHead, findChange, stored = null, previous = null }) {
  const { notice, request, cancel } = connect ? connect(() => load()) : { notice: "", request: null, cancel() {} };
  const content = make("div", { class: "cell-steps" });
  const about = make("p", { class: "cell-about" });
  const root = make("section", { class: "attention-card cell-card", "aria-label": "Inside one cell" }, make("h2", {}, "Inside one cell"), about, notice, content);
  const selectHint = pointingHint("a cell of the heat map", "how its weight is computed", "Click");
  const getStyle = (name) => getComputedStyle(root).getPropertyValue(name);
  const holds = new Set(); // a promise for each slider that a pointer holds
  let selected = null; // kind, layer, head, row, column and the map
  let [response, responseOf] = [null, ""]; // the latest response, and the head that it is for
  let displayed = null; // the cell and the vectors whose computation is displayed; another cell may be selected already
  let [dimension, temperature] = [null, 1];
  let preview = null; // the column and weight that were dragged and that no response has yet
  let softmaxTop = null; // how far the table of the softmax is scrolled; null scrolls to the selected key
  let loads = 0; // number of requests
  let redraw = () => {};

  const headOf = ({ kind, layer, head }) => `${kind}.${layer}.${head}`;

  // Shows a cell of a map; `next` is null if none is selected, and its head is null for the mean of a layer.
  function show(next) {
    const isSameCell = selected && next && headOf(selected) === headOf(next) && selected.row === next.row && selected.column === next.column && selected.map === next.map;
    if (isSameCell || (!selected && !next)) return;
    selected = next;
    softmaxTop = null;
    discardPending();
    if (!selected) return clear(selectHint);
    if (selected.head === null) return showHeads();
    if (responseOf === headOf(selected)) return render(response);
    if (isPreviousUsable()) renderPrevious();
    load();
  }

  // Whether the earlier response is for this head, and for a map of the same size.
  function isPreviousUsable() {
    const { keys, queries } = selected.map;
    return previous?.vectorsOf === headOf(selected) && previous.vectors.allowed.length === queries.length && previous.vectors.allowed[0].length === keys.length;
  }

  function renderPrevious() {
    ({ dimension, temperature } = previous);
    if (previous.row === selected.row && previous.column === selected.column) ({ softmaxTop } = previous);
    render(previous.vectors);
  }

  // Ignores the response that is being waited for, even if it has arrived and waits until a slider is released.
  function discardPending() {
    cancel();
    loads += 1;
    content.classList.remove("stale");
  }

  function clear(text) {
    displayed = null;
    redraw = () => {};
    about.textContent = text;
    content.replaceChildren();
  }

  async function load() {
    if (!selected || selected.head === null) return;
    const wanted = headOf(selected);
    const number = (loads += 1);
    content.classList.add("stale");
    const { kind, layer, head } = selected;
    const received = stored ? stored[wanted] : await request("/api/head", { ...loadBody(), head: { kind, layer, head } });
    await released(); // the controls are created again, and the pointer would lose its slider
    if (received === undefined || number !== loads) return;
    content.classList.remove("stale");
    if (!received) return clear("");
    [response, responseOf] = [received, wanted];
    render(response);
  }

  // For the mean of a layer: the weight of each head, of which one can be opened.
  function showHeads() {
    const { map, row, column, layer } = selected;
    clear("");
    about.replaceChildren(...describe(selected), ` The mean of the layer is ${percent(mean(map.weights[layer].map((head) => head[row][column])))}; pick a head to see its computation.`);
    const buttons = map.weights[layer].map((weights, head) => {
      const button = make("button", { type: "button", class: "cell-head" }, make("span", {}, `head ${head}`), bar(weights[row][column]), make("b", {}, percent(weights[row][column])));
      button.addEventListener("click", () => onHead(head));
      return button;
    });
    content.replaceChildren(make("div", { class: "cell-heads" }, ...buttons));
  }

  const label = (token) => make("q", {}, make("bdi", {}, visibleToken(token)));

  function describe({ map, row, column, layer, head }) {
    const query = map.writes[row] ? ["for predicting ", label(map.writes[row]), " after ", label(map.queries[row])] : ["of ", label(map.queries[row])];
    return [make("b", {}, head === null ? `Layer ${layer}. ` : `Layer ${layer}, head ${head}. `), "The query ", ...query, " meets the key of ", label(map.keys[column]), "."];
  }

  function render(vectors) {
    const { row, column } = selected;
    displayed = { cell: selected, vectors };
    preview = null;
    const [q, k] = [vectors.q[row], vectors.k[column]];
    const products = q.map((value, i) => value * k[i]);
    dimension = dimension !== null && dimension < q.length ? dimension : indexOfLargest(products.map(Math.abs));
    const parts = [compareStep(q, k, products), scoreStep(), softmaxStep(), valuesStep()];
    const restoreFocus = rememberFocus();
    about.replaceChildren(...describe(displayed.cell));
    content.replaceChildren(...parts.map((part) => part.root));
    scrollSoftmax();
    restoreFocus();
    redraw = () => parts.forEach((part) => part.update());
    redraw();
  }

  // Scrolls the table of the softmax as far as before, or to the selected key. It cannot scroll before it is displayed.
  function scrollSoftmax() {
    const box = content.querySelector(".softmax-scroll");
    if (!box?.clientHeight) return;
    if (softmaxTop === null) scrollToMiddle(box, box.querySelector(".softmax-chosen"));
    else box.scrollTop = softmaxTop;
  }

  // The controls are created again: a function that focuses the one that has the focus now.
  function rememberFocus() {
    const controls = () => [...content.querySelectorAll("input, button, [tabindex]")];
    const index = controls().indexOf(document.activeElement);
    return () => index >= 0 && controls()[index]?.focus({ preventScroll: true });
  }

  function step(number, title, ...children) {
    return make("div", { class: `cell-step cell-step-${number}` }, make("h3", {}, make("span", { class: "cell-number" }, number), title), ...children);
  }

  function pick(index) {
    dimension = index;
    redraw();
  }

  // 1. The two vectors and their product, dimension by dimension.
  function compareStep(q, k, products) {
    const strips = [["query", q], ["key", k], ["product", products]].map(([name, values]) => ({ name, values, strip: createStrip(getStyle, pick), number: make("output", {}) }));
    const slider = make("input", { type: "range", min: 0, max: q.length - 1, value: dimension, "aria-label": "Dimension of the vectors" });
    const formula = make("p", { class: "formula" });
    slider.addEventListener("input", () => pick(Number(slider.value)));
    const rows = strips.flatMap(({ name, strip, number }) => [make("span", {}, name), make("div", { class: "strip-box" }, strip.canvas), number]);
    const root = step(1, "Compare query and key", make("div", { class: "strips" }, ...rows, make("span", {}, "dimension"), slider, make("span")), formula);
    const dot = products.reduce((sum, value) => sum + value, 0);
    function update() {
      slider.value = dimension;
      slider.setAttribute("aria-valuetext", `dimension ${dimension}: ${formatNumber(q[dimension])} times ${formatNumber(k[dimension])}`);
      const largest = [largestOf(q, k), largestOf(q, k), largestOf(products)];
      for (const { values, number } of strips) number.textContent = formatNumber(values[dimension]);
      strips.forEach(({ values, strip }, i) => strip.draw(values, largest[i], dimension)); // after the numbers, which take their room
      const sum = products.length > 1 ? `; all ${products.length} products add up to ` : ": ";
      formula.replaceChildren(`Dimension ${dimension}: ${formatNumber(q[dimension])} × ${formatNumber(k[dimension])} = ${formatNumber(products[dimension])}${sum}`, make("b", {}, `q·k = ${formatNumber(dot)}`));
    }
    return { root, update };
  }

  const scoreOf = (s) => {
    const { cell: { row }, vectors: { dots, scale, bias } } = displayed;
    return dots[row][s] * scale + (bias?.[row][s] ?? 0);
  };
  const isAllowed = (s) => Boolean(displayed.vectors.allowed[displayed.cell.row][s]);

  // Whether a weight can be changed: the only one of a row is always 100%.
  const canDrag = (s) => onWeight && isAllowed(s) && displayed.vectors.allowed[displayed.cell.row].filter(Boolean).length > 1;

  // 2. The scale, the bias if there is one, and the mask.
  function scoreStep() {
    const { cell: { row, column }, vectors } = displayed;
    const [dot, width] = [vectors.dots[row][column], vectors.q[row].length];
    const isUsual = Math.abs(vectors.scale * Math.sqrt(width) - 1) < 1e-6;
    const scaled = isUsual
      ? `${formatNumber(dot)} ÷ √${width} = ${formatNumber(dot)} ÷ ${formatNumber(Math.sqrt(width))} = `
      : `${formatNumber(dot)} × ${formatNumber(vectors.scale)} = `;
    const bias = vectors.bias ? make("p", { class: "formula" }, `Bias for the distance: ${formatNumber(dot * vectors.scale)} + ${formatNumber(vectors.bias[row][column])} = `, make("b", {}, formatNumber(scoreOf(column)))) : null;
    const hidden = vectors.allowed[row].filter((allowed) => !allowed).length;
    const maskText = isAllowed(column)
      ? `Mask: this key is visible. ${hidden ? `${hidden} of ${vectors.allowed[row].length} keys are hidden from this query.` : "No key is hidden from this query."}`
      : "Mask: this key is hidden from the query. Its score becomes −∞, and its weight e^−∞ = 0.";
    const root = step(2, "Scale and mask", make("p", { class: "formula" }, "Score: ", scaled, make("b", {}, formatNumber(dot * vectors.scale))), ...(bias ? [bias] : []), make("p", { class: "formula" }, maskText));
    return { root, update() {} };
  }

  // The weights of the row, at the chosen temperature; with one of them replaced, if it was dragged or is being dragged
  // (`preview`). A row has one replaced weight at a time, and the others keep the proportions of the softmax.
  function rowWeights() {
    const { cell, vectors } = displayed;
    const keys = vectors.allowed[cell.row].map((_, s) => s);
    const highest = Math.max(...keys.filter(isAllowed).map(scoreOf));
    const powers = keys.map((s) => (isAllowed(s) ? Math.exp((scoreOf(s) - highest) / temperature) : 0));
    const total = powers.reduce((sum, value) => sum + value, 0) || 1;
    const change = preview ?? findChange(cell);
    const weights = powers.map((value) => value / total);
    return { powers, total, weights: change ? withReplacedWeight(weights, change.column, change.weight) : weights, change };
  }

  // 3. Softmax over the row: a line for each key, whose weight can be dragged.
  function softmaxStep() {
    const { cell } = displayed;
    const slider = make("input", { type: "range", ...TEMPERATURE, value: Math.log2(temperature), "aria-label": "Temperature of the softmax" });
    const output = make("output", {});
    const rows = cell.map.keys.map((token, s) => softmaxRow(token, s));
    const columns = [["key"], ["score", "number"], ["e^…", "number"], ["weight", "number"], [onWeight ? "drag to set" : ""]];
    const head = make("tr", {}, ...columns.map(([text, kind = ""]) => make("th", { scope: "col", class: kind }, text)));
    const table = make("table", { class: "softmax" }, make("thead", {}, head), make("tbody", {}, ...rows.map((row) => row.root)));
    const formula = make("p", { class: "formula" });
    const restore = make("button", { type: "button" }, "Restore the weights of this row");
    restore.addEventListener("click", () => onWeight(cell, null));
    slider.addEventListener("input", () => {
      temperature = 2 ** Number(slider.value);
      redraw();
    });
    const knob = make("div", { class: "knob" }, make("span", {}, "Temperature"), output, slider);
    const scroll = addScrollFade(make("div", { class: "softmax-scroll", tabindex: 0, role: "region", "aria-label": "Softmax over the row" }, table));
    scroll.addEventListener("scroll", () => selected === cell && (softmaxTop = scroll.scrollTop)); // not after another cell was selected
    const root = step(3, "Softmax over the row", knob, scroll, formula, restore);
    function update() {
      const { powers, total, weights: shown, change } = rowWeights();
      output.textContent = temperature === 1 ? "1, as in the model" : formatNumber(temperature);
      slider.setAttribute("aria-valuetext", formatNumber(temperature));
      rows.forEach((row, s) => row.update(powers[s], shown[s], preview?.column === s));
      const { column } = cell;
      const name = temperature === 1 ? "e^(score − highest score) ÷ their sum" : `e^((score − highest score) ÷ ${formatNumber(temperature)}) ÷ their sum`;
      formula.replaceChildren(`${name}: ${formatNumber(powers[column])} ÷ ${formatNumber(total, TOTAL_DIGITS)} = `, make("b", {}, percent(powers[column] / total)),
        ...(change ? [`. You set the weight of `, label(cell.map.keys[change.column]), ` to ${percent(change.weight)}; the others keep their proportions.`] : []));
      restore.hidden = !findChange(cell);
    }
    return { root, update };
  }

  function softmaxRow(token, s) {
    const { cell } = displayed; // a slider that is removed while it is held reports its change afterwards
    const [score, power, share] = [make("td", { class: "number" }), make("td", { class: "number" }), make("td", { class: "number" })];
    const slider = make("input", { type: "range", class: "weight-slider", min: 0, max: 100, step: 0.1, "aria-label": `Weight of ${visibleToken(token)} in percent`, ...(canDrag(s) ? {} : { disabled: "" }) });
    const row = make("tr", s === cell.column ? { class: "softmax-chosen" } : {}, make("th", { scope: "row" }, make("bdi", {}, visibleToken(token))), score, power, share, make("td", {}, slider));
    slider.addEventListener("input", () => {
      preview = { column: s, weight: slider.value / 100 };
      redraw();
    });
    slider.addEventListener("change", () => {
      discardPending(); // the response to an earlier change would set this one back
      onWeight({ ...cell, column: s }, slider.value / 100);
    });
    return {
      root: row,
      update(value, weight, isDragged) {
        score.textContent = isAllowed(s) ? formatNumber(scoreOf(s)) : "−∞";
        power.textContent = value < 0.0005 ? (value ? "< 0.001" : "0") : formatNumber(value);
        if (!isDragged) slider.value = 100 * weight;
        slider.style.setProperty("--p", weight);
        share.textContent = percent(weight);
      },
    };
  }

  // Notes that a pointer holds a slider, until it is released and the slider has reported its change.
  function hold({ target, button, pointerId }) {
    if (button !== 0 || !target.matches("input[type=range]")) return;
    const ending = new AbortController();
    const isReleased = new Promise((resolve) => {
      const release = (event) => {
        if (event.pointerId !== pointerId) return;
        ending.abort();
        setTimeout(resolve);
      };
      for (const name of ["pointerup", "pointercancel"]) addEventListener(name, release, { capture: true, signal: ending.signal });
    });
    holds.add(isReleased);
    isReleased.then(() => holds.delete(isReleased));
  }

  // Resolves when no slider is held any more.
  async function released() {
    while (holds.size) await Promise.all(holds);
  }

  // 4. The values, weighted and added up.
  function valuesStep() {
    const { cell, vectors } = displayed;
    const largest = largestOf(...vectors.v);
    const { weights } = rowWeights();
    const order = weights.map((_, s) => s).sort((a, b) => weights[b] - weights[a]).slice(0, MAX_VALUES_SHOWN);
    const rows = order.map((s) => ({ s, strip: createStrip(getStyle, pick), share: make("span", { class: "number" }), number: make("output", {}) }));
    const sum = { strip: createStrip(getStyle, pick), number: make("output", {}) };
    const rest = make("p", { class: "hint" });
    const cells = rows.flatMap(({ s, strip, share, number }) => [make("bdi", {}, visibleToken(cell.map.keys[s])), share, make("div", { class: "strip-box" }, strip.canvas), number]);
    const root = step(4, "Weighted sum of the values",
      make("div", { class: "strips strips-values" }, ...cells, make("b", {}, "output"), make("span", {}, "="), make("div", { class: "strip-box" }, sum.strip.canvas), sum.number), rest);
    function update() {
      const { weights: shown } = rowWeights();
      const at = Math.min(dimension, vectors.v[0].length - 1);
      const output = vectors.v[0].map((_, i) => vectors.v.reduce((total, value, s) => total + shown[s] * value[i], 0));
      for (const { s, share, number } of rows) {
        share.textContent = `${percent(Number(shown[s].toPrecision(3)))} ×`;
        number.textContent = `${formatNumber(shown[s])} × ${formatNumber(vectors.v[s][at])} = ${formatNumber(shown[s] * vectors.v[s][at])}`;
      }
      sum.number.textContent = formatNumber(output[at]);
      for (const { s, strip } of rows) strip.draw(vectors.v[s].map((value) => shown[s] * value), largest, at);
      sum.strip.draw(output, largestOf(output), at);
      const others = vectors.v.length - rows.length;
      rest.textContent = `Numbers of dimension ${at}${others > 0 ? `; ${others} more keys, with small weights, are part of the sum` : ""}. The strips show weight × value; that of the output is scaled to its own largest number.`;
    }
    return { root, update };
  }

  const observer = new ResizeObserver(() => requestAnimationFrame(() => {
    redraw();
    scrollSoftmax();
  }));
  observer.observe(content);
  content.addEventListener("pointerdown", hold);
  clear(selectHint);
  return {
    root,
    show,
    // What is displayed, for a component that replaces this one.
    remember: () => displayed && { vectors: displayed.vectors, vectorsOf: headOf(displayed.cell), row: displayed.cell.row, column: displayed.cell.column, dimension, temperature, softmaxTop },
    released,
    close() {
      discardPending();
      observer.disconnect();
    },
  };
}

function bar(share) {
  const element = make("span", { class: "score-bar", "aria-hidden": "true" });
  element.style.setProperty("--p", share);
  return element;
}
