// The Look view of the page: a sentence, what every head looks at, the steps of decoding and the beam.

import { questions } from "./api.js";
import { beamTree } from "./beam.js";
import { exampleButtons, examples, growing, modelChoice } from "./choice.js";
import { look } from "./look.js";
import { make } from "./parts.js";
import { stepping } from "./steps.js";

const NEAR = 0.8; // of the longest text: from here on characters are counted
const SETTLED = 150; // milliseconds that a head or step is open before the address says so

export function looking({ models, told }) {
  const model = modelChoice(models, () => ask());
  const source = growing({ id: "look-source", class: "headline", placeholder: "Type a sentence, and press Enter" });
  const target = growing({ id: "look-target", class: "headline second" });
  const { place, question, drop, say } = questions(() => load());
  const tries = make("p", { class: "tries" });
  const count = make("p", { class: "count look-hint", "aria-live": "polite" });
  const instead = make("p", { class: "instead look-hint" });
  const ground = make("div", { class: "ground" });
  const targetLabel = make("label", { for: "look-target" });
  const form = make("form", { class: "card sentence" },
    make("label", { for: "look-source" }, "Sentence"), source.field, targetLabel, target.field,
    make("button", { type: "submit", class: "main" }, "Look"), count, tries);
  const root = make("div", { class: "view" }, make("div", { class: "head" }, make("h1", {}, "Look"), model.root), form, place, instead, ground);
  let sought = {}; // the model, the sentence and what it is to become
  let said = ""; // what Translate said of the sentence
  let open = {}; // the kind, layer, head and step that are open, or are to be
  let shown = null; // what shows them
  let timer = null;

  const wanted = () => ({ model: model.chosen().name, source: source.field.value.trim(), target: target.field.value.trim() });
  const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

  // Another sentence is looked at with the same head, another model with the same kind of attention.
  function ask() {
    const { kind, layer, head } = open;
    open = wanted().model === sought.model ? { kind, layer, head } : { kind };
    said = "";
    instead.replaceChildren();
    told("look", { ...wanted(), ...open }, { push: true });
    load();
  }

  async function load() {
    shape();
    sought = wanted();
    if (!sought.source) {
      drop();
      return shut();
    }
    if (tooLong()) {
      drop();
      shut();
      return say("wrong", tooLong());
    }
    ground.classList.add("stale");
    const data = await question("/api/attend", Object.fromEntries(Object.entries(sought).filter(([, value]) => value)));
    if (data && said && !sought.target && data.target?.trim() !== said.trim()) return showSaid(data);
    if (data) show(data);
    else if (data === null) shut();
  }

  // What was clicked in Translate, which is not what the model says of the whole text at once.
  function showSaid({ target: otherwise }) {
    instead.replaceChildren("This is what Translate said, which cuts a text of more than two sentences at their ends, and may round as it computes. Here the model reads it in one piece; by itself it would write: ", make("q", {}, otherwise));
    target.field.value = said;
    return load();
  }

  // Why the texts cannot be shown, if so. Characters are counted as the server counts them.
  function tooLong() {
    const most = model.chosen().look_at_most;
    const [name, length] = lengths().find(([, length]) => length > most) ?? [];
    return name && `${name} has ${length} characters, and ${most} are the most that are drawn: every token looks at every other. Shorten it, or look at one sentence at a time.`;
  }

  function lengths() {
    const { source: sentence, target: other } = wanted();
    return [["The sentence", [...sentence].length], [model.chosen().translates ? "The translation" : "What follows", [...other].length]];
  }

  function counted() {
    const most = model.chosen().look_at_most;
    const near = lengths().filter(([, length]) => length > NEAR * most);
    count.textContent = near.map(([name, length]) => `${name}: ${length} of ${most} characters`).join(" · ");
  }

  function shut() {
    shown?.attention.close();
    shown?.steps?.close();
    shown = null;
    ground.classList.remove("stale");
    ground.replaceChildren();
    target.field.placeholder = "";
  }

  function show(data) {
    shut();
    target.field.placeholder = data.target ?? "";
    requestAnimationFrame(target.fit);
    const { writes } = data.maps.at(-1);
    const offset = Math.max(0, writes.findIndex((each) => each !== "")); // rows that come before the first step
    const steps = data.steps?.length ? stepping(data.steps, (step) => {
      if (open.kind === "encoder") steps.show(step); // it reads once, before the first step
      else shown.attention.stepTo(step + offset);
    }) : null;
    const beam = data.beam?.nodes.length ? beamTree(data.beam, data.special) : sought.target && model.chosen().translates ? noBeam() : null;
    const more = [steps?.root, beam].filter(Boolean);
    const changed = ({ kind, layer, head, row, chosen }) => {
      const before = open.kind;
      open = { kind, layer, head: head ?? "mean", step: chosen === null || chosen < offset ? null : chosen - offset + 1 };
      if (steps && kind !== "encoder") steps.show(Math.max(0, Math.min(data.steps.length - 1, (row ?? writes.length) - offset)));
      tell(Boolean(shown && before) && before !== kind);
    };
    const { step } = open;
    const inside = make("div");
    ground.replaceChildren(inside);
    const attention = look(inside, { ...data, open: { ...open, head: number(open.head) } }, { changed, more, headed: false });
    shown = { attention, steps, offset };
    if (step) attention.stepTo(step - 1 + offset);
  }

  function tell(push) {
    clearTimeout(timer);
    if (push) told("look", { ...sought, ...open }, { push });
    else timer = setTimeout(() => told("look", { ...sought, ...open }), SETTLED);
  }

  // What the chosen model can be given.
  function shape() {
    const { translates, writes, source: code } = model.chosen();
    for (const each of [targetLabel, target.field]) each.hidden = !translates && !writes;
    targetLabel.textContent = translates ? "Into" : "Then";
    tries.replaceChildren(...exampleButtons(code, (text) => {
      source.field.value = text;
      target.field.value = "";
      ask();
    }));
    source.field.lang = code ?? "";
    counted();
    for (const { fit } of [source, target]) requestAnimationFrame(fit);
  }

  // Back and forth among what is open, of the same sentence.
  function reopen(to) {
    open = to;
    shown.attention.open(to.kind, to);
    if (to.step) shown.attention.stepTo(to.step - 1 + shown.offset);
  }

  for (const { field } of [source, target]) {
    field.addEventListener("input", counted);
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    });
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  return {
    root,
    close() {
      clearTimeout(timer);
      drop();
      shut();
    },
    update(options) {
      clearTimeout(timer);
      model.choose(options.get("model"));
      source.field.value = options.get("source") ?? examples(model.chosen().source)[0] ?? "";
      target.field.value = options.get("target") ?? "";
      said = options.get("said") ?? "";
      const told = Object.fromEntries(["layer", "head", "step"].map((name) => [name, number(options.get(name))]));
      const to = { kind: options.get("kind") ?? undefined, ...told };
      if (shown && same(sought, wanted())) return reopen(to);
      open = to;
      instead.replaceChildren();
      load();
    },
  };
}

function noBeam() {
  return make("section", { class: "look-card no-beam", "aria-label": "The beam" }, make("h2", {}, "The beam"),
    make("p", { class: "look-hint" }, "There is none: a beam seeks a translation, and this one was given. Each step’s probabilities are of what follows the words given so far. Empty “Into” to have the model seek its own."));
}

function number(text) {
  return /^\d{1,4}$/.test(text ?? "") ? Number(text) : null;
}
