// Other ways to show attention maps: pieces joined into words, and sinks hidden. Each function returns data whose maps have
// `rowGroups` and `columnGroups`: the original rows and columns of each row and column.

import { mean } from "./numbers.js";
import { joinLabels, withTokenNames } from "./token_names.js";

const range = (count) => Array.from({ length: count }, (_, i) => i);

// Joins the rows and columns of the pieces of each word. Columns are added up, rows are averaged.
export function joinPieces(data) {
  return transform(data, (map) => ({ rows: group(rowWords(data, map)), columns: group(columnWords(data, map)) }));
}

// Leaves out special tokens and punctuation, and the first token of a language model, which get the attention that a head
// does not need. The weights that remain are rescaled to add up to 1.
export function hideSinks(data) {
  return transform(data, (map) => {
    const named = withTokenNames(data, map).names.keys;
    const isSink = (s) => data.special.includes(named[s]) || !/[\p{L}\p{N}]/u.test(named[s]) || (s === 0 && map.kind === "decoder");
    const columns = map.keys.map((_, s) => [s]).filter(([s]) => !isSink(s));
    return { rows: map.queries.map((_, t) => [t]), columns: columns.length ? columns : map.keys.map((_, s) => [s]), rescale: true };
  });
}

function transform(data, groupsOf) {
  const maps = data.maps.map((map) => transformMap(map, groupsOf(map)));
  const moved = (groups, i) => groups.findIndex((items) => items.includes(i));
  const cross = maps.find(({ kind }) => kind === "cross");
  const original = data.maps.find(({ kind }) => kind === "cross");
  const indexIn = (groups, before, i) => moved(groups, before ? before[i][0] : i);
  const gold = cross && data.gold?.map(([t, s]) => [indexIn(cross.rowGroups, original.rowGroups, t), indexIn(cross.columnGroups, original.columnGroups, s)]).filter(([t, s]) => t >= 0 && s >= 0);
  return { ...data, maps, ...(gold && { gold }) };
}

function transformMap(map, { rows, columns, rescale = false }) {
  const joined = (tokens, groups) => groups.map((items) => joinLabels(items.map((i) => tokens[i])));
  const weights = map.weights.map((layer) => layer.map((head) => rows.map((t) => {
    const row = columns.map((items) => items.reduce((sum, s) => sum + mean(t.map((i) => head[i][s])), 0));
    const total = row.reduce((sum, weight) => sum + weight, 0);
    return rescale && total > 0 ? row.map((weight) => weight / total) : row;
  })));
  const original = (groups, before) => (before ? groups.map((items) => items.flatMap((i) => before[i])) : groups);
  const writes = map.writes.length ? joined(map.writes, rows) : [];
  // A row of a decoder reads what the row before it wrote.
  const queries = writes.length ? rows.map(([first], r) => writes[r - 1] || map.queries[first]) : joined(map.queries, rows);
  return { ...map, weights, queries, keys: joined(map.keys, columns), writes,
    rowGroups: original(rows, map.rowGroups), columnGroups: original(columns, map.columnGroups) };
}

function group(words) {
  const result = [];
  words.forEach((word, i) => (i && word === words[i - 1] ? result.at(-1).push(i) : result.push([i])));
  return result;
}

// The word of each row: the one that is read or, in a decoder, the one that is written.
function rowWords(data, map) {
  const words = map.kind === "encoder" ? data.words?.source ?? data.words?.target : data.words?.target;
  if (!words) return range(map.queries.length);
  return map.writes.length ? map.queries.map((_, t) => words[t + 1] ?? Infinity) : words;
}

function columnWords(data, map) {
  const words = map.kind === "decoder" ? data.words?.target : data.words?.source ?? data.words?.target;
  return words ?? range(map.keys.length);
}

// The row of a map that shows an original row, and the original cell behind a cell: of several, the one with the most weight.
export function rowOf(map, row) {
  return map.rowGroups ? map.rowGroups.findIndex((items) => items.includes(row)) : row;
}

export function originalRow(map, row) {
  return map.rowGroups ? map.rowGroups[row].at(-1) : row;
}

export function originalCell(map, original, { layer, head }, { t, s }) {
  if (!map.rowGroups) return { row: t, column: s };
  const weight = (row, column) => (head === null ? mean(original.weights[layer].map((each) => each[row][column])) : original.weights[layer][head][row][column]);
  const cells = map.rowGroups[t].flatMap((row) => map.columnGroups[s].map((column) => ({ row, column })));
  return cells.sort((a, b) => weight(b.row, b.column) - weight(a.row, a.column))[0];
}
