// Everything that the Attention view shows about one response: the words, the attention of every head, the computation inside
// a cell, the decoding steps, the beam search, and which heads matter.

import { changesToRequest, findWeight, headKey, hide, setWeight, silence } from "./attention_changes.js";
import { createRequests } from "./api.js";
import { createAttentionMap, describePattern } from "./attention_map.js";
import { createWords } from "./attention_words.js";
import { createBeamTree } from "./beam_tree.js";
import { createCompare } from "./compare.js";
import { createSteps } from "./decoding_steps.js";
import { clampIndex, make } from "./dom.js";
import { createHeadCell } from "./head_cell.js";
import { createHeadEffects } from "./head_effects.js";
import { hideSinks, joinPieces, originalCell, originalRow, rowOf } from "./map_transforms.js";
import { createPatternLegend } from "./pattern_legend.js";
import { createTokenNames, withTokenNames } from "./token_names.js";

const NO_BEAM = "There was no search, because the translation was given. Each step shows the probabilities after the given words"
  + " so far. Clear “Translation” to let the model translate.";

// `open` is the kind, layer, head and step to show; `model` the description of the model; `requested` the texts; `changes` what
// is changed and `usual` the output without it, or null; `display` the options of the maps; `compared` the other side of a
// comparison, or null; `isMeasured` whether the effects of heads were shown; `previousCell` what `cell()` of an earlier display
// returned. `onOpen` receives what is open, `onChanges` a function from the latest changes to new ones, or null to remove all of
// them; `onDisplay` receives new options, `onCompare` another side; `onMeasured` is called when the effects are shown.
export function createAttentionDisplay(data, { open, models, model, requested, changes, usual, canUndo, display, compared, isMeasured, previousCell, onOpen, onChanges, onUndo, onDisplay, onCompare, onMeasured }) {
  const { writes } = data.maps.at(-1);
  const firstRow = Math.max(0, writes.findIndex((token) => token !== "")); // the row of the first step
  const body = { ...requestBody(requested, data), changes: changesToRequest(changes) };
  const steps = createNamedSteps(data, (step) => {
    if (current.kind === "encoder") steps.show(step); // the encoder runs once, before the first step
    else stepTo(step + firstRow);
  });
  const beam = createBeam(data, Boolean(requested.target && model.translates));
  const words = createWords(data, {
    changes, usual, canUndo, canBranch: model.translates,
    onHide: (positions, isHidden) => onChanges((current) => hide(current, positions, isHidden)),
    onBranch: (ids) => onChanges((current) => ({ ...current, from: ids })),
    onUndo,
    onReset: () => onChanges(null),
    onRemove: (removed) => onChanges((current) => withoutChange(current, removed)),
  });
  const cell = createHeadCell({
    connect: createRequests,
    loadBody: () => body,
    onWeight: ({ kind, layer, head, row, column }, weight) => onChanges((current) => setWeight(current, { kind, layer, head, row, column, weight })),
    onHead: (head) => map.open(current.kind, { layer: current.layer, head, cell: current.cell }),
    findChange: (where) => findWeight(changes, where),
    previous: previousCell,
  });
  const effects = createHeadEffects(data, {
    body, changes,
    onOpen: (kind, layer, head) => map.open(kind, { layer, head }),
    onSilence: (key, isSilent) => onChanges((current) => silence(current, [key], isSilent)),
    onWords: words.showEffects,
    isMeasured, onMeasured,
  });
  const compare = createCompare(data, { models, requested, initial: compared, onChange: onCompare });
  const tools = createHeadTools(data, changes, display, { onChanges, onDisplay });
  const legend = createPatternLegend(data);
  const container = make("div");
  const root = make("div", { class: "attention-content" }, words.root, container, effects.root, compare.root);
  const shown = transformed(data, display);
  const named = new Map(data.maps.map((each) => [each.kind, withTokenNames(data, each)]));
  let current = open;
  let map = null;
  let requestedRow = null; // the row of the step that is being opened; a joined row has several

  function onChange({ kind, layer, head, row, chosen, cell: selected }) {
    const shownMap = shown.maps.find((each) => each.kind === kind);
    const original = data.maps.find((each) => each.kind === kind);
    const toStep = (index) => (requestedRow !== null && rowOf(shownMap, requestedRow) === index ? requestedRow : originalRow(shownMap, index)) - firstRow;
    const step = chosen === null || toStep(chosen) < 0 ? null : toStep(chosen) + 1;
    const previous = current;
    current = { kind, layer, head, step, cell: selected };
    if (steps && kind !== "encoder") steps.show(clampIndex(row === null ? writes.length : toStep(row), data.steps));
    const isCell = selected.t !== null && selected.s !== null;
    const where = isCell ? originalCell(shownMap, original, current, selected) : null;
    tools.update(current);
    legend.update(kind, container.querySelector(".attention-heads"));
    compare.update({ kind, layer, head, cell: where && { t: where.row, s: where.column } });
    cell.show(where && { kind, layer, head, ...where, map: named.get(kind) });
    onOpen({ kind, layer, head: head ?? "mean", step, ...(where ?? { row: null, column: null }) }, Boolean(map) && previous.kind !== kind);
  }

  function stepTo(row) {
    const shownMap = shown.maps.find(({ kind }) => kind === current.kind);
    requestedRow = row;
    map.stepTo(rowOf(shownMap, row));
    requestedRow = null;
  }

  // Opens a kind, layer and head, and a step or cell, as the URL has them.
  function restore({ kind, layer, head, step, row, column }) {
    const shownMap = [kind, "cross"].map((name) => shown.maps.find((each) => each.kind === name)).find(Boolean) ?? shown.maps[0];
    const shownColumn = shownMap.columnGroups ? shownMap.columnGroups.findIndex((items) => items.includes(column)) : column;
    const isCell = typeof row === "number" && typeof column === "number";
    current = { ...current, kind: shownMap.kind }; // so that no history entry is added
    map.open(kind, { layer, head, ...(isCell && { cell: { t: rowOf(shownMap, row), s: shownColumn } }) });
    if (!isCell && step) stepTo(step - 1 + firstRow);
  }

  const stepsArea = steps && make("div", { class: "steps-area" }, steps.root); // the steps stay visible while this area does
  const more = [cell.root, stepsArea, beam].filter(Boolean);
  const isSilenced = (kind, layer, head) => changes.off.includes(headKey(kind, layer, head));
  map = createAttentionMap(container, { ...shown, open }, { onChange, more, headTools: [tools.root], overviewTools: [legend.root], showHeading: false, isSilenced });
  compare.start();
  if (open.step || typeof open.row === "number") restore(open);
  return {
    root,
    restore,
    close() {
      map.close();
      steps?.close();
      cell.close();
      effects.close();
      compare.close();
    },
    steps,
    cell: cell.remember,
    released: cell.released,
    stepCount: data.steps?.length ?? 0,
    showStep: (step) => stepTo(step + firstRow),
  };
}

