// The formulas of the labs that need no training, as in regard/labs: matrices are arrays of rows. Each function is held equal
// to its counterpart in Python by tests/server/test_page_formulas.py.

const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const norm = (a) => Math.sqrt(dot(a, a));
const mean = (list) => list.reduce((sum, value) => sum + value, 0) / list.length;
const scale = (a, factor) => a.map((value) => value * factor);
const add = (a, b) => a.map((value, i) => value + b[i]);

// The variance of a sample, divided by n − 1.
export function variance(list) {
  const centre = mean(list);
  return list.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (list.length - 1);
}

export function softmax(scores) {
  const largest = Math.max(...scores);
  const exponentials = scores.map((score) => Math.exp(score - largest));
  const total = exponentials.reduce((sum, value) => sum + value, 0);
  return exponentials.map((value) => value / total);
}

// The sum of rows, each multiplied by its weight.
function weightedSum(weights, rows) {
  const sum = new Array(rows[0].length).fill(0);
  weights.forEach((weight, i) => rows[i].forEach((value, j) => (sum[j] += weight * value)));
  return sum;
}

// The distance between output and target, relative to the length of the target.
const relativeDistance = (output, target) => norm(add(output, scale(target, -1))) / norm(target);

// Normal random numbers that depend on the seed only.
export function normalNumbers(seed) {
  let state = seed >>> 0;
  const uniform = () => { // mulberry32
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}

export function randomMatrix(rows, columns, draw) {
  return Array.from({ length: rows }, () => Array.from({ length: columns }, draw));
}

// Orthonormal rows, by Gram and Schmidt.
export function orthonormalRows(rows) {
  const found = [];
  for (const row of rows) {
    const rest = found.reduce((left, other) => add(left, scale(other, -dot(left, other))), row);
    found.push(scale(rest, 1 / norm(rest)));
  }
  return found;
}

// Lab scaling: the variance of scores, the entropy of weights as a share of its maximum, and the length of the gradient at the
// scores for this gradient at the weights (`noise`). `divides` says whether scores are divided by √h.
export function measureScaling(queries, keys, noise, divides) {
  const divisor = divides ? Math.sqrt(queries[0].length) : 1;
  const scores = queries.map((query) => keys.map((key) => dot(query, key) / divisor));
  const weights = scores.map(softmax);
  const entropy = (row) => row.reduce((sum, p) => sum - (p > 0 ? p * Math.log(p) : 0), 0);
  const gradient = (row, outer) => {
    const average = dot(row, outer);
    return norm(row.map((p, i) => p * (outer[i] - average)));
  };
  return {
    variance: variance(scores.flat()),
    entropy: mean(weights.map(entropy)) / Math.log(keys.length),
    gradient: mean(weights.map((row, i) => gradient(row, noise[i]))),
  };
}

// Lab copy: the error of the output at each lead of the first key's score. `others` are the scores of the other keys.
export function copyErrors(others, values, leads) {
  return leads.map((lead) => relativeDistance(weightedSum(softmax([lead, ...others]), values), values[0]));
}

// The lead at which the other keys together get a weight of `error`.
export function predictedLead(keys, error = 0.01) {
  return Math.log((1 / error - 1) * (keys - 1));
}

// Lab average: the weights of the first two values and the error against their mean, for the query β(k_a + k_b).
export function mixTwo(keys, values, beta) {
  const query = scale(add(keys[0], keys[1]), beta);
  const weights = softmax(keys.map((key) => dot(query, key)));
  const target = scale(add(values[0], values[1]), 0.5);
  return { error: relativeDistance(weightedSum(weights, values), target), weightA: weights[0], weightB: weights[1] };
}

// Labs one-head and two-heads. In the direction of a mean, the scores of keys with orthonormal means depend only on the keys'
// products with the means: `products[key]` has those of each key with μ_a and μ_b. The weights of the heads, averaged.
export function headWeights(products, beta, heads) {
  const queries = heads === 1 ? [[1, 1]] : [[1, 0], [0, 1]];
  const each = queries.map((query) => softmax(products.map((product) => beta * dot(query, product))));
  return each[0].map((_, key) => mean(each.map((weights) => weights[key])));
}

// The variance of outputs between samples, as a share of that of a coin toss between the first two values.
export function outputVariance(weightsOfSamples, values) {
  const outputs = weightsOfSamples.map((weights) => weightedSum(weights, values));
  const total = values[0].reduce((sum, _, d) => sum + variance(outputs.map((output) => output[d])), 0);
  const half = scale(add(values[0], scale(values[1], -1)), 0.5);
  return total / dot(half, half);
}

// The probability that a standard normal number is at most x.
export function normalCdf(x) {
  const z = Math.abs(x) / Math.SQRT2;
  let tail;
  if (z < 3) { // the series of erf
    let [term, sum] = [z, z];
    for (let n = 1; Math.abs(term) > 1e-17 * sum && n < 200; n += 1) {
      term *= -(z * z) / n;
      sum += term / (2 * n + 1);
    }
    tail = 0.5 - sum / Math.sqrt(Math.PI);
  } else { // the continued fraction of erfc
    let fraction = 0;
    for (let n = 60; n > 0; n -= 1) fraction = n / 2 / (z + fraction);
    tail = Math.exp(-z * z) / Math.sqrt(Math.PI) / (z + fraction) / 2;
  }
  return x > 0 ? 1 - tail : tail;
}

// The probability that k_a is reversed, and that one of two values has 90% of the weight if it is not.
export function predictReversed(lengthVariance, alpha) {
  return normalCdf(-1 / Math.sqrt(lengthVariance + alpha));
}

export function predictSingle(beta, lengthVariance, alpha) {
  const deviation = beta * Math.sqrt(4 * alpha + lengthVariance);
  const cdf = (x) => normalCdf(x / deviation);
  if (lengthVariance === 0) return 2 * cdf(-Math.log(9));
  return (Math.max(0, cdf(-Math.log(9)) - cdf(-beta)) + cdf(-Math.log(9))) / cdf(beta);
}

// The probability that the other keys outweigh k_a in its own head, given that it is not reversed.
export function predictMisses(beta, keys, lengthVariance, alpha) {
  const cdf = (x) => normalCdf((x - beta) / (beta * Math.sqrt(lengthVariance + alpha)));
  return (cdf(Math.log(keys - 1)) - cdf(0)) / (1 - cdf(0));
}

// Lab positions: the sinusoids of a position.
export function sinusoids(position, width) {
  return Array.from({ length: width }, (_, i) => {
    const angle = position * 10000 ** (-(i - (i % 2)) / width);
    return i % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

// The product of two position vectors, which depends on their distance only.
export function positionProduct(distance, width) {
  return dot(sinusoids(0, width), sinusoids(distance, width));
}

// Lab schedule: the learning rate at step 1, 2, …, as regard.training.schedule computes it.
export function learningRate(step, { warmup, width, steps, schedule, peak = null, end = 0 }) {
  const highest = peak ?? (width * Math.max(1, warmup)) ** -0.5;
  if (step <= warmup) return (highest * step) / warmup;
  if (schedule === "constant") return highest;
  if (schedule === "inverse-sqrt") return highest * Math.sqrt(Math.max(1, warmup) / step);
  const done = Math.min(1, (step - warmup) / Math.max(1, steps - warmup));
  const remaining = schedule === "linear" ? 1 - done : (1 + Math.cos(Math.PI * done)) / 2;
  return highest * (end + (1 - end) * remaining);
}
