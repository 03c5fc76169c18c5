// Small computations with lists of numbers.

export function mean(list) {
  return list.reduce((sum, value) => sum + value, 0) / list.length;
}

export function indexOfLargest(list) {
  return list.indexOf(Math.max(...list));
}

// The mean of the heads of a layer, cell by cell.
export function meanOfHeads(heads) {
  return heads[0].map((row, t) => row.map((_, s) => mean(heads.map((head) => head[t][s]))));
}
