// The Translate view: the translation appears while the user types, with alternatives below it.

import { createRequests } from "./api.js";
import { createLanguageWarning, createModelSelector, createTextField, exampleButtons, languageName } from "./controls.js";
import { make } from "./dom.js";

const TYPING_PAUSE_MS = 350; // time without a keystroke before a request is sent
const SCORE_HINT = "Ranked by score: the log-probability of the translation divided by a length penalty. Scores closer to 0 are"
  + " better. The bar compares each score with the best one.";
const NO_TRANSLATOR = "This server has no translation model. Run “regard serve fr-en” to serve the bundled French–English model.";

export function translateView({ models, saveState }) {
  const translators = models.filter((model) => model.translates);
  const model = createModelSelector(translators, () => onInput(true));
  const { field, fit } = createTextField({ id: "source", rows: 3, placeholder: "Type a sentence" });
  const [sourceLabel, targetHeading] = [make("label", { for: "source" }), make("h2", {})];
  const swap = make("button", { type: "button" }, "⇄ Swap languages");
  const result = make("p", { class: "result", dir: "auto", "aria-live": "polite" });
  const warning = createLanguageWarning();
  const copy = make("button", { type: "button" }, "Copy");
  const attentionLink = make("a", { class: "button" }, "Show its attention");
  const bestScore = make("span", { class: "hint" });
  const list = make("ol", { class: "alternatives" });
  const alternatives = make("section", { class: "card", "aria-label": "Alternatives" },
    make("h2", {}, "Alternatives"), list, make("p", { class: "hint" }, SCORE_HINT));
  const exampleList = make("p", { class: "examples" });
  const { notice, request, cancel } = createRequests(() => translate());
  const tools = make("div", { class: "tools" }, copy, attentionLink, bestScore);
  const root = make("div", { class: "view" },
    make("div", { class: "head" }, make("h1", {}, "Translate"), model.root),
    make("div", { class: "pair" },
      make("section", { class: "card", "aria-label": "Source" }, sourceLabel, field, exampleList),
      make("section", { class: "card", "aria-label": "Translation" },
        make("div", { class: "target-language" }, targetHeading, swap), notice, result, warning.root, tools)),
    alternatives);
  let timer = null;

  function updateLanguages() {
    const { source, target } = model.selected();
    sourceLabel.textContent = languageName(source, "Source");
    targetHeading.textContent = languageName(target, "Translation");
    field.lang = source ?? "";
    result.lang = target ?? "";
    swap.hidden = !reverseModel();
    exampleList.replaceChildren(...exampleButtons(model.selected(), (text) => {
      field.value = text;
      onInput(true);
      field.focus();
    }));
  }

  // The first model for the opposite direction.
  function reverseModel() {
    const { source, target } = model.selected();
    return source && target && translators.find((other) => other.source === target && other.target === source);
  }

  // Translates the translation back. A text that is not translated yet is kept.
  function swapLanguages() {
    const isCurrent = result.textContent && !result.classList.contains("stale");
    if (isCurrent) field.value = result.textContent;
    model.select(reverseModel().name);
    show([]);
    onInput(true);
    field.focus();
  }

  function onInput(push = false) {
    updateLanguages();
    fit();
    saveState("translate", { model: model.selected().name, source: field.value }, { push });
    clearTimeout(timer);
    cancel(); // the response to the previous text must not be shown
    markStale(true);
    timer = setTimeout(translate, push ? 0 : TYPING_PAUSE_MS);
  }

  async function translate() {
    if (!field.value.trim()) {
      cancel();
      return show([]);
    }
    markStale(true);
    const response = await request("/api/translate", { model: model.selected().name, text: field.value });
    if (response !== undefined) show(response?.translations ?? [], response?.warning); // an error removes the previous translation
  }

  // Dims the translation while it does not belong to the current text.
  function markStale(stale) {
    for (const element of [result, warning.root, tools, alternatives]) element.classList.toggle("stale", stale);
  }

  function show(translations, languageWarning = "") {
    markStale(false);
    warning.show(languageWarning);
    const [best, ...rest] = translations;
    result.textContent = best?.text ?? "";
    tools.hidden = !best;
    alternatives.hidden = rest.length === 0;
    if (best) {
      attentionLink.href = attentionUrl({ said: best.text });
      bestScore.replaceChildren(...formatScores(best));
    }
    list.replaceChildren(...rest.map((translation) => createAlternative(translation, best)));
  }

  function attentionUrl(translation) {
    const options = { model: model.selected().name, source: field.value, ...translation };
    return `#/look?${new URLSearchParams(options)}`;
  }

  function createAlternative({ text, ...scores }, best) {
    const share = Math.exp(scores.penalised - best.penalised);
    const bar = make("span", { class: "score-bar", "aria-hidden": "true" });
    bar.style.setProperty("--p", Math.min(1, share));
    const href = attentionUrl({ target: text });
    return make("li", {},
      make("span", { class: "alternative-text", dir: "auto", lang: result.lang }, text),
      make("span", { class: "score" }, bar, ...formatScores(scores)),
      make("a", { href, "aria-label": `Show the attention of: ${text}` }, "attention"));
  }

  field.addEventListener("input", () => onInput());
  swap.addEventListener("click", swapLanguages);
  copy.addEventListener("click", async () => {
    const copied = navigator.clipboard.writeText(result.textContent);
    copy.textContent = await copied.then(() => "Copied", () => "Could not copy");
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });

  if (!translators.length) root.replaceChildren(make("h1", {}, "Translate"), make("p", {}, NO_TRANSLATOR));
  return {
    root,
    close: () => {
      clearTimeout(timer);
      cancel();
    },
    update(options) {
      if (!translators.length) return;
      model.select(options.get("model"));
      field.value = options.get("source") ?? "";
      updateLanguages();
      requestAnimationFrame(fit);
      show([]);
      translate();
    },
  };
}

// The score that ranks a translation, and the log-probability it is computed from.
function formatScores({ score, penalised }) {
  return [`score ${formatNumber(penalised)}`, make("small", {}, ` log-prob ${formatNumber(score)}`)];
}

const formatNumber = (number) => number.toFixed(2).replace("-", "−");
