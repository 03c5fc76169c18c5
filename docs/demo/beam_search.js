// Beam search as regard/decoding/beam.py does it, with every candidate that it considered, as a tree.

import { largestIndices, logSoftmax } from "./transformer.js";

const BEAM_SIZE = 4;
const LENGTH_PENALTY = 0.6;
const penalty = (tokens) => ((5 + tokens) / 6) ** LENGTH_PENALTY;

// The best translation that begins with the given ids, and the score of every candidate by its ids. `step(id, past)` reads an id
// and returns the logits after it and the next past; `longest` is the maximum number of tokens.
function search(step, { start, end, longest, beginning = [] }) {
  const candidates = new Map(); // the ids as a text → ids, score, kept
  let live = [{ ids: [], score: 0, ...step(start, []) }];
  for (const id of beginning) {
    const { ids, score, logits, past } = live[0];
    const next = { ids: [...ids, id], score: score + logSoftmax(logits)[id] };
    candidates.set(`${next.ids}`, { ...next, kept: true });
    live = [{ ...next, ...step(id, past) }];
  }
  let finished = null;
  for (;;) {
    const length = live[0].ids.length + 1;
    const isLast = length >= longest;
    const continuations = bestContinuations(live).map((each, rank) => ({ ...each, rank, ends: each.ids.at(-1) === end || isLast }));
    for (const { ids, score, ends, rank } of continuations) {
      const penalised = score / penalty(length);
      if (ends && rank < BEAM_SIZE && (!finished || penalised > finished.penalised)) finished = { ids, penalised };
    }
    const kept = continuations.filter(({ ends }) => !ends).slice(0, BEAM_SIZE);
    for (const each of continuations) {
      candidates.set(`${each.ids}`, { ids: each.ids, score: each.score, kept: kept.includes(each) || (each.ends && each.rank < BEAM_SIZE) });
    }
    const bestPossible = kept.length ? kept[0].score / penalty(longest) : -Infinity;
    if (isLast || (finished && bestPossible <= finished.penalised)) return { best: finished.ids, candidates };
    live = kept.map(({ ids, score, past }) => ({ ids, score, ...step(ids.at(-1), past) }));
  }
}

// The best continuations of all live hypotheses: twice as many as the beam has, so that enough stay live if some end.
function bestContinuations(live) {
  const all = live.flatMap(({ ids, score, logits, past }) => {
    const shares = logSoftmax(logits);
    return largestIndices(shares, 2 * BEAM_SIZE).map((id) => ({ ids: [...ids, id], score: score + shares[id], past }));
  });
  return largestIndices(all.map(({ score }) => score), 2 * BEAM_SIZE).map((i) => all[i]);
}

// The ids of the best translation, and the nodes of the tree as the server gives them. With a beginning, the tree has both
// searches, with it and without.
export function searchTree(step, { tokenizer, beginning, ...options }) {
  const { end } = options;
  const { best, candidates: own } = search(step, { ...options, beginning });
  const usual = beginning.length ? search(step, options) : { best, candidates: own };
  const candidates = new Map(usual.candidates);
  for (const [key, candidate] of own) candidates.set(key, { ...candidate, kept: candidate.kept || Boolean(candidates.get(key)?.kept) });
  const prefixes = (ids) => new Set(ids.map((_, i) => `${ids.slice(0, i + 1)}`));
  const [onBest, onUsual, given] = [best, usual.best, beginning].map(prefixes);
  const numbers = new Map([...candidates.keys()].map((key, number) => [key, number]));
  const names = nodeLabels(tokenizer.createLabels(best), [...candidates.values()]);
  const nodes = [...candidates].map(([key, { ids, score, kept }]) => ({
    id: numbers.get(key),
    parent: numbers.get(`${ids.slice(0, -1)}`) ?? null,
    token: names.get(key),
    score,
    step: ids.length - 1,
    kept,
    best: onBest.has(key),
    ends: ids.at(-1) === end,
    usual: onUsual.has(key),
    given: given.has(key),
  }));
  return { written: best, nodes };
}

// The label of the last token of each candidate, chosen among all that continue the same beginning.
function nodeLabels(labels, candidates) {
  const groups = new Map(); // the beginning as a text → its candidates
  for (const candidate of candidates) {
    const beginning = `${candidate.ids.slice(0, -1)}`;
    groups.set(beginning, [...(groups.get(beginning) ?? []), candidate]);
  }
  return new Map([...groups.values()].flatMap((group) => {
    const names = labels.among(group.map(({ ids }) => ids.at(-1)), group[0].ids.at(-2));
    return group.map(({ ids }, i) => [`${ids}`, names[i]]);
  }));
}
