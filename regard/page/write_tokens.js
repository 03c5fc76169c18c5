// The tokens of a text that a language model reads, tinted by their probability. Selecting one shows what the model
// considered there; picking another token continues the text from it.

import { createRequests } from "./api.js";
import { make, moveFocus, percent, visibleText } from "./dom.js";
import { createBars } from "./probability_bars.js";
import { createTintLegend, tint } from "./probability_tint.js";

const MAX_CHARACTERS = 2000; // of a text whose tokens the server scores
const ALTERNATIVES_SHOWN = 12;
const END_LABEL = "end of text";
const HINT = "The probability of a token is that after the text before it. Select one to see its alternatives.";

export function createTextTokens({ selectedModel, onBranch }) {
  const list = make("p", { class: "tokens", role: "group", "aria-label": "Tokens of the text" });
  const hint = make("p", { class: "hint" });
  const legend = createTintLegend();
  const title = make("h3", {});
  const bars = createBars("Alternatives: pick one to continue from it", (item) => onBranch(item.prefix + item.text));
  const probabilities = createRequests(() => {});
  const alternatives = createRequests(() => select(selected));
  const panel = make("section", { class: "write-alternatives", "aria-label": "Alternatives" }, title, alternatives.notice, bars.list);
  const root = make("div", { class: "write-tokens" }, list, legend, hint, panel);
  let tokens = []; // with their start in the text, probability and rank, or null before they arrive
  let text = "";
  let selected = null;

  // Shows the tokens of a text at once, without probabilities.
  function show(labels, newText) {
    [text, tokens, selected] = [newText, labels.map((label) => ({ label, start: null, probability: null })), null];
    probabilities.cancel();
    alternatives.cancel();
    draw();
  }

  // Requests the probabilities of the tokens that are shown.
  async function load() {
    const asked = text;
    if (!asked || [...asked].length > MAX_CHARACTERS) return;
    const response = await probabilities.request("/api/tokens", { model: selectedModel(), text: asked });
    if (!response || asked !== text) return;
    tokens = response.tokens;
    draw();
  }

  function draw() {
    panel.hidden = selected === null;
    legend.hidden = tokens.every(({ probability }) => probability === null);
    hint.textContent = legend.hidden ? "" : HINT;
    const hadFocus = list.contains(document.activeElement);
    list.replaceChildren(...tokens.map((token, i) => createToken(token, i)));
    if (hadFocus && selected !== null) list.children[selected]?.focus();
  }

  function createToken({ label, start, probability, rank }, i) {
    if (probability === null || start === null) return make("bdi", { class: "chip" }, visibleText(label));
    const about = `${visibleText(label)}: probability ${percent(probability)}, rank ${rank.toLocaleString("en")}`;
    const isReachable = i === (selected ?? tokens.findIndex((token) => token.probability !== null && token.start !== null));
    const button = make("button", { type: "button", class: "chip", title: about, "aria-label": about, "aria-pressed": i === selected, tabindex: isReachable ? 0 : -1 },
      make("bdi", {}, visibleText(label)));
    tint(button, probability);
    button.addEventListener("click", () => select(i === selected ? null : i));
    return button;
  }

  async function select(i) {
    selected = i;
    draw();
    if (i === null) return alternatives.cancel();
    list.children[i].focus();
    const { label, start, probability } = tokens[i];
    const prefix = [...text].slice(0, start).join(""); // positions count characters as the server does
    title.textContent = `Instead of “${visibleText(label)}” (${percent(probability)})`;
    bars.list.classList.add("stale");
    const response = await alternatives.request("/api/next", { model: selectedModel(), text: prefix, show: ALTERNATIVES_SHOWN });
    if (response === undefined || selected !== i) return;
    bars.list.classList.remove("stale");
    bars.show((response?.tokens ?? []).map((token) => ({ ...token, prefix, token: token.end ? END_LABEL : visibleText(token.text || token.token) })), visibleText(label));
  }

  list.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && selected !== null) return select(null);
    const buttons = list.querySelectorAll("button");
    return moveFocus(event, buttons, buttons.length);
  });
  return {
    root,
    show,
    load,
    close() {
      probabilities.cancel();
      alternatives.cancel();
    },
  };
}
