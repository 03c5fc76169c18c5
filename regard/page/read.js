// The Read view: what a model makes of a text. Depending on the model: its class, the labels of its words, the tokens for
// its masks, and its neighbours among other sentences.

import { createRequests } from "./api.js";
import { createModelSelector, createTextField } from "./controls.js";
import { make, moveFocus, percent, pointingHint, visibleText } from "./dom.js";
import { createBars } from "./probability_bars.js";
import { createSentenceMap } from "./sentence_map.js";

const TYPING_PAUSE_MS = 350; // time without a keystroke before a request is sent
const CLASSES_SHOWN = 12;
const FILLINGS_SHOWN = 10;
const LABEL_COLOURS = 8; // number of colours in app.css that labels share
const MIN_CERTAIN_PROBABILITY = 0.5; // probability below which a label is marked as uncertain
const MASK_TOKEN = "<mask>";
const TASKS = new Map([
  ["classify", { title: "Classify", summary: "the class of a text", result: "Class", placeholder: "Type a text", show: showClasses }],
  ["tag", { title: "Tag", summary: "a label for each word", result: "Labels", placeholder: "Type a sentence", show: showLabels }],
  ["fill", { title: "Fill", summary: "tokens for a mask", result: "Tokens for the mask", placeholder: `Type a text with ${MASK_TOKEN} in place of a word`, show: showFillings }],
  ["embed", { title: "Compare", summary: "the nearest sentences", result: "Nearest first", placeholder: "Type a sentence", show: showNeighbours }],
]);
const COMPARE_HINT = "Cosine similarity of the vectors, each the mean over the tokens of a sentence: 1 means the same direction, 0"
  + " unrelated ones. A model that was not trained to compare sentences mostly compares their words.";
const NO_MASK = `Write ${MASK_TOKEN} in place of a word, or press “Insert ${MASK_TOKEN}”.`;
// Texts to start with, by language; those of null are for models of other or unknown languages.
const EXAMPLE_TEXTS = new Map([
  ["fr", {
    text: "Le petit chat noir dort sur la table.",
    masked: `Le chat ${MASK_TOKEN} sur la table.`,
    others: ["Un chien dort sous la table.", "Elle mange une pomme.", "Le petit chat dort.", "Où est la gare ?"],
  }],
  [null, {
    text: "A cat sleeps on the table.",
    masked: `The cat ${MASK_TOKEN} on the table.`,
    others: ["A dog lies under the table.", "She is eating an apple.", "The kitten is asleep.", "Where is the station?"],
  }],
]);

