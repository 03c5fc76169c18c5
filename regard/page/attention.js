// The Attention view: a sentence, the attention of every head, the decoding steps and the beam search.

import { createRequests } from "./api.js";
import { createAttentionMap } from "./attention_map.js";
import { createBeamTree } from "./beam_tree.js";
import { createModelSelector, createTextField, exampleButtons, examples } from "./controls.js";
import { createSteps } from "./decoding_steps.js";
import { clampIndex, make } from "./dom.js";

const COUNTER_SHARE = 0.8; // share of the maximum length from which characters are counted
const SAVE_DELAY_MS = 150; // time that a head or step is open before it is written to the URL
const TRANSLATION_NOTE = "The Translate view translates each sentence of a longer text separately, and in lower precision on"
  + " some devices. Here the model reads the text in one piece; its own translation of it would be: ";
const NO_BEAM = "There was no search, because the translation was given. Each step shows the probabilities after the given words"
  + " so far. Clear “Translation” to let the model translate.";

export function attentionView({ models, saveState }) {
  const model = createModelSelector(models, () => submit());
  const placeholder = "Type a sentence and press Enter";
  const source = createTextField({ id: "attention-source", class: "headline", placeholder });
  const target = createTextField({ id: "attention-target", class: "headline second" });
  const { notice, request, cancel, showNotice } = createRequests(() => load());
  const exampleList = make("p", { class: "examples" });
  const counter = make("p", { class: "count hint", "aria-live": "polite" });
  const translationNote = make("p", { class: "translation-note hint" });
  const content = make("div", { class: "attention-content" });
  const targetLabel = make("label", { for: "attention-target" });
  const form = make("form", { class: "card sentence" },
    make("label", { for: "attention-source" }, "Sentence"), source.field, targetLabel, target.field,
    make("button", { type: "submit", class: "main" }, "Show"), counter, exampleList);
  const root = make("div", { class: "view" },
    make("div", { class: "head" }, make("h1", {}, "Attention"), model.root), form, notice, translationNote, content);
  let requested = {}; // the model, source and target that are displayed or being loaded
  let clicked = ""; // the translation of the source that was clicked in the Translate view
  let open = {}; // the kind of attention, layer, head and step to display
  let displayed = null; // the components that display them
  let timer = null;

  const inputs = () => ({
    model: model.selected().name,
    source: source.field.value.trim(),
    target: target.field.value.trim(),
  });
  const isSame = (a, b) => JSON.stringify(a) === JSON.stringify(b);

  // A new sentence keeps the open head; a new model keeps only the kind of attention.
  function submit() {
    const { kind, layer, head } = open;
    open = inputs().model === requested.model ? { kind, layer, head } : { kind };
    clicked = "";
    translationNote.replaceChildren();
    saveState("look", { ...inputs(), ...open }, { push: true });
    load();
  }

  async function load() {
    updateForm();
    requested = inputs();
    if (!requested.source) {
      cancel();
      return clear();
    }
    const problem = lengthProblem();
    if (problem) {
      cancel();
      clear();
      return showNotice("error", problem);
    }
    content.classList.add("stale");
    const given = Object.entries(requested).filter(([, value]) => value);
    const data = await request("/api/attend", Object.fromEntries(given));
    if (data && clicked && !requested.target && data.target?.trim() !== clicked.trim()) return loadClicked(data);
    if (data) show(data);
    else if (data === null) clear();
  }

  // Loads the translation that was clicked in the Translate view, which differs from that of the whole text.
  function loadClicked({ target: other }) {
    translationNote.replaceChildren(TRANSLATION_NOTE, make("q", {}, other));
    target.field.value = clicked;
    return load();
  }

  // Says which text is too long, if one is. Characters are counted as on the server.
  function lengthProblem() {
    const maximum = model.selected().look_at_most;
    const [name, length] = lengths().find(([, length]) => length > maximum) ?? [];
    return name && `${name} has ${length} characters; the maximum is ${maximum}, because every token attends to every other.`
      + " Shorten it, or show one sentence at a time.";
  }

  function lengths() {
    const texts = inputs();
    const targetName = model.selected().translates ? "The translation" : "The continuation";
    return [["The sentence", [...texts.source].length], [targetName, [...texts.target].length]];
  }

  function updateCounter() {
    const maximum = model.selected().look_at_most;
    const long = lengths().filter(([, length]) => length > COUNTER_SHARE * maximum);
    counter.textContent = long.map(([name, length]) => `${name}: ${length} of ${maximum} characters`).join(" · ");
  }

  function clear() {
    displayed?.map.close();
    displayed?.steps?.close();
    displayed = null;
    content.classList.remove("stale");
    content.replaceChildren();
    target.field.placeholder = "";
  }

  function show(data) {
    clear();
    target.field.placeholder = data.target ?? "";
    requestAnimationFrame(target.fit);
    const { writes } = data.maps.at(-1);
    const firstRow = Math.max(0, writes.findIndex((token) => token !== "")); // the row of the first step
    const steps = data.steps?.length ? createSteps(data.steps, (step) => {
      if (open.kind === "encoder") steps.show(step); // the encoder runs once, before the first step
      else displayed.map.stepTo(step + firstRow);
    }) : null;
    const isForced = requested.target && model.selected().translates;
    const beam = data.beam?.nodes.length ? createBeamTree(data.beam, data.special) : isForced ? noBeam() : null;
    const onChange = ({ kind, layer, head, row, chosen }) => {
      const previousKind = open.kind;
      const step = chosen === null || chosen < firstRow ? null : chosen - firstRow + 1;
      open = { kind, layer, head: head ?? "mean", step };
      const shownStep = clampIndex((row ?? writes.length) - firstRow, data.steps ?? []);
      if (steps && kind !== "encoder") steps.show(shownStep);
      saveOpen(Boolean(displayed && previousKind) && previousKind !== kind);
    };
    const { step } = open;
    const container = make("div");
    content.replaceChildren(container);
    const options = { onChange, more: [steps?.root, beam].filter(Boolean), showHeading: false };
    const first = { ...open, head: parseNumber(open.head) };
    const map = createAttentionMap(container, { ...data, open: first }, options);
    displayed = { map, steps, firstRow };
    if (step) map.stepTo(step - 1 + firstRow);
  }

  function saveOpen(push) {
    clearTimeout(timer);
    if (push) saveState("look", { ...requested, ...open }, { push });
    else timer = setTimeout(() => saveState("look", { ...requested, ...open }), SAVE_DELAY_MS);
  }

  // Adapts the form to the selected model.
  function updateForm() {
    const { translates, writes, source: language } = model.selected();
    for (const element of [targetLabel, target.field]) element.hidden = !translates && !writes;
    targetLabel.textContent = translates ? "Translation" : "Continuation";
    exampleList.replaceChildren(...exampleButtons(language, (text) => {
      source.field.value = text;
      target.field.value = "";
      submit();
    }));
    source.field.lang = language ?? "";
    updateCounter();
    for (const { fit } of [source, target]) requestAnimationFrame(fit);
  }

  // Restores another head or step of the same sentence after navigation.
  function reopen(state) {
    open = state;
    displayed.map.open(state.kind, state);
    if (state.step) displayed.map.stepTo(state.step - 1 + displayed.firstRow);
  }

  for (const { field } of [source, target]) {
    field.addEventListener("input", updateCounter);
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    });
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  return {
    root,
    close() {
      clearTimeout(timer);
      cancel();
      clear();
    },
    update(options) {
      clearTimeout(timer);
      model.select(options.get("model"));
      source.field.value = options.get("source") ?? examples(model.selected().source)[0] ?? "";
      target.field.value = options.get("target") ?? "";
      clicked = options.get("said") ?? "";
      const numbers = Object.fromEntries(["layer", "head", "step"].map((name) => [name, parseNumber(options.get(name))]));
      const state = { kind: options.get("kind") ?? undefined, ...numbers };
      if (displayed && isSame(requested, inputs())) return reopen(state);
      open = state;
      translationNote.replaceChildren();
      load();
    },
  };
}

function noBeam() {
  return make("section", { class: "attention-card no-beam", "aria-label": "Beam search" },
    make("h2", {}, "Beam search"), make("p", { class: "hint" }, NO_BEAM));
}

function parseNumber(text) {
  return /^\d{1,4}$/.test(text ?? "") ? Number(text) : null;
}
