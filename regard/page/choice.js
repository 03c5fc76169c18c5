// Which of the served models: a list to choose from, of those that can do what the view is for.

import { make } from "./parts.js";

export function modelChoice(models, changed) {
  const select = make("select", {}, ...models.map(({ name }) => make("option", { value: name }, name)));
  const about = make("span", { class: "about" });
  const missing = make("span", { class: "missing", role: "status" });
  const root = make("div", { class: "choice" }, make("label", {}, "Model ", select), about, missing);
  const chosen = () => models.find(({ name }) => name === select.value);

  function tell(wanted) {
    const model = chosen();
    about.textContent = model ? [size(model), model.about].filter(Boolean).join(" · ") : "";
    missing.textContent = wanted && model && model.name !== wanted ? `The link’s model, “${wanted}”, is not served here: this is ${model.name}.` : "";
  }

  select.addEventListener("change", () => {
    tell();
    changed();
  });
  tell();
  return {
    root,
    chosen,
    choose(name) {
      select.value = models.some((model) => model.name === name) ? name : models[0]?.name;
      tell(name);
    },
  };
}

function size({ parameters, layers, decoder_layers: more, heads }) {
  const count = parameters >= 1e6 ? `${(parameters / 1e6).toPrecision(3)} million` : `${Math.round(parameters / 1e3)} thousand`;
  return `${count} parameters, ${layers}${more ? ` + ${more}` : ""} layers, ${heads} heads`;
}

const NAMES = new Intl.DisplayNames(["en"], { type: "language", fallback: "none" });

export function language(code, otherwise) {
  try {
    return (code && NAMES.of(code)) || otherwise;
  } catch {
    return otherwise; // no code that anyone knows
  }
}

// Sentences to begin with, in the languages that the bundled models read.
const EXAMPLES = new Map([
  ["fr", ["Il y a trois livres sur la table.", "Elle va au marché.", "Je ne mange pas de viande.", "Tu as oublié ton parapluie."]],
]);

export function examples(code) {
  return EXAMPLES.get(code) ?? [];
}

export function exampleButtons(code, picked) {
  const buttons = examples(code).map((text) => {
    const button = make("button", { type: "button", lang: code }, text);
    button.addEventListener("click", () => picked(text));
    return button;
  });
  return buttons.length ? [make("span", {}, "Try "), ...buttons] : [];
}

// A text field as high as what it holds, where the browser does not see to that itself.
export function growing(attributes) {
  const field = make("textarea", { rows: 1, spellcheck: "false", autocapitalize: "off", dir: "auto", ...attributes });
  const fit = () => {
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  };
  field.addEventListener("input", fit);
  return { field, fit };
}