export function readView({ models, saveState }) {
  const readers = models.filter(({ tasks }) => tasks.length);
  const model = createModelSelector(readers, () => onInput(true));
  const { field, fit } = createTextField({ id: "read-text", rows: 3 });
  const others = createTextField({ id: "read-others", rows: 4, class: "plain" });
  const othersPart = make("div", { class: "others" }, make("label", { for: "read-others" }, "Compare with, one sentence per line"), others.field);
  const insert = make("button", { type: "button" }, `Insert ${MASK_TOKEN}`);
  const [heading, result] = [make("h2", {}), make("div", { class: "reading", "aria-live": "polite" })];
  const choices = make("fieldset", { class: "attention-kinds" });
  const { notice, request, cancel } = createRequests(() => load());
  const root = make("div", { class: "view" },
    make("div", { class: "head" }, make("h1", {}, "Read"), model.root), choices,
    make("div", { class: "pair stacked" },
      make("section", { class: "card", "aria-label": "Text" }, make("label", { for: "read-text" }, "Text"), field,
        make("div", { class: "tools" }, insert), othersPart),
      make("section", { class: "card", "aria-label": "Result" }, heading, notice, result)));
  let task = null;
  let timer = null;

  // Shows the tasks of the selected model, and keeps the current one if it has it.
  function updateTask(wanted) {
    const { tasks } = model.selected();
    task = tasks.includes(wanted) ? wanted : tasks[0];
    choices.hidden = tasks.length === 1;
    choices.replaceChildren(make("legend", {}, "Task"), ...tasks.map((name) => taskChoice(name)));
    const { result: title, placeholder } = TASKS.get(task);
    heading.textContent = title;
    field.placeholder = placeholder;
    othersPart.hidden = task !== "embed";
    insert.parentElement.hidden = task !== "fill";
    for (const each of [fit, others.fit]) requestAnimationFrame(each);
  }

  function taskChoice(name) {
    const { title, summary } = TASKS.get(name);
    const input = make("input", { type: "radio", name: "read-task", value: name, ...(name === task && { checked: "" }) });
    input.addEventListener("change", () => {
      const hadFocus = document.activeElement === input;
      updateTask(name);
      if (hadFocus) choices.querySelector(":checked").focus();
      onInput(true);
    });
    return make("label", {}, input, title, make("small", {}, summary));
  }

  const state = () => ({ model: model.selected().name, task, text: field.value, others: task === "embed" ? others.field.value : "" });

  function onInput(push = false) {
    updateTask(task);
    saveState("read", state(), { push });
    clearTimeout(timer);
    cancel(); // the response to the previous text must not be shown
    result.classList.add("stale");
    timer = setTimeout(load, push ? 0 : TYPING_PAUSE_MS);
  }

  async function load() {
    const { text, others: sentences } = state();
    const asked = requestFor(task, model.selected().name, text, sentences.split("\n").map((line) => line.trim()).filter(Boolean));
    if (!asked) {
      cancel();
      return show(task === "fill" && text.trim() ? [make("p", { class: "hint" }, NO_MASK)] : []);
    }
    result.classList.add("stale");
    const response = await request(...asked);
    if (response !== undefined) show(response ? [...TASKS.get(task).show(response, asked[1], pick, fillAll), moreLinks(asked[1].model, text)] : []); // an error removes the previous result
  }

  function show(elements) {
    result.classList.remove("stale");
    result.replaceChildren(...elements);
  }

  // Puts a token in place of the mask with this number.
  function pick(number, token) {
    let count = -1;
    field.value = field.value.replaceAll(MASK_TOKEN, (mask) => (++count === number ? token.trim() : mask));
    onInput(true);
    field.focus();
  }

  function fillAll(text) {
    field.value = text;
    onInput(true);
    field.focus();
  }

  insert.addEventListener("click", () => {
    field.setRangeText(MASK_TOKEN, field.selectionStart, field.selectionEnd, "end");
    field.focus();
    onInput();
  });
  for (const each of [field, others.field]) each.addEventListener("input", () => onInput());
  return {
    root,
    close: () => {
      clearTimeout(timer);
      cancel();
    },
    update(options) {
      model.select(options.get("model"));
      const example = EXAMPLE_TEXTS.get(model.selected().source) ?? EXAMPLE_TEXTS.get(null);
      updateTask(options.get("task"));
      field.value = options.get("text") ?? (task === "fill" ? example.masked : example.text);
      others.field.value = options.get("others") ?? example.others.join("\n");
      show([]);
      load();
    },
  };
}

// The path and body of a request, or null if there is nothing to ask for.
function requestFor(task, model, text, sentences) {
  if (!text.trim() || (task === "embed" && !sentences.length)) return null;
  if (task === "embed") return ["/v1/embeddings", { model, input: [text, ...sentences] }];
  if (task === "fill") return text.includes(MASK_TOKEN) ? ["/api/fill", { model, text, k: FILLINGS_SHOWN }] : null;
  return [`/api/${task}`, { model, texts: [text] }];
}

// Links to the attention and the layers of the same text.
function moreLinks(model, source) {
  const link = (view, title) => make("a", { href: `#/${view}?${new URLSearchParams({ model, source })}` }, title);
  return make("p", { class: "read-links" }, link("look", "Show its attention"), " · ", link("layers", "Show its layers"));
}

