// Names for what a head does, by the measured rules of regard/decoding/head_patterns.py.

import { indexOfLargest, mean } from "./numbers.js";

const average = (values) => (values.length ? mean(values) : 0);
const sum = (values) => values.reduce((total, value) => total + value, 0);

// The pattern of every head of a map, by layer. `special` has the labels of special tokens, `thresholds` the numbers of the rules.
export function mapPatterns({ kind, queries, keys, writes, weights }, special, thresholds) {
  const isWord = (label) => !special.includes(label) && /[\p{L}\p{N}]/u.test(label);
  const rows = queries.map((read, t) => isWord(writes[t] || read));
  const isRow = (t) => rows[t] || !rows.includes(true);
  const sinks = keys.map((key) => !isWord(key));
  return weights.map((layer) => layer.map((head) => headPattern(kind, head, { isRow, sinks, special: keys.map((key) => special.includes(key)) }, thresholds)));
}

function headPattern(kind, weights, { isRow, sinks, special }, { most, alignedRows, broadEntropy }) {
  const diagonal = (offset, first = 0) => average(weights.flatMap((row, t) => (t >= first && t + offset >= 0 && t + offset < row.length ? [row[t + offset]] : [])));
  const words = weights.filter((_, t) => isRow(t));
  const shares = kind === "cross" ? [] : [
    ["previous token", diagonal(-1)],
    ...(kind === "encoder" ? [["next token", diagonal(1)]] : []),
    ["same token", diagonal(0, 1)],
    ["first token", average(weights.slice(1).map((row) => row[0]))],
  ];
  shares.push(["sink", average(words.map((row) => sum(row.filter((_, s) => sinks[s]))))]);
  const found = shares.find(([, share]) => share >= most);
  if (found) return { label: found[0], share: found[1] };
  const columns = words.map(indexOfLargest);
  const largest = average(words.map((row, i) => row[columns[i]]));
  const different = new Set(columns.filter((s) => !special[s])).size / Math.max(1, words.length);
  if (kind === "cross" && largest >= most && different >= alignedRows) return { label: "aligned", share: largest };
  const entropy = relativeEntropy(weights);
  return entropy >= broadEntropy ? { label: "broad", share: entropy } : { label: "mixed", share: 0 };
}

// The mean entropy of the rows, relative to that of equal weights on the keys that each row attends to.
function relativeEntropy(weights) {
  const rows = weights.map((row) => row.filter((weight) => weight > 0)).filter(({ length }) => length > 1);
  return average(rows.map((row) => sum(row.map((weight) => -weight * Math.log(weight))) / Math.log(row.length)));
}
