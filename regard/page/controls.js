// Controls that several views share: the model selector, example sentences and text fields that grow with their content.

import { make } from "./dom.js";

export function createModelSelector(models, onChange) {
  const select = make("select", {}, ...models.map(({ name }) => make("option", { value: name }, name)));
  const about = make("span", { class: "about" });
  const missing = make("span", { class: "missing-model", role: "status" });
  const root = make("div", { class: "choice" }, make("label", {}, "Model ", select), about, missing);
  const selected = () => models.find(({ name }) => name === select.value);

  function describe(requested) {
    const model = selected();
    about.textContent = model ? [size(model), model.about].filter(Boolean).join(" · ") : "";
    const isOther = requested && model && model.name !== requested;
    missing.textContent = isOther ? `This server has no model “${requested}”; showing ${model.name} instead.` : "";
  }

  select.addEventListener("change", () => {
    describe();
    onChange();
  });
  describe();
  return {
    root,
    selected,
    select(name) {
      select.value = models.some((model) => model.name === name) ? name : models[0]?.name;
      describe(name);
    },
  };
}

function size({ parameters, layers, decoder_layers: decoderLayers, heads }) {
  const count = parameters >= 1e6 ? `${(parameters / 1e6).toPrecision(3)} million` : `${Math.round(parameters / 1e3)} thousand`;
  return `${count} parameters, ${layers}${decoderLayers ? ` + ${decoderLayers}` : ""} layers, ${heads} heads`;
}

const LANGUAGE_NAMES = new Intl.DisplayNames(["en"], { type: "language", fallback: "none" });

export function languageName(code, fallback) {
  try {
    return (code && LANGUAGE_NAMES.of(code)) || fallback;
  } catch {
    return fallback; // not a valid language code
  }
}

// Example sentences for translators, and beginnings of texts for language models, by language.
const SENTENCES = new Map([
  ["fr", ["Il y a trois livres sur la table.", "Elle va au marché.", "Je ne mange pas de viande.", "Tu as oublié ton parapluie."]],
  ["en", ["There are three books on the table.", "She goes to the market.", "I don't eat meat.", "You forgot your umbrella."]],
]);
const BEGINNINGS = new Map([
  ["fr", ["Le petit chat", "Il était une fois", "Elle va"]],
]);
const OTHER_BEGINNINGS = ["Once upon a time, there was a", "One day, a little fox", "In a small village"]; // for other or unknown languages

function examplesInLanguage({ source, translates, writes }) {
  return (writes && !translates ? BEGINNINGS : SENTENCES).get(source);
}

export function examples(model) {
  return examplesInLanguage(model) ?? (model.writes && !model.translates ? OTHER_BEGINNINGS : []);
}

export function exampleButtons(model, onPick) {
  const language = examplesInLanguage(model) && { lang: model.source };
  const buttons = examples(model).map((text) => {
    const button = make("button", { type: "button", ...language }, text);
    button.addEventListener("click", () => onPick(text));
    return button;
  });
  return buttons.length ? [make("span", {}, "Try "), ...buttons] : [];
}

// A text field that is as high as its content.
export function createTextField(attributes) {
  const field = make("textarea", { rows: 1, spellcheck: "false", autocapitalize: "off", dir: "auto", ...attributes });
  const fit = () => {
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  };
  field.addEventListener("input", fit);
  return { field, fit };
}

// A warning that the text is in another language than the model translates from; `show` without a text removes it.
export function createLanguageWarning() {
  const root = make("p", { class: "notice language-warning", role: "status" });
  return { root, show: (text = "") => (root.textContent = text && `Warning: ${text}.`) };
}

// Enter submits the form of a text field; with Shift it starts a new line.
export function submitOnEnter(field, form) {
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
}

// The name and length of the source and of the target. Characters are counted as on the server.
export function textLengths({ translates }, { source, target }) {
  return [["The sentence", [...source].length], [translates ? "The translation" : "The continuation", [...target].length]];
}

// Says which text is too long to show its attention or layers, if one is, and what to do.
export function lengthProblem(model, texts) {
  const maximum = model.look_at_most;
  const [name, length] = textLengths(model, texts).find(([, count]) => count > maximum) ?? [];
  return name && `${name} has ${length} characters; the maximum is ${maximum}, because every token attends to every other.`
    + " Shorten it, or show one sentence at a time.";
}
