// Names of tokens for people: the token that ends a text is “end”, the one that a text starts from is “start”.

import { visibleText } from "./dom.js";

export const START_LABEL = "start";
export const END_LABEL = "end";
// Labels of tokens that are parts of a character. All bytes of such a character are 80 or higher: other escapes are text, or
// stand for control characters.
const BYTE_LABELS = /(?:\\x[89a-f][0-9a-f])+/g;

// The text of the labels of one word: without the dots of its pieces, and with the characters that its bytes make up.
export function joinLabels(labels) {
  return labels.map((label, i) => (i ? label.replace(/^·/, "") : label)).join("").replace(BYTE_LABELS, decodeBytes);
}

function decodeBytes(text) {
  const bytes = Uint8Array.from(text.split("\\x").slice(1), (digits) => parseInt(digits, 16));
  try {
    return visibleText(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch {
    return text; // the character has other bytes, which are not there
  }
}

// The labels of the tokens that end a text: as the server gives them, or the special tokens that are written last.
function endTokens({ ends, maps, special }) {
  return ends ?? maps.map(({ writes }) => writes.at(-1)).filter((token) => special.includes(token));
}

// A function that names a token of this data.
export function createTokenNames(data) {
  const ends = new Set(endTokens(data));
  return (token) => (ends.has(token) ? END_LABEL : token);
}

// Adds the original tokens of a map as `names`, and names its start and end.
export function withTokenNames(data, map) {
  const { special } = data;
  const name = createTokenNames(data);
  const hasStart = map.kind !== "encoder"; // a translation starts from a special token, and so do the texts of some language models
  const isStart = (token, isTarget) => special.includes(token) && ((isTarget && hasStart) || name(token) === END_LABEL); // some encoders begin with the token that ends a text
  const named = (tokens, isTarget) => tokens.map((token, i) => (i === 0 && isStart(token, isTarget) ? START_LABEL : name(token)));
  const { queries, keys, writes } = map;
  const top = map.top?.map((state) => state.map((tokens) => tokens.map((item) => ({ ...item, token: name(item.token) })))); // of a lens
  return { ...map, ...(top && { top }), queries: named(queries, true), keys: named(keys, map.kind === "decoder"), writes: writes.map(name), names: { queries, keys, writes } };
}