// The texts of a request for the same pass as in this response.
function requestBody(requested, { written, maps, target }) {
  const { model, source } = requested;
  const isTranslation = maps.some(({ kind }) => kind === "cross") || (target !== null && requested.target === "");
  if (isTranslation && written?.length) return { model, source, written };
  return { model, source, ...(requested.target && { target: requested.target }) };
}

function transformed(data, { words, sinks }) {
  const joined = words ? joinPieces(data) : data;
  return sinks ? hideSinks(joined) : joined;
}

function withoutChange(changes, { off, hide: positions, set, from }) {
  if (off) return silence(changes, off, false);
  if (positions) return hide(changes, positions, false);
  if (set) return setWeight(changes, { ...set, weight: null });
  return from ? { ...changes, from: [] } : changes;
}

function createNamedSteps(data, onStep) {
  if (!data.steps?.length) return null;
  const name = createTokenNames(data);
  const steps = data.steps.map(({ token, top, ...rest }) => ({ ...rest, token: name(token), top: top.map((item) => ({ ...item, token: name(item.token) })) }));
  return createSteps(steps, onStep);
}

function createBeam(data, isGiven) {
  const name = createTokenNames(data);
  const nodes = data.beam?.nodes.map((node) => ({ ...node, ends: node.ends ?? data.special.includes(node.token), token: name(node.token) }));
  if (nodes?.length) return createBeamTree(nodes);
  if (!isGiven) return null;
  return make("section", { class: "attention-card no-beam", "aria-label": "Beam search" }, make("h2", {}, "Beam search"), make("p", { class: "hint" }, NO_BEAM));
}

// The pattern of the open head, buttons that silence it or its layer, and the options of the maps.
function createHeadTools(data, changes, display, { onChanges, onDisplay }) {
  const pattern = make("p", { class: "head-pattern" });
  const [silenceHead, silenceLayer] = [make("button", { type: "button" }), make("button", { type: "button" })];
  const options = [["words", "join pieces into words"], ["sinks", "hide sinks"]].map(([key, text]) => {
    const input = make("input", { type: "checkbox", ...(display[key] && { checked: "" }) });
    input.addEventListener("change", () => onDisplay({ ...display, [key]: input.checked }));
    return make("label", {}, input, ` ${text}`);
  });
  const root = make("div", { class: "head-tools" }, pattern, make("div", { class: "tools" }, silenceHead, silenceLayer, ...options));
  let current = null;

  function layerHeads({ kind, layer }) {
    const { weights } = data.maps.find((each) => each.kind === kind);
    return weights[layer].map((_, head) => headKey(kind, layer, head));
  }

  function update(open) {
    const { kind, layer, head } = open;
    if (current && current.kind === kind && current.layer === layer && current.head === head) return;
    current = open;
    const measured = head === null ? null : data.patterns?.[kind]?.[layer]?.[head];
    pattern.hidden = !measured;
    if (measured) pattern.replaceChildren("Pattern: ", make("b", {}, describePattern(measured)), make("span", { class: "hint" }, ` Rule: ${data.pattern_rules[measured.label]}.`));
    const isOff = (key) => changes.off.includes(key);
    silenceHead.hidden = head === null;
    if (head !== null) silenceHead.textContent = isOff(headKey(kind, layer, head)) ? "Restore this head" : "Silence this head";
    silenceLayer.textContent = layerHeads(open).every(isOff) ? "Restore this layer" : "Silence this layer";
  }

  silenceHead.addEventListener("click", () => {
    const key = headKey(current.kind, current.layer, current.head);
    onChanges((latest) => silence(latest, [key], !changes.off.includes(key)));
  });
  silenceLayer.addEventListener("click", () => {
    const heads = layerHeads(current);
    onChanges((latest) => silence(latest, heads, !heads.every((key) => changes.off.includes(key))));
  });
  return { root, update };
}
