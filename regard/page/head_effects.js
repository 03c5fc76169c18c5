// Which heads matter: a table of all heads by how much the output changes without each of them, measured on request.

import { createRequests } from "./api.js";
import { headKey, layerName } from "./attention_changes.js";
import { describePattern } from "./attention_map.js";
import { addScrollFade, make, visibleToken } from "./dom.js";
import { createTokenNames } from "./token_names.js";

const EXPLANATION = "Every head is silenced once, and every source word hidden once, while the output stays as it is. Change: how far the"
  + " predictions move, as a divergence in bits per token.";
const OUTPUT_EXPLANATION = " Probability: that of the whole output, in percent of what it was. Then most likely: the first token that"
  + " becomes the most likely one in place of another.";
const OUTPUT_COLUMNS = ["probability", "then most likely"];

// `body` is what /api/effects needs; `onOpen(kind, layer, head)` opens a head, `onSilence(key, isSilent)` silences one, and
// `onWords(words)` receives the effects of the source words. `onMeasured()` is called after the first measurement; with
// `isMeasured`, all is measured at once, because a table was shown before the last change.
export function createHeadEffects(data, { body, changes, isMeasured, onOpen, onSilence, onWords, onMeasured }) {
  const { notice, request, cancel } = createRequests(() => measure());
  const tokenName = createTokenNames(data);
  const isWritten = Boolean(data.steps?.length); // some models write nothing
  const button = make("button", { type: "button" }, "Measure all heads and words");
  const container = make("div", {});
  const root = make("section", { class: "attention-card effects", "aria-label": "Which heads matter" },
    make("h2", {}, "Which heads matter here?"), make("p", { class: "hint" }, `${EXPLANATION}${isWritten ? OUTPUT_EXPLANATION : ""}`), make("div", { class: "tools" }, button, notice), container);

  async function measure() {
    button.disabled = true;
    const response = await request("/api/effects", body);
    button.disabled = false;
    if (!response) return;
    button.hidden = true;
    onMeasured();
    onWords(response.words);
    show(response.heads);
  }

  function show(heads) {
    const largest = Math.max(...heads.map(({ divergence }) => divergence), 1e-9);
    const columns = ["head", "pattern", "change", "probability", "then most likely", ""].filter((text) => isWritten || !OUTPUT_COLUMNS.includes(text));
    const header = make("tr", {}, ...columns.map((text) => (text ? make("th", { scope: "col", ...(text === "probability" && { class: "number" }) }, text) : make("td", {}))));
    const table = make("table", {}, make("thead", {}, header), make("tbody", {}, ...heads.map((effect) => row(effect, largest))));
    container.replaceChildren(addScrollFade(make("div", { class: "effects-scroll", tabindex: 0, role: "region", "aria-label": "All heads by effect" }, table)));
  }

  function row({ kind, layer, head, divergence, log_probability: loss, step, token, instead_of: insteadOf }, largest) {
    const name = `${layerName(kind, layer)}, head ${head}`;
    const open = make("button", { type: "button", class: "link" }, name);
    open.addEventListener("click", () => onOpen(kind, layer, head));
    const key = headKey(kind, layer, head);
    const isSilent = changes.off.includes(key);
    const silence = make("button", { type: "button", "aria-label": `${isSilent ? "Restore" : "Silence"} ${name}` }, isSilent ? "Restore" : "Silence");
    silence.addEventListener("click", () => onSilence(key, !isSilent));
    const bar = make("span", { class: "score-bar", "aria-hidden": "true" });
    bar.style.setProperty("--p", divergence / largest);
    const pattern = data.patterns?.[kind]?.[layer]?.[head];
    const instead = step === null ? "the same" : [make("bdi", {}, visibleToken(tokenName(token))), " instead of ", make("bdi", {}, visibleToken(tokenName(insteadOf)))];
    return make("tr", {}, make("th", { scope: "row" }, open), make("td", {}, pattern ? describePattern(pattern) : ""),
      make("td", { class: "effect" }, bar, ` ${divergence.toFixed(3)}`), ...(isWritten ? [make("td", { class: "number" }, formatFactor(loss)), make("td", {}, ...[instead].flat())] : []), make("td", {}, silence));
  }

  button.addEventListener("click", measure);
  if (isMeasured) measure();
  return { root, measure, close: cancel };
}

// A change of a log-probability as a factor of the probability.
function formatFactor(loss) {
  const factor = Math.exp(loss);
  return factor < 0.001 ? "< 0.1%" : `${Number((100 * factor).toPrecision(3))}%`;
}
