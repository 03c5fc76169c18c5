// The paper's encoder–decoder in plain JavaScript, for one sentence: the same computation as regard/model, in float32.
// A matrix is { rows, columns, data }, with a row for each token.

import { withReplacedWeight } from "./numbers.js";

const NORM_EPSILON = 1e-5; // of the layer norms
export const NO_REQUESTED_CHANGES = Object.freeze({ silenced: [], hidden: [], weights: [] });

const matrix = (rows, columns, data = new Float32Array(rows * columns)) => ({ rows, columns, data });

// Reads a safetensors file whose tensors are bfloat16: the upper halves of float32 numbers.
export function readWeights(buffer) {
  const headerLength = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, headerLength)));
  const start = 8 + headerLength;
  return Object.fromEntries(Object.entries(header).filter(([name]) => name !== "__metadata__").map(([name, { shape, dtype, data_offsets: [from, to] }]) => {
    if (dtype !== "BF16") throw new Error(`${name} is ${dtype}, not BF16`);
    const halves = new Uint16Array(buffer.slice(start + from, start + to));
    const bits = Uint32Array.from(halves, (half) => half << 16);
    return [name, matrix(shape.length > 1 ? shape[0] : 1, shape.at(-1), new Float32Array(bits.buffer))];
  }));
}

// x times the transpose of the weights, plus the bias.
function linear(x, weight, bias) {
  const y = matrix(x.rows, weight.rows);
  const [inputs, outputs, from, by] = [x.columns, weight.rows, x.data, weight.data];
  for (let r = 0; r < x.rows; r++) {
    for (let o = 0; o < outputs; o++) {
      let sum = bias ? bias.data[o] : 0;
      const [a, b] = [r * inputs, o * inputs];
      for (let i = 0; i < inputs; i++) sum += from[a + i] * by[b + i];
      y.data[r * outputs + o] = sum;
    }
  }
  return y;
}

function add(x, y) {
  return matrix(x.rows, x.columns, x.data.map((value, i) => value + y.data[i]));
}

function append(x, y) {
  const data = new Float32Array(x.data.length + y.data.length);
  data.set(x.data);
  data.set(y.data, x.data.length);
  return matrix(x.rows + y.rows, x.columns, data);
}

function normalise(x, weight, bias) {
  const y = matrix(x.rows, x.columns);
  for (let r = 0; r < x.rows; r++) {
    const row = x.data.subarray(r * x.columns, (r + 1) * x.columns);
    const mean = row.reduce((sum, value) => sum + value, 0) / x.columns;
    const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.columns;
    const scale = 1 / Math.sqrt(variance + NORM_EPSILON);
    row.forEach((value, i) => { y.data[r * x.columns + i] = (value - mean) * scale * weight.data[i] + bias.data[i]; });
  }
  return y;
}

// The softmax of the allowed scores. All weights are zero if none is allowed.
function softmax(scores, allowed) {
  const largest = Math.max(...scores.filter((_, s) => allowed[s]));
  const powers = scores.map((score, s) => (allowed[s] ? Math.exp(score - largest) : 0));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => (sum ? power / sum : 0));
}

function dot(x, row, y, other, from, to) {
  let sum = 0;
  for (let i = from; i < to; i++) sum += x.data[row * x.columns + i] * y.data[other * y.columns + i];
  return sum;
}

// Every head of one attention: softmax(q kᵀ / √d) v. `isAllowed(t, s)` is the mask; `change(h, t, row)` returns a row of weights
// as it is to be, and `isSilenced(h)` says whether the output of a head is to be zero. The result has the output, and of each head
// the weights that were used and those that were computed.
function attend({ q, k, v }, heads, { isAllowed, change, isSilenced }) {
  const width = q.columns / heads;
  const output = matrix(q.rows, q.columns);
  const [used, computed] = [[], []];
  for (let h = 0; h < heads; h++) {
    const [from, to] = [h * width, (h + 1) * width];
    const rows = Array.from({ length: q.rows }, (_, t) => {
      const scores = Array.from({ length: k.rows }, (_, s) => dot(q, t, k, s, from, to) / Math.sqrt(width));
      return softmax(scores, scores.map((_, s) => isAllowed(t, s)));
    });
    const changed = rows.map((row, t) => change(h, t, row));
    if (!isSilenced(h)) {
      changed.forEach((row, t) => row.forEach((weight, s) => {
        for (let i = from; i < to; i++) output.data[t * q.columns + i] += weight * v.data[s * v.columns + i];
      }));
    }
    computed.push(rows);
    used.push(changed);
  }
  return { output, used, computed };
}

