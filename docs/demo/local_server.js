// What the server of `regard serve` responds to the Attention view, computed in the browser: the same JSON for the same requests.

import { searchTree } from "./beam_search.js";
import { mapPatterns } from "./head_patterns.js";
import { largestIndices, logSoftmax, NO_REQUESTED_CHANGES, rowsOf } from "./transformer.js";

const STEP_CANDIDATES = 10; // most likely tokens of each step
const LENS_TOKENS = 5; // the same after each layer
const MAX_TOKENS = 64; // of the source and of a given translation: longer ones take too long
const KINDS = ["encoder", "decoder", "cross"];

// `description` is the model as /api/models describes it; `start` and `end` are the ids that a translation starts from and ends
// with; `patterns` has the thresholds and the rules of patterns.
export function createLocalServer({ description, network, tokenizer, start, end, patterns }) {
  const model = description.name;
  const special = [end, start].map((id) => tokenizer.labels([id])[0]);

  // The ids of a text with the end token. An Error with a sentence for people if it is too long.
  function encode(text, name) {
    const ids = [...tokenizer.encode(text), end];
    if (ids.length > MAX_TOKENS) throw new Error(`The ${name} has ${ids.length} tokens; the maximum in this demo is ${MAX_TOKENS}. Shorten it.`);
    return ids;
  }

  function checkHead({ kind, layer, head }) {
    if (!isIndex(layer, description.layers)) throw new Error(`no layer ${layer}: ${kind} attention has layers 0 to ${description.layers - 1}`);
    if (!isIndex(head, description.heads)) throw new Error(`no head ${head}: this attention has heads 0 to ${description.heads - 1}`);
  }

  // Throws an Error with the server's message unless the model has these heads, and the text these tokens.
  function checkChanges({ silenced, hidden, weights }, tokens) {
    [...silenced, ...weights].forEach(checkHead);
    const beyond = hidden.find((position) => !isIndex(position, tokens));
    if (beyond !== undefined) throw new Error(`token ${beyond} cannot be hidden: the text has tokens 0 to ${tokens - 1}`);
    for (const { kind, row, column, weight } of weights) {
      if (!(weight >= 0 && weight <= 1)) throw new Error(`a weight of ${weight} is not possible: weights are between 0 and 1`);
      if (kind === "decoder" && column > row) throw new Error(`row ${row} cannot attend to column ${column}: a decoder sees only the tokens so far`);
      if (kind !== "decoder" && column >= tokens) throw new Error(`there is no column ${column}: the text has tokens 0 to ${tokens - 1}`);
    }
  }

  function checkBeginning(ids, longest) {
    const isPossible = (id) => id !== end && id < network.outputs;
    if (!ids.every(isPossible) || ids.length >= longest) throw new Error("A translation cannot begin with these tokens.");
  }

  // One pass over a source and its translation.
  function observe(source, written, changes) {
    const encoded = network.encode(source, changes);
    const read = [start, ...written.slice(0, -1)];
    return { ...network.decode(read, encoded.memory, changes), encoderCalls: encoded.calls, source, read, written };
  }

  function translate(source, changes, beginning) {
    const { memory } = network.encode(source, changes);
    const step = (id, past) => {
      const { logits, past: next } = network.decode([id], memory, changes, past);
      return { logits: logits.data, past: next };
    };
    const longest = 2 * source.length + 10;
    checkBeginning(beginning, longest);
    return searchTree(step, { tokenizer, start, end, longest, beginning });
  }

  function attend({ source: text, target, beginning = [], changes = NO_REQUESTED_CHANGES }) {
    const source = encode(text, "sentence");
    checkChanges(changes, source.length);
    const given = target ? encode(target, "translation") : null;
    const found = given ? { written: given } : translate(source, changes, beginning);
    const observed = observe(source, found.written, changes);
    const [keys, reads, writes] = [source, observed.read, observed.written].map(tokenizer.labels);
    const used = (calls) => calls.map((call) => call.used);
    const maps = [
      { kind: "encoder", queries: keys, keys, writes: [], weights: used(observed.encoderCalls) },
      { kind: "decoder", queries: reads, keys: reads, writes, weights: used(observed.calls) },
      { kind: "cross", queries: reads, keys, writes, weights: used(observed.crossCalls) },
    ];
    return {
      model,
      source: text,
      target: target ?? tokenizer.decode(found.written),
      special,
      maps,
      lens: lens(observed, reads, writes),
      steps: steps(observed),
      written: observed.written,
      words: { source: tokenizer.wordNumbers(source), target: tokenizer.wordNumbers(observed.read) },
      ends: tokenizer.labels([end]),
      patterns: Object.fromEntries(maps.map((map) => [map.kind, mapPatterns(map, special, patterns.thresholds)])),
      pattern_rules: patterns.rules,
      ...(found.nodes && { beam: { nodes: found.nodes } }),
    };
  }

  // The written token of each step, and the most likely ones.
  function steps({ logits, written }) {
    const labels = tokenizer.createLabels(written);
    return rowsOf(logits).map((row, i) => {
      const shares = logSoftmax(row);
      const ids = largestIndices(shares, STEP_CANDIDATES);
      const names = labels.among(ids, written[i - 1]);
      const top = ids.map((id, n) => ({ token: names[n], p: Math.exp(shares[id]), id }));
      const token = names[ids.indexOf(written[i])] ?? labels.one(written[i], written[i - 1]);
      return { token, p: Math.exp(shares[written[i]]), top };
    });
  }

  // The most likely tokens of each position after the embedding and after each layer.
  function lens({ states, read }, queries, writes) {
    const labels = tokenizer.createLabels(read);
    const top = states.map((state) => rowsOf(network.stateLogits(state)).map((row, i) => {
      const shares = logSoftmax(row);
      const ids = largestIndices(shares, LENS_TOKENS);
      const names = labels.among(ids, read[i]);
      return ids.map((id, n) => ({ token: names[n], p: Math.exp(shares[id]) }));
    }));
    return { queries, writes, states: states.map((_, i) => (i ? `layer ${i - 1}` : "embedding")), top };
  }

  // The pass that a request for a closer look is about.
  function observeRequest({ source: text, target, written, changes = NO_REQUESTED_CHANGES }) {
    const source = encode(text, "sentence");
    checkChanges(changes, source.length);
    return observe(source, written ?? (target ? encode(target, "translation") : translate(source, changes, []).written), changes);
  }

  function head(body) {
    const { kind, layer, head: h } = body.head;
    checkHead(body.head);
    const observed = observeRequest(body);
    const call = { encoder: observed.encoderCalls, decoder: observed.calls, cross: observed.crossCalls }[kind][layer];
    const [q, k, v] = ["q", "k", "v"].map((name) => rowsOf(call[name], h, network.heads));
    const weights = call.computed[h];
    return {
      model, kind, layer, head: h, q, k, v, weights,
      dots: q.map((query) => k.map((key) => query.reduce((sum, value, i) => sum + value * key[i], 0))),
      output: weights.map((row) => v[0].map((_, i) => row.reduce((sum, weight, s) => sum + weight * v[s][i], 0))),
      scale: 1 / Math.sqrt(q[0].length),
      bias: null,
      allowed: q.map((_, t) => k.map((_, s) => Number(call.isAllowed(t, s)))),
    };
  }

  // The positions of the tokens of each word.
  function wordPositions(ids) {
    const words = new Map(); // the number of a word → positions
    tokenizer.wordNumbers(ids).forEach((number, position) => words.set(number, [...(words.get(number) ?? []), position]));
    return [...words.values()];
  }

  // How much the predictions change without each head and without each source word. The browser can draw and handle events
  // between two of them, and once the signal is aborted nothing more is computed.
  async function effects(body, signal) {
    const { source, written, logits } = observeRequest(body);
    const changes = body.changes ?? NO_REQUESTED_CHANGES;
    const labels = tokenizer.createLabels(written);
    const usual = rowsOf(logits).map(logSoftmax);
    const effect = async (removal) => {
      await new Promise((resolve) => setTimeout(resolve));
      signal?.throwIfAborted();
      const changed = rowsOf(observe(source, written, removal).logits).map(logSoftmax);
      const [before, after] = [usual, changed].map((rows) => rows.map((row) => largestIndices(row, 1)[0]));
      const step = before.findIndex((id, t) => id !== after[t]);
      const [token, insteadOf] = step < 0 ? [null, null] : labels.among([after[step], before[step]], written[step - 1]);
      const divergence = usual.reduce((total, row, t) => total + row.reduce((sum, share, id) => sum + Math.exp(share) * (share - changed[t][id]), 0), 0);
      return {
        divergence: Math.max(0, divergence / usual.length / Math.LN2),
        log_probability: written.reduce((total, id, t) => total + changed[t][id] - usual[t][id], 0),
        step: step < 0 ? null : step,
        token,
        instead_of: insteadOf,
      };
    };
    const names = KINDS.flatMap((kind) => counted(description.layers).flatMap((layer) => counted(description.heads).map((number) => ({ kind, layer, head: number }))));
    const [heads, words] = [[], []];
    for (const name of names) heads.push({ ...name, ...(await effect({ ...changes, silenced: [...changes.silenced, name] })) });
    for (const positions of wordPositions(source)) words.push({ positions, ...(await effect({ ...changes, hidden: [...changes.hidden, ...positions] })) });
    return { model, heads: heads.sort((a, b) => b.divergence - a.divergence), words };
  }

  const answers = new Map([
    ["/api/models", () => [description]],
    ["/api/attend", attend],
    ["/api/head", head],
    ["/api/effects", effects],
  ]);
  return (path, body, signal) => answers.get(path)(body, signal);
}

const isIndex = (number, count) => number >= 0 && number < count;

const counted = (count) => [...Array(count).keys()];