function showClasses({ results: [classes] }) {
  const bars = createBars("Classes", null, classes.length > CLASSES_SHOWN ? "all other classes" : null);
  bars.show(classes.slice(0, CLASSES_SHOWN).map(({ label, probability }) => ({ token: label, p: probability })), classes[0].label);
  return [bars.list];
}

// Words with their labels above them. Equal labels have the same colour, and so do the B- and I- labels of a span.
function showLabels({ results: [words] }) {
  const readout = make("p", { class: "hint" }, `${pointingHint("a word", "the probability of its label")} A question mark means less than 50%.`);
  const names = [...new Set(words.map(({ label }) => spanName(label)))];
  const tagged = words.map(({ word, label, probability }, i) => {
    const isUncertain = probability < MIN_CERTAIN_PROBABILITY;
    const colour = label === "O" ? "none" : names.indexOf(spanName(label)) % LABEL_COLOURS;
    const element = make("ruby", { class: `label-${colour}${isUncertain ? " uncertain" : ""}`, tabindex: i ? -1 : 0 },
      make("bdi", {}, visibleText(word)), make("rt", {}, isUncertain ? `${label}?` : label));
    const show = () => (readout.textContent = `“\u2068${visibleText(word)}\u2069”: ${label}, probability ${percent(probability)}`);
    for (const event of ["focus", "pointerover"]) element.addEventListener(event, show);
    return element;
  });
  const text = make("p", { class: "tagged", dir: "auto" }, ...tagged.flatMap((word) => [word, " "]));
  text.addEventListener("keydown", (event) => moveFocus(event, tagged, tagged.length));
  return [text, readout];
}

const spanName = (label) => label.replace(/^[BI]-/, "");

function showFillings({ masks }, { text }, pick, fillAll) {
  const filled = masks.length === 1 ? masks[0][0].text : masks.reduce((rest, [best]) => rest.replace(MASK_TOKEN, () => best.token.trim()), text);
  const all = make("button", { type: "button" }, masks.length > 1 ? "Fill all masks" : "Fill the mask");
  all.addEventListener("click", () => fillAll(filled));
  const sentence = make("p", { class: "result read-filled", dir: "auto" }, filled);
  return [sentence, make("div", { class: "tools" }, all), ...masks.flatMap((fillings, number) => {
    const bars = createBars(`Tokens for mask ${number + 1}: pick one`, ({ filling }) => pick(number, filling));
    bars.show(fillings.map(({ token, probability }) => ({ token: visibleText(token.trim() || token), p: probability, filling: token })));
    return [...(masks.length > 1 ? [make("h3", {}, `Mask ${number + 1}`)] : []), bars.list];
  })];
}

// The sentences by their cosine similarity to the first one. All vectors have length 1.
function showNeighbours({ data }, { input }) {
  const [first, ...rest] = data.map(({ embedding }) => embedding);
  const similarity = (vector) => vector.reduce((sum, value, i) => sum + value * first[i], 0);
  const ranked = rest.map((vector, i) => ({ text: input[i + 1], cosine: similarity(vector) })).sort((a, b) => b.cosine - a.cosine);
  const items = ranked.map(({ text, cosine }) => {
    const bar = make("span", { class: "score-bar", "aria-hidden": "true" });
    bar.style.setProperty("--p", Math.max(0, Math.min(1, cosine)));
    return make("li", {}, make("span", { class: "alternative-text", dir: "auto" }, text),
      make("span", { class: "score" }, bar, make("span", { class: "cosine" }, cosine.toFixed(2).replace("-", "−"))));
  });
  const map = rest.length > 1 ? [createSentenceMap(data.map(({ embedding }) => embedding), input)] : [];
  return [make("ol", { class: "alternatives neighbours" }, ...items), make("p", { class: "hint" }, COMPARE_HINT), ...map];
}
