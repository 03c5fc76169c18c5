// The film of a run: the attention of one sentence in every snapshot, so that heads can be seen emerging. All snapshots read
// the same source and target, so that rows and columns stay the same; what each would have written itself is shown too.

import { createRequests } from "./api.js";
import { createTextField, submitOnEnter } from "./controls.js";
import { addScrollFade, clampIndex, make, moveFocus, truncate, visibleToken } from "./dom.js";
import { colour, colourTable, COLOUR_RAMPS, createCanvas, layOut, MIN_NUMBER_CELL, paintCells, resizeCanvas, textColourOn } from "./heat_map.js";
import { createLineChart } from "./line_chart.js";
import { withTokenNames } from "./token_names.js";

const KIND_TITLES = { encoder: "Encoder", decoder: "Decoder", cross: "Cross" };
const FOCUS_HINT = "Focus: the largest weight of each row, averaged over the rows. 100% means that every token attends to one other; the"
  + " line of the open head is bold.";
const NO_SNAPSHOTS = "This run kept no snapshots. Train with --watch, or with --set train.snapshots=24, to see its attention emerge.";
const MAX_COLOURS = 8;
const MAX_FAILURES = 3; // snapshots that cannot be shown before no more are requested

// The mean over the rows of the largest weight in each row.
export function headFocus(weights) {
  return weights.reduce((sum, row) => sum + Math.max(...row), 0) / weights.length;
}