export function createTransformer(weights, { d_model: width, heads, layers }) {
  const part = (name) => [weights[`${name}.weight`], weights[`${name}.bias`]];
  const embedding = weights["embedding.tokens.weight"];
  const outputs = matrix(embedding.rows - 1, width, embedding.data.subarray(0, (embedding.rows - 1) * width)); // <pad> is never predicted

  // Embeddings times √width, plus the paper's sinusoids.
  function embed(ids, offset = 0) {
    const x = matrix(ids.length, width);
    ids.forEach((id, row) => {
      for (let i = 0; i < width; i++) {
        const angle = (row + offset) / 10000 ** ((i - (i % 2)) / width);
        x.data[row * width + i] = embedding.data[id * width + i] * Math.sqrt(width) + (i % 2 ? Math.cos(angle) : Math.sin(angle));
      }
    });
    return x;
  }

  // One attention, with what is changed in it. Queries start at the position `offset`; `keys` has the keys and values if they are
  // known already.
  function multiHead(name, x, memory, { kind, layer, offset = 0, keys = null, changes }) {
    const project = (letter, input) => linear(input, ...part(`${name}.${letter}`));
    const call = { q: project("q", x), k: keys?.k ?? project("k", memory), v: keys?.v ?? project("v", memory) };
    const isHere = (change) => change.kind === kind && change.layer === layer;
    const replacements = changes.weights.filter(isHere);
    const isAllowed = (t, s) => (kind === "decoder" ? s <= t + offset : !changes.hidden.includes(s));
    const result = attend(call, heads, {
      isAllowed,
      change: (h, t, row) => replacements.filter(({ head, row: at, column }) => head === h && at === t + offset && column < row.length)
        .reduce((shares, { column, weight }) => withReplacedWeight(shares, column, weight), row),
      isSilenced: (h) => changes.silenced.some((change) => isHere(change) && change.head === h),
    });
    return { output: linear(result.output, ...part(`${name}.out`)), call: { ...call, ...result, isAllowed } };
  }

  function feedForward(name, x) {
    const inner = linear(x, ...part(`${name}.up`));
    inner.data.forEach((value, i) => { inner.data[i] = Math.max(0, value); });
    return linear(inner, ...part(`${name}.down`));
  }

  // The vectors after each layer, and every attention by kind and layer.
  function encode(ids, changes = NO_REQUESTED_CHANGES) {
    let x = embed(ids);
    const calls = [];
    for (let layer = 0; layer < layers; layer++) {
      const prefix = `encoder.layers.${layer}`;
      const y = normalise(x, ...part(`${prefix}.attention_norm`));
      const { output, call } = multiHead(`${prefix}.attention`, y, y, { kind: "encoder", layer, changes });
      x = add(x, output);
      x = add(x, feedForward(`${prefix}.feed_forward`, normalise(x, ...part(`${prefix}.feed_forward_norm`))));
      calls.push(call);
    }
    return { memory: normalise(x, ...part("encoder.norm")), calls };
  }

  // Reads ids after those whose keys and values are in `past`, which is empty at first: the logits of the token after each of
  // them, every attention, the vectors after each layer, and the past of the next ids.
  function decode(ids, memory, changes = NO_REQUESTED_CHANGES, past = []) {
    const offset = past[0]?.own.k.rows ?? 0;
    let x = embed(ids, offset);
    const [states, calls, crossCalls, next] = [[x], [], [], []];
    for (let layer = 0; layer < layers; layer++) {
      const prefix = `decoder.layers.${layer}`;
      const y = normalise(x, ...part(`${prefix}.attention_norm`));
      const [k, v] = ["k", "v"].map((letter) => {
        const added = linear(y, ...part(`${prefix}.attention.${letter}`));
        return past[layer] ? append(past[layer].own[letter], added) : added;
      });
      const own = multiHead(`${prefix}.attention`, y, y, { kind: "decoder", layer, offset, keys: { k, v }, changes });
      x = add(x, own.output);
      const query = normalise(x, ...part(`${prefix}.cross_attention_norm`));
      const cross = multiHead(`${prefix}.cross_attention`, query, memory, { kind: "cross", layer, offset, keys: past[layer]?.cross, changes });
      x = add(x, cross.output);
      x = add(x, feedForward(`${prefix}.feed_forward`, normalise(x, ...part(`${prefix}.feed_forward_norm`))));
      states.push(x);
      calls.push(own.call);
      crossCalls.push(cross.call);
      next.push({ own: { k, v }, cross: { k: cross.call.k, v: cross.call.v } });
    }
    return { logits: stateLogits(x), states, calls, crossCalls, past: next };
  }

  // The logits of vectors, as if they were those of the last layer.
  function stateLogits(x) {
    return linear(normalise(x, ...part("decoder.norm")), outputs, null);
  }

  return { encode, decode, stateLogits, heads, outputs: outputs.rows };
}

// The rows of a matrix as lists; with `head`, the part of that head.
export function rowsOf({ rows, columns, data }, head = 0, heads = 1) {
  const width = columns / heads;
  return Array.from({ length: rows }, (_, r) => Array.from(data.subarray(r * columns + head * width, r * columns + (head + 1) * width)));
}

export function logSoftmax(logits) {
  const largest = logits.reduce((a, b) => Math.max(a, b));
  const total = Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - largest), 0)) + largest;
  return Array.from(logits, (logit) => logit - total);
}

// The indices of the largest numbers, largest first; of equal ones, the first.
export function largestIndices(numbers, count) {
  const best = [];
  numbers.forEach((number, i) => {
    if (best.length === count && !(number > numbers[best.at(-1)])) return;
    let at = best.length;
    while (at > 0 && number > numbers[best[at - 1]]) at--;
    best.splice(at, 0, i);
    if (best.length > count) best.pop();
  });
  return best;
}
