// The demo page: the Attention view of `regard serve`, whose requests are answered in the browser.

import { answerRequestsWith } from "./api.js";
import { attentionView } from "./attention.js";
import { createTokenizer } from "./byte_pairs.js";
import { createLocalServer } from "./local_server.js";
import { createTransformer, readWeights } from "./transformer.js";
import { createHash, createUrlUpdater } from "./url_history.js";

const WEIGHT_DECIMALS = 5;

const parse = (id) => JSON.parse(document.getElementById(id).textContent);
const bytes = Uint8Array.from(atob(document.getElementById("weights").textContent), (character) => character.charCodeAt(0));
const { model: config } = parse("config");
const { decoder_start_token_id: start, eos_token_id: end } = parse("generation");
const description = parse("description");
const respond = createLocalServer({
  description,
  start,
  end,
  network: createTransformer(readWeights(bytes.buffer), config),
  tokenizer: createTokenizer(parse("tokenizer")),
  patterns: parse("patterns"),
});
answerRequestsWith(async (path, body, signal) => withShortWeights(await respond(path, body, signal)));

// The weights of all maps with as many decimal places as the server sends.
function withShortWeights(data) {
  const shorten = (value) => (Array.isArray(value) ? value.map(shorten) : Number(value.toFixed(WEIGHT_DECIMALS)));
  return data.maps ? { ...data, maps: data.maps.map((map) => ({ ...map, weights: shorten(map.weights) })) } : data;
}

// The URL's hash contains the state of the view, as on the page of `regard serve`.
const url = createUrlUpdater();
let currentHash = null;

function saveState(name, options, { push = false } = {}) {
  currentHash = createHash(name, options);
  url.set(currentHash, { push });
}

const view = attentionView({ models: [description], saveState, isFirstScreen: location.hash === "" });
document.getElementById("attention").replaceChildren(view.root);

function route() {
  if (location.hash === currentHash) return;
  url.cancel();
  currentHash = location.hash;
  view.update(new URLSearchParams(location.hash.split("?")[1]));
}

for (const event of ["hashchange", "popstate"]) addEventListener(event, route);
route();
window.respond = respond; // for tests
