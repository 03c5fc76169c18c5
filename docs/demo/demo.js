// The demo page: a sentence is translated in the browser, and the attention of every head is shown.

import { createAttentionMap } from "./attention_map.js";
import { createTokenizer } from "./byte_pairs.js";
import { createTransformer, readWeights } from "./transformer.js";

const MAX_CHARACTERS = 120;

const parse = (id) => JSON.parse(document.getElementById(id).textContent);
const bytes = Uint8Array.from(atob(document.getElementById("weights").textContent), (character) => character.charCodeAt(0));
const { model: config } = parse("config");
const { decoder_start_token_id: start, eos_token_id: end } = parse("generation");
const tokenizer = createTokenizer(parse("tokenizer"));
const network = createTransformer(readWeights(bytes.buffer), config);

// The data of the attention map, as `regard attend --json` writes it.
function lookAt(sentence) {
  const source = [...tokenizer.encode(sentence), end];
  const { read, written, encoder, decoder, cross } = network.translate(source, { start, end, longest: 2 * source.length + 10 });
  const [keys, reads, writes] = [source, read, written].map(tokenizer.labels);
  return {
    model: "petit-fr-en",
    source: sentence,
    target: tokenizer.decode(written),
    special: ["</s>", "<pad>"],
    maps: [
      { kind: "encoder", queries: keys, keys, writes: [], weights: encoder },
      { kind: "decoder", queries: reads, keys: reads, writes, weights: decoder },
      { kind: "cross", queries: reads, keys, writes, weights: cross },
    ],
    open: { kind: "cross" },
  };
}

const [form, field, output, map] = ["sentence-form", "sentence", "translation", "attention"].map((id) => document.getElementById(id));

function show(sentence) {
  const data = lookAt(sentence.trim().slice(0, MAX_CHARACTERS));
  output.textContent = data.target;
  map.replaceChildren();
  createAttentionMap(map, data, { showHeading: false });
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (field.value.trim()) show(field.value);
});
for (const button of document.querySelectorAll("[data-sentence]")) {
  button.addEventListener("click", () => {
    field.value = button.dataset.sentence;
    show(field.value);
  });
}
field.maxLength = MAX_CHARACTERS;
show(field.value);
window.lookAt = lookAt; // for tests