export function createFilm({ onState, onFrames, formatStep }) {
  const source = createTextField({ id: "film-source", class: "plain", placeholder: "Type a sentence and press Enter" });
  const target = createTextField({ id: "film-target", class: "plain" });
  const { notice, request, cancel } = createRequests(() => load());
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const controller = new AbortController();
  const targetLabel = make("label", { for: "film-target" }, "Translation");
  const form = make("form", { class: "film-form" }, make("label", { for: "film-source" }, "Sentence"), source.field, targetLabel, target.field,
    make("button", { type: "submit" }, "Show"));
  const kinds = make("fieldset", { class: "attention-kinds" });
  const heads = make("div", { class: "attention-heads film-heads", role: "group", "aria-label": "Layers and heads, numbered from 0; use the arrow keys to move" });
  const map = make("canvas", { role: "img" });
  const title = make("h3", {});
  const output = make("p", { class: "film-output", dir: "auto" });
  const focus = createLineChart({ title: "Focus of each head", format: (value) => `${Math.round(100 * value)}%`, formatX: formatStep });
  const content = make("div", { class: "film-content" }, kinds,
    make("div", { class: "film-pair" },
      make("div", { class: "film-part" }, make("h3", {}, "All layers and heads"), addScrollFade(make("div", { class: "attention-scroll" }, heads))),
      make("div", { class: "film-part" }, title, addScrollFade(make("div", { class: "film-map" }, map)))),
    output, focus.root, make("p", { class: "hint" }, FOCUS_HINT));
  const empty = make("p", { class: "hint" }, NO_SNAPSHOTS);
  const root = make("section", { class: "card film", "aria-label": "Attention of each snapshot" },
    make("h2", {}, "Heads emerging"), form, notice, empty, content);
  let run = null; // the name of the run
  let steps = []; // the steps of its snapshots
  let frames = new Map(); // the responses by step
  let open = { kind: null, layer: null, head: null };
  let wanted = null; // the step to show
  let loading = 0; // number of the newest call of `load`

  const ramp = () => (dark.matches ? COLOUR_RAMPS.dark : COLOUR_RAMPS.light);
  // The newest frame at or before the step, or the first one.
  const shownStep = () => [...frames.keys()].sort((a, b) => a - b).findLast((step) => step <= wanted) ?? Math.min(...frames.keys());
  const mapOf = (frame) => withTokenNames(frame, frame.maps.find(({ kind }) => kind === open.kind) ?? frame.maps.at(-1));

  // Loads all frames: that of the last snapshot first, because its translation is the target of all others.
  async function load() {
    const number = ++loading;
    const isCurrent = () => number === loading;
    let failures = 0;
    updateEmpty();
    if (!run || !source.field.value.trim() || !steps.length) return;
    for (const step of [steps.at(-1), ...steps].filter((step, i, all) => all.indexOf(step) === i)) {
      if (frames.has(step)) continue;
      const asked = { run, step, source: source.field.value.trim(), ...(target.field.value.trim() && { target: target.field.value.trim() }) };
      const frame = await request("/api/frame", asked);
      if (!isCurrent() || frame === undefined) return;
      if (frame === null) {
        failures += 1;
        if (failures === MAX_FAILURES) return onFrames([...frames.keys()]);
        continue; // the run may have removed this checkpoint, or it is damaged
      }
      if (frame.target && !target.field.value.trim() && frame.maps.some(({ kind }) => kind === "cross")) {
        target.field.value = frame.target;
        requestAnimationFrame(target.fit);
      }
      const isFirst = frames.size === 0;
      frames.set(step, frame);
      if (isFirst) build();
      show();
      onFrames([...frames.keys()].sort((a, b) => a - b));
    }
  }

  function updateEmpty() {
    empty.hidden = steps.length > 0;
    form.hidden = steps.length === 0;
    content.hidden = frames.size === 0;
  }

  // Creates the buttons for kinds, layers and heads, which all frames share.
  function build() {
    updateEmpty();
    const [frame] = frames.values();
    const available = frame.maps.map(({ kind }) => kind);
    if (!available.includes(open.kind)) open = { kind: available.includes("cross") ? "cross" : available.at(-1), layer: null, head: null };
    kinds.hidden = available.length === 1;
    kinds.replaceChildren(make("legend", {}, "Kind of attention"), ...available.map((kind) => {
      const input = make("input", { type: "radio", name: "film-kind", value: kind, ...(kind === open.kind && { checked: "" }) });
      input.addEventListener("change", () => {
        open = { kind, layer: null, head: null };
        buildHeads();
        show();
        onState({ ...open });
      });
      return make("label", {}, input, KIND_TITLES[kind]);
    }));
    for (const element of [targetLabel, target.field]) element.hidden = !available.includes("cross");
    buildHeads();
  }

  function buildHeads() {
    const [frame] = frames.values();
    const { weights, keys, queries } = mapOf(frame);
    open.layer = clampIndex(open.layer ?? weights.length - 1, weights);
    open.head = clampIndex(open.head ?? 0, weights[0]);
    heads.style.setProperty("--columns", weights[0].length);
    heads.style.setProperty("--shape", Math.min(1.6, Math.max(0.6, keys.length / queries.length)));
    const columns = weights[0].map((_, head) => make("span", { "aria-hidden": "true" }, `${head}`));
    const rows = weights.map((layer, l) => [make("span", { class: "attention-side", "aria-hidden": "true" }, `layer ${l}`), ...layer.map((head, h) => headButton(l, h, head))]);
    heads.replaceChildren(make("span", { class: "attention-side", "aria-hidden": "true" }, "head"), ...columns, ...rows.flat());
  }

  function headButton(layer, head, weights) {
    const button = make("button", { type: "button", "aria-label": `layer ${layer}, head ${head}` }, createCanvas(weights));
    const select = () => {
      Object.assign(open, { layer, head });
      show();
      onState({ ...open });
    };
    button.addEventListener("click", select);
    button.addEventListener("focus", () => button.matches(":focus-visible") && select());
    return button;
  }

  function show() {
    if (!frames.size) return;
    const step = shownStep();
    const frame = frames.get(step);
    const current = mapOf(frame);
    const table = colourTable(ramp());
    const buttons = [...heads.querySelectorAll("button")];
    const flat = current.weights.flat();
    buttons.forEach((button, i) => {
      paintCells(button.firstChild, flat[i], table);
      const isOpen = i === open.layer * current.weights[0].length + open.head;
      button.setAttribute("aria-pressed", isOpen);
      button.tabIndex = isOpen ? 0 : -1;
    });
    title.textContent = `Layer ${open.layer}, head ${open.head}, after step ${formatStep(step)}`;
    drawMap(current, buttons[open.layer * current.weights[0].length + open.head].firstChild);
    output.replaceChildren(...(frame.output === null ? [] : [make("span", { class: "hint" }, "It writes by itself: "), make("span", { class: "film-text" }, `“${frame.output}”`)]));
    showFocus(step);
  }

  function showFocus(step) {
    const all = [...frames.entries()].sort(([a], [b]) => a - b);
    const { weights } = mapOf(all[0][1]);
    const series = weights.flatMap((layer, l) => layer.map((_, h) => {
      const isOpen = l === open.layer && h === open.head;
      const points = all.map(([step, frame]) => [step, headFocus(mapOf(frame).weights[l][h])]);
      return { name: `layer ${l}, head ${h}`, className: `run-${isOpen ? 0 : 1 + ((l * layer.length + h) % (MAX_COLOURS - 1))}`, points, faint: !isOpen, dots: isOpen, unlisted: !isOpen };
    }));
    series.sort((a, b) => Number(b.faint) - Number(a.faint)); // the open head is drawn last
    focus.show(all.length > 1 ? series : [], { cursor: step });
  }

  function drawMap({ queries, keys, writes, weights }, image) {
    const shares = weights[open.layer][open.head];
    const label = (token, length) => `\u2068${truncate(visibleToken(token), length)}\u2069`;
    const rows = queries.map((read, t) => label(writes[t] || read, 14));
    const columns = keys.map((key) => label(key, 14));
    const style = (name) => getComputedStyle(root).getPropertyValue(name);
    const layout = layOut(Math.max(200, map.parentElement.clientWidth - 8), rows, columns, style("font-family"));
    const { context } = resizeCanvas(map, layout.width, layout.height);
    const { left, top, cell, font, family } = layout;
    context.imageSmoothingEnabled = false;
    context.drawImage(image, left, top, cell * columns.length, cell * rows.length);
    context.font = `${font}px ${family}`;
    context.fillStyle = style("--ink");
    context.textBaseline = "middle";
    context.textAlign = "right";
    rows.forEach((text, t) => context.fillText(text, left - 6, top + (t + 0.5) * cell));
    context.textAlign = "left";
    columns.forEach((text, s) => {
      context.save();
      context.translate(left + (s + 0.5) * cell, top - 6);
      context.rotate(-Math.PI / 3);
      context.fillText(text, 0, 0);
      context.restore();
    });
    if (cell < MIN_NUMBER_CELL) return describeMap(rows, columns, shares);
    const colours = ramp();
    context.textAlign = "center";
    context.font = `${Math.round(cell * 0.36)}px ${family}`;
    shares.forEach((row, t) => row.forEach((share, s) => {
      if (share < 0.005) return;
      context.fillStyle = textColourOn(colour(colours, share));
      context.fillText(`${Math.round(100 * share)}`, left + (s + 0.5) * cell, top + (t + 0.5) * cell);
    }));
    describeMap(rows, columns, shares);
  }

  function describeMap(rows, columns, shares) {
    const strongest = shares.map((row, t) => `${rows[t]} to ${columns[row.indexOf(Math.max(...row))]}`).join(", ");
    map.setAttribute("aria-label", `Heat map. Largest weights: ${strongest}`);
  }

  function reload() {
    frames = new Map();
    load();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    onState({ source: source.field.value.trim(), target: target.field.value.trim() });
    reload();
  });
  source.field.addEventListener("input", () => (target.field.value = "")); // it was the translation of another sentence
  for (const { field } of [source, target]) submitOnEnter(field, form);
  heads.addEventListener("keydown", (event) => moveFocus(event, heads.querySelectorAll("button"), Number(heads.style.getPropertyValue("--columns"))));
  dark.addEventListener("change", show, { signal: controller.signal });
  const observer = new ResizeObserver(() => requestAnimationFrame(() => !controller.signal.aborted && show()));
  observer.observe(map.parentElement);
  return {
    root,
    // Shows another run or sentence, or new snapshots of the same run.
    open(next) {
      const isSame = next.run === run && next.source === source.field.value.trim() && (next.target === target.field.value.trim() || (!next.target && frames.size > 0));
      const isNew = next.steps.some((step) => !steps.includes(step));
      [run, steps] = [next.run, next.steps];
      const before = JSON.stringify(open);
      open = { ...open, ...Object.fromEntries(Object.entries(next.open).filter(([, value]) => value !== undefined)) };
      for (const step of frames.keys()) if (!steps.includes(step)) frames.delete(step); // the run has removed the checkpoint
      if (isSame && frames.size) {
        if (JSON.stringify(open) !== before) build(); // only then, because it would take the focus away
        show();
        return isNew ? load() : undefined;
      }
      source.field.value = next.source;
      target.field.value = next.target;
      for (const { fit } of [source, target]) requestAnimationFrame(fit);
      return reload();
    },
    showStep(step) {
      wanted = step;
      show();
    },
    close() {
      loading += 1;
      controller.abort();
      observer.disconnect();
      focus.close();
      cancel();
    },
  };
}
