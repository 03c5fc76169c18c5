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

// The weights of a row with one replaced, as the server computes them: the others keep their proportions.
export function withReplacedWeight(weights, column, weight) {
  const total = weights.reduce((sum, value, s) => (s === column ? sum : sum + value), 0);
  if (total === 0 || weights[column] === 0) return weights;
  return weights.map((value, s) => (s === column ? weight : (value * (1 - weight)) / total));
}
