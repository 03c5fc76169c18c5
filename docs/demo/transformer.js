// The paper's encoder–decoder in plain JavaScript, for one sentence: the same computation as regard/model, in float32.
// A matrix is { rows, columns, data }, with a row for each token.

const EPSILON = 1e-5; // of the layer norms

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
  for (let r = 0; r < x.rows; r++) {
    for (let o = 0; o < weight.rows; o++) {
      let sum = bias ? bias.data[o] : 0;
      for (let i = 0; i < x.columns; i++) sum += x.data[r * x.columns + i] * weight.data[o * x.columns + i];
      y.data[r * y.columns + o] = sum;
    }
  }
  return y;
}

function add(x, y) {
  return matrix(x.rows, x.columns, x.data.map((value, i) => value + y.data[i]));
}

function normalise(x, weight, bias) {
  const y = matrix(x.rows, x.columns);
  for (let r = 0; r < x.rows; r++) {
    const row = x.data.subarray(r * x.columns, (r + 1) * x.columns);
    const mean = row.reduce((sum, value) => sum + value, 0) / x.columns;
    const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.columns;
    const scale = 1 / Math.sqrt(variance + EPSILON);
    row.forEach((value, i) => { y.data[r * x.columns + i] = (value - mean) * scale * weight.data[i] + bias.data[i]; });
  }
  return y;
}

function softmax(scores) {
  const largest = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - largest));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

// softmax(q kᵀ / √d) v for each head; with `causal`, a token sees itself and those before it. The weights go to `seen`.
function attend(q, k, v, heads, causal, seen) {
  const width = q.columns / heads;
  const output = matrix(q.rows, q.columns);
  for (let h = 0; h < heads; h++) {
    const weights = [];
    for (let t = 0; t < q.rows; t++) {
      const visible = causal ? t + 1 : k.rows;
      const scores = Array.from({ length: visible }, (_, s) => {
        let sum = 0;
        for (let i = h * width; i < (h + 1) * width; i++) sum += q.data[t * q.columns + i] * k.data[s * k.columns + i];
        return sum / Math.sqrt(width);
      });
      const row = softmax(scores);
      weights.push([...row, ...new Array(k.rows - visible).fill(0)]);
      for (let i = h * width; i < (h + 1) * width; i++) {
        output.data[t * q.columns + i] = row.reduce((sum, weight, s) => sum + weight * v.data[s * v.columns + i], 0);
      }
    }
    seen.push(weights);
  }
  return output;
}

export function createTransformer(weights, { d_model: width, heads, layers }) {
  const part = (name) => [weights[`${name}.weight`], weights[`${name}.bias`]];
  const embedding = weights["embedding.tokens.weight"];

  // Embeddings times √width, plus the paper's sinusoids.
  function embed(ids) {
    const x = matrix(ids.length, width);
    ids.forEach((id, position) => {
      for (let i = 0; i < width; i++) {
        const angle = position / 10000 ** ((i - (i % 2)) / width);
        x.data[position * width + i] = embedding.data[id * width + i] * Math.sqrt(width) + (i % 2 ? Math.cos(angle) : Math.sin(angle));
      }
    });
    return x;
  }

  function multiHead(name, x, memory, causal, seen) {
    const [q, k, v] = ["q", "k", "v"].map((letter) => linear(letter === "q" ? x : memory, ...part(`${name}.${letter}`)));
    return linear(attend(q, k, v, heads, causal, seen), ...part(`${name}.out`));
  }

  function feedForward(name, x) {
    const inner = linear(x, ...part(`${name}.up`));
    inner.data.forEach((value, i) => { inner.data[i] = Math.max(0, value); });
    return linear(inner, ...part(`${name}.down`));
  }

  function stack(name, x, memory, seen) {
    for (let layer = 0; layer < layers; layer++) {
      const prefix = `${name}.layers.${layer}`;
      const isDecoder = memory !== null;
      const [own, cross] = [[], []];
      const y = normalise(x, ...part(`${prefix}.attention_norm`));
      x = add(x, multiHead(`${prefix}.attention`, y, y, isDecoder, own));
      if (isDecoder) x = add(x, multiHead(`${prefix}.cross_attention`, normalise(x, ...part(`${prefix}.cross_attention_norm`)), memory, false, cross));
      x = add(x, feedForward(`${prefix}.feed_forward`, normalise(x, ...part(`${prefix}.feed_forward_norm`))));
      seen.own.push(own);
      if (isDecoder) seen.cross.push(cross);
    }
    return normalise(x, ...part(`${name}.norm`));
  }

  function encode(ids) {
    const seen = { own: [] };
    return { memory: stack("encoder", embed(ids), null, seen), weights: seen.own };
  }

  // Logits of the token after each token of the target, and all weights. The last id, <pad>, is never predicted.
  function decode(ids, memory) {
    const seen = { own: [], cross: [] };
    const hidden = stack("decoder", embed(ids), memory, seen);
    const outputs = matrix(embedding.rows - 1, width, embedding.data.subarray(0, (embedding.rows - 1) * width));
    return { logits: linear(hidden, outputs, null), weights: seen.own, cross: seen.cross };
  }

  // The most probable token at each step, until the end token.
  function translate(source, { start, end, longest }) {
    const { memory, weights: encoder } = encode(source);
    const target = [start];
    for (;;) {
      const result = decode(target, memory);
      const last = result.logits.data.subarray((target.length - 1) * result.logits.columns);
      const best = last.indexOf(last.reduce((a, b) => Math.max(a, b)));
      if (best === end || target.length > longest) {
        return { read: target, written: [...target.slice(1), best], encoder, decoder: result.weights, cross: result.cross };
      }
      target.push(best);
    }
  }

  return { encode, decode, translate };
}
