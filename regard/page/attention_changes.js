// What is changed in the attention of a model: silenced heads, hidden source tokens, replaced weights, and the beginning that
// a translation must have. A set of changes is a plain object that never changes itself; the URL contains it.

import { percent, visibleToken } from "./dom.js";
import { joinLabels, withTokenNames } from "./token_names.js";

export const NO_CHANGES = Object.freeze({ off: [], hide: [], set: [], from: [] });
const KINDS = ["encoder", "decoder", "cross"];
const HEAD_PATTERN = /^(encoder|decoder|cross)\.(\d{1,3})\.(\d{1,3})$/;
const CELL_PATTERN = /^(encoder|decoder|cross)\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/; // the last number is in thousandths

export const headKey = (kind, layer, head) => `${kind}.${layer}.${head}`;
export const layerName = (kind, layer) => `${kind === "cross" ? "cross-attention" : kind} layer ${layer}`;
const cellKey = ({ kind, layer, head, row, column }) => `${headKey(kind, layer, head)}.${row}.${column}`;

export function hasChanges({ off, hide, set, from }) {
  return off.length + hide.length + set.length + from.length > 0;
}

export function isSame(a, b) {
  return JSON.stringify(changesToUrl(a)) === JSON.stringify(changesToUrl(b));
}

// The changes as options of the URL; options without changes are null.
export function changesToUrl({ off, hide, set, from }) {
  const joined = (list) => (list.length ? list.join("_") : null);
  const cells = set.map((change) => `${cellKey(change)}.${Math.min(999, Math.round(1000 * change.weight))}`);
  return { off: joined(off), hide: joined(hide), set: joined(cells), from: joined(from) };
}

// The changes that a URL contains. Anything invalid is ignored.
export function changesFromUrl(options) {
  const list = (name) => (options.get(name) ?? "").split("_").filter(Boolean);
  const numbers = (name) => list(name).filter((text) => /^\d{1,9}$/.test(text)).map(Number);
  const cells = list("set").map((text) => CELL_PATTERN.exec(text)).filter(Boolean);
  const set = cells.map(([, kind, ...rest]) => {
    const [layer, head, row, column, thousandths] = rest.map(Number);
    return { kind, layer, head, row, column, weight: thousandths / 1000 };
  });
  return { off: list("off").filter((text) => HEAD_PATTERN.test(text)), hide: numbers("hide"), set, from: numbers("from") };
}

// The changes as the server takes them.
export function changesToRequest({ off, hide, set }) {
  const heads = off.map((text) => HEAD_PATTERN.exec(text)).map(([, kind, layer, head]) => ({ kind, layer: Number(layer), head: Number(head) }));
  return { silenced: heads, hidden: hide, weights: set };
}

// The changes of a request, and the beginning of the translation.
export function changesFromRequest({ silenced, hidden, weights }, beginning) {
  return { off: silenced.map(({ kind, layer, head }) => headKey(kind, layer, head)), hide: hidden, set: weights, from: beginning };
}

// Each change in words, with what `onRemove` of the words needs to remove it. `data` is the response that has the changes.
export function describeChanges(changes, data) {
  const { keys } = withTokenNames(data, data.maps.find(({ kind }) => kind === "encoder" || kind === "cross") ?? data.maps[0]);
  const text = (positions) => visibleToken(joinLabels(positions.map((position) => keys[position])));
  const isHidden = (positions) => positions.every((position) => changes.hide.includes(position));
  const count = changes.from.length;
  return [
    ...byLayer(changes.off).map(([heads, removed]) => [`${heads} silenced`, { off: removed }]),
    ...wordPositions(keys, data.words?.source ?? data.words?.target).filter(isHidden).map((positions) => [`“${text(positions)}” hidden`, { hide: positions }]),
    ...changes.set.map((change) => [`${layerName(change.kind, change.layer)}, head ${change.head}: a weight set to ${percent(change.weight)}`, { set: change }]),
    ...(count ? [[count === 1 ? "first token chosen" : `first ${count} tokens chosen`, { from: true }]] : []),
  ];
}

// The positions of the tokens of each word.
export function wordPositions(tokens, words) {
  const result = [];
  tokens.forEach((_, i) => {
    if (words && i > 0 && words[i] === words[i - 1]) result.at(-1).push(i);
    else result.push([i]);
  });
  return result;
}

// Silenced heads by layer, in words.
function byLayer(keys) {
  const layers = new Map();
  for (const key of sortHeads(keys)) {
    const [kind, layer, head] = key.split(".");
    const name = layerName(kind, layer);
    layers.set(name, [...(layers.get(name) ?? []), { head, key }]);
  }
  return [...layers].map(([name, heads]) => [`${name}, ${heads.length === 1 ? "head" : "heads"} ${joinNumbers(heads.map(({ head }) => head))}`, heads.map(({ key }) => key)]);
}

const joinNumbers = (numbers) => (numbers.length > 1 ? `${numbers.slice(0, -1).join(", ")} and ${numbers.at(-1)}` : `${numbers}`);

const toggled = (list, items, isOn) => (isOn ? [...new Set([...list, ...items])] : list.filter((item) => !items.includes(item)));

function sortHeads(keys) {
  const order = (key) => KINDS.indexOf(key.split(".")[0]) * 1e6 + Number(key.split(".")[1]) * 1e3 + Number(key.split(".")[2]);
  return [...keys].sort((a, b) => order(a) - order(b));
}

export function silence(changes, heads, isSilent) {
  return { ...changes, off: sortHeads(toggled(changes.off, heads, isSilent)) };
}

export function hide(changes, positions, isHidden) {
  return { ...changes, hide: toggled(changes.hide, positions, isHidden).sort((a, b) => a - b) };
}

// A row has one replaced weight at a time: the others are rescaled, so that a second one would change the first.
export function setWeight(changes, change) {
  const isSameRow = (other) => ["kind", "layer", "head", "row"].every((name) => other[name] === change[name]);
  const others = changes.set.filter((other) => !isSameRow(other));
  return { ...changes, set: change.weight === null ? others : [...others, change] };
}

export function findWeight(changes, { kind, layer, head, row }) {
  return changes.set.find((change) => change.kind === kind && change.layer === layer && change.head === head && change.row === row) ?? null;
}
