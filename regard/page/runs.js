// The Runs view: the curves of training runs, their validation samples, and the attention of each snapshot. One slider moves
// all of them in time. Runs that are being trained are read again every few seconds.

import { createRequests } from "./api.js";
import { capitalize, clampIndex, make } from "./dom.js";
import { createFilm } from "./film.js";
import { createLineChart } from "./line_chart.js";

const POLL_MS = 2500; // time between two requests for a run that is being trained
const PLAY_MS = 450; // time that each moment is shown while playing
const SAVE_DELAY_MS = 200; // time that a step is shown before it is written to the URL
const MAX_COLOURS = 8; // number of colours in runs.css
const STATE_LABELS = { waiting: "starting", running: "training", finished: "finished", stopped: "stopped" };
const NO_RUNS = "Runs appear here while they are being trained: their curves, samples of what they write, and how their heads emerge.";
const COMMANDS = [
  ["Train a small translator and watch it:", "regard train petit-fr-en --watch"],
  ["Or look at runs that exist, several at once:", "regard serve runs/first runs/second --open"],
];

export const formatNumber = (value) => {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  if (size < 1e-4) return Number(value.toPrecision(2)).toExponential().replaceAll("-", "−");
  return `${Number(value.toPrecision(3))}`.replace("-", "−");
};
export const formatScore = (value) => value.toFixed(value > 0 && value < 1 ? 2 : 1); // ticks of the first scores would be equal
const formatStep = (step) => Math.round(step).toLocaleString("en");
const formatTime = (seconds) => (seconds < 90 ? `${Math.round(seconds)} s` : seconds < 5400 ? `${Number((seconds / 60).toPrecision(2))} min` : `${Number((seconds / 3600).toPrecision(2))} h`);

export function runsView({ saveState }) {
  const { notice, request, cancel, showNotice } = createRequests(() => load());
  const choices = make("fieldset", { class: "run-choices" });
  const [byTime, log] = [make("input", { type: "checkbox" }), make("input", { type: "checkbox" })];
  const options = make("p", { class: "tools chart-options" }, make("label", {}, byTime, " over time"), make("label", {}, log, " logarithmic loss"));
  const formatX = (x) => (byTime.checked ? formatTime(x) : formatNumber(x));
  const onPick = (x) => moveTo(nearestMoment(x));
  const charts = {
    loss: createLineChart({ title: "Loss, nats per token", format: formatNumber, formatX, onPick }),
    score: createLineChart({ title: "Score", format: formatScore, formatX, onPick }),
    lr: createLineChart({ title: "Learning rate", format: formatNumber, formatX, onPick }),
    speed: createLineChart({ title: "Tokens per second", format: formatNumber, formatX, onPick }),
  };
  const grid = make("div", { class: "charts" }, ...Object.values(charts).map(({ root }) => make("section", { class: "card" }, root)));
  const slider = make("input", { type: "range", min: 0, step: 1, "aria-label": "Step of the run" });
  const play = make("button", { type: "button", class: "play" }, "▶ Play");
  const where = make("p", { class: "step-where", "aria-live": "polite" });
  const scrubber = make("section", { class: "card scrubber", "aria-label": "Time" }, play, slider, where);
  const chosen = make("select", {});
  const chosenLabel = make("label", { class: "run-chosen" }, "Samples and attention of ", chosen);
  const samples = make("div", { class: "samples" });
  const notes = make("ul", { class: "run-notes" });
  const film = createFilm({
    formatStep,
    onState: (state) => {
      filmState = { ...filmState, ...state };
      save();
    },
    onFrames: () => film.showStep(moments[position] ?? Infinity),
  });
  const content = make("div", { class: "run-content" }, make("div", { class: "run-head" }, choices, options), grid, scrubber, chosenLabel,
    make("section", { class: "card", "aria-label": "Validation samples" }, make("h2", {}, "What it writes"), samples, notes), film.root);
  const root = make("div", { class: "view" },
    make("div", { class: "head" }, make("h1", {}, "Runs"), make("p", { class: "about" }, "Training, seen from the files of the runs.")), notice, content);
  let runs = new Map(); // the responses by name
  let names = []; // of all runs, in the server's order
  let hidden = new Set(); // names of runs that are not drawn
  let current = null; // the name of the run whose samples and film are shown
  let moments = []; // the steps that the slider can show: validations and snapshots
  let position = 0; // index of the moment that is shown
  let wantedStep = null; // from the URL, until the run is loaded
  let follows = true; // whether the newest moment is shown as it arrives
  let filmState = {};
  let timers = { poll: null, play: null, save: null };

  async function load() {
    clearTimeout(timers.poll);
    const list = await request("/api/runs");
    if (!list) return list === null ? pollLater() : undefined;
    names = list.map(({ name }) => name);
    if (!names.length) return showEmpty();
    if (!names.includes(current)) current = (list.find(({ state }) => state === "running") ?? list[0]).name;
    for (const { name, state } of list) {
      if (runs.has(name) && !isActive(runs.get(name)) && state === runs.get(name).state) continue; // it does not change any more
      const response = await request("/api/run", { run: name });
      if (response === undefined) return undefined;
      if (response === null) return pollLater();
      runs.set(name, response);
      show();
    }
    return pollLater();
  }

  const isActive = ({ state }) => state === "running" || state === "waiting";

  function pollLater() {
    if (!runs.size || [...runs.values()].some(isActive)) timers.poll = setTimeout(load, POLL_MS);
  }

  function showEmpty() {
    const instructions = COMMANDS.flatMap(([text, command]) => [make("p", {}, text), make("pre", {}, make("code", {}, command))]);
    content.replaceChildren(make("section", { class: "card empty" }, make("h2", {}, "This server shows no runs"), make("p", {}, NO_RUNS), ...instructions));
  }

  function show() {
    showChoices();
    showCharts();
    showMoments();
  }

  const colourOf = (name) => `run-${names.indexOf(name) % MAX_COLOURS}`;

  function showChoices() {
    const focused = document.activeElement?.value;
    const hadFocus = choices.contains(document.activeElement);
    const items = [...runs.values()].map(({ name, state, step, steps, title, parameters }) => {
      const input = make("input", { type: "checkbox", value: name, ...(!hidden.has(name) && { checked: "" }) });
      input.addEventListener("change", () => {
        hidden = new Set([...hidden, name].filter((each) => each !== name || !input.checked));
        showCharts();
        save();
      });
      const progress = make("progress", { max: steps || 1, value: step, "aria-hidden": "true" });
      const about = `${title && title !== name ? `${title} · ` : ""}${STATE_LABELS[state]} · step ${formatStep(step)} of ${formatStep(steps)} · ${formatNumber(parameters)} parameters`;
      return make("label", { class: `run-choice ${colourOf(name)} run-${state}` }, input, make("span", { class: "run-swatch" }), make("b", {}, name), make("small", {}, about), progress);
    });
    choices.replaceChildren(make("legend", {}, "Runs"), ...items);
    if (hadFocus) [...choices.querySelectorAll("input")].find(({ value }) => value === focused)?.focus();
    if (chosen.childElementCount !== names.length) chosen.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    chosen.value = current;
    chosenLabel.hidden = names.length < 2;
  }

  const drawn = () => [...runs.values()].filter(({ name }) => !hidden.has(name));

  function showCharts() {
    const xOf = byTime.checked ? "seconds" : "step";
    const zip = (curve, key) => curve[xOf].map((x, i) => [x, curve[key][i]]);
    const validation = (run, key) => run.validations.map((each) => [each[xOf], each[key]]);
    const measures = [...new Set(drawn().map(({ measure }) => measure).filter(Boolean))];
    const several = runs.size > 1;
    const series = (key, curve) => drawn().map((run) => ({ name: several ? run.name : curve, className: colourOf(run.name), points: zip(run.curve, key) }));
    const validated = (key, label) => drawn().map((run) => ({ name: several ? `${run.name}, ${label(run)}` : label(run), className: colourOf(run.name), points: validation(run, key), dots: true }));
    charts.score.root.querySelector("figcaption").textContent = `${capitalize(measures.join(", ") || "score")} on the validation text`;
    const cursor = cursorX();
    const message = "There is nothing to draw yet.";
    charts.loss.show([...series("loss", "training").map((each) => ({ ...each, faint: true, name: several ? `${each.name}, training` : "training" })), ...validated("loss", () => "validation")], { cursor, log: log.checked, message });
    charts.score.show(validated("score", ({ measure }) => measure ?? "score").filter(({ points }) => points.some(([, y]) => y !== null)), { cursor, message: drawn().some((run) => run.validations.length) ? "There is no score, only a loss." : "It has not been validated yet." });
    charts.lr.show(series("lr", "learning rate"), { cursor, message });
    charts.speed.show(series("tokens_per_second", "tokens/s"), { cursor, message });
  }

  // The x of the shown step on the charts.
  function cursorX() {
    const run = runs.get(current);
    if (!run || !moments.length) return null;
    const step = moments[position];
    if (!byTime.checked) return step;
    return run.curve.seconds[run.curve.step.findLastIndex((each) => each <= step)] ?? 0;
  }

  function nearestMoment(x) {
    const run = runs.get(current);
    const step = byTime.checked ? run.curve.step[clampIndex(run.curve.seconds.findIndex((seconds) => seconds >= x), run.curve.step)] : x;
    const distances = moments.map((moment) => Math.abs(moment - step));
    return distances.indexOf(Math.min(...distances));
  }

  function showMoments() {
    const run = runs.get(current);
    if (!run) return;
    const step = wantedStep ?? moments[position];
    moments = [...new Set([...run.validations.map((each) => each.step), ...run.snapshots])].sort((a, b) => a - b);
    if (wantedStep !== null) follows = false;
    const index = follows ? moments.length - 1 : moments.findLastIndex((moment) => moment <= step);
    wantedStep = null;
    slider.max = Math.max(0, moments.length - 1);
    scrubber.hidden = moments.length < 2;
    notes.replaceChildren(...run.notes.map((note) => make("li", {}, note)));
    const [sample] = run.validations.at(-1)?.samples ?? [];
    const isTranslator = run.task === "translation";
    film.open({
      run: current,
      steps: run.snapshots,
      source: filmState.source ?? sample?.source ?? "",
      target: filmState.source ? filmState.target ?? "" : (isTranslator && sample?.reference) || "",
      open: { kind: filmState.kind, layer: filmState.layer, head: filmState.head },
    });
    moveTo(index, false);
  }

  function moveTo(index, isUser = true) {
    position = clampIndex(index, moments);
    slider.value = position;
    if (isUser) follows = position === moments.length - 1;
    const step = moments[position] ?? 0;
    slider.setAttribute("aria-valuetext", `step ${formatStep(step)}`);
    for (const chart of Object.values(charts)) chart.moveCursor(cursorX());
    showSamples(step);
    film.showStep(step);
    if (!isUser) return;
    clearTimeout(timers.save);
    timers.save = setTimeout(save, SAVE_DELAY_MS);
  }

  function showSamples(step) {
    const run = runs.get(current);
    const validation = run.validations.findLast((each) => each.step <= step);
    const score = validation?.score === null || !validation ? "" : `, ${run.measure ?? "score"} ${validation.score.toFixed(1)}`;
    const loss = validation?.loss === null || !validation ? "" : `, validation loss ${formatNumber(validation.loss)}`;
    where.replaceChildren("Step ", make("b", {}, formatStep(step)), `${loss}${score}${validation?.best && validation.step === run.best_step ? " (best)" : ""}`);
    if (!validation?.samples.length) return samples.replaceChildren(make("p", { class: "hint" }, run.validations.length ? "It was not validated yet." : "There are no samples yet."));
    const entries = validation.samples.map(({ source, output, reference }) => make("dl", {},
      make("dt", {}, "source"), make("dd", { dir: "auto" }, source),
      make("dt", {}, "output"), make("dd", { class: "sample-output", dir: "auto" }, ...markWords(output, reference)),
      ...(reference ? [make("dt", {}, "reference"), make("dd", { dir: "auto" }, reference)] : [])));
    return samples.replaceChildren(...entries);
  }

  function stop() {
    clearInterval(timers.play);
    timers.play = null;
    play.textContent = "▶ Play";
  }

  function save() {
    const step = follows ? null : moments[position];
    saveState("runs", {
      run: names.length > 1 ? current : null,
      hidden: [...hidden].join(","),
      step,
      time: byTime.checked ? 1 : null,
      log: log.checked ? 1 : null,
      ...filmState,
    });
  }

  slider.addEventListener("input", () => {
    stop();
    moveTo(Number(slider.value));
  });
  play.addEventListener("click", () => {
    if (timers.play !== null) return stop();
    if (position === moments.length - 1) moveTo(0);
    play.textContent = "❚❚ Pause";
    timers.play = setInterval(() => {
      moveTo(position + 1);
      if (position === moments.length - 1) stop();
    }, PLAY_MS);
  });
  chosen.addEventListener("change", () => {
    current = chosen.value;
    filmState = {};
    follows = true;
    show();
    save();
  });
  for (const input of [byTime, log]) {
    input.addEventListener("change", () => {
      showCharts();
      save();
    });
  }
  return {
    root,
    close() {
      stop();
      clearTimeout(timers.poll);
      clearTimeout(timers.save);
      for (const chart of Object.values(charts)) chart.close();
      film.close();
      cancel();
    },
    // For the take-away menu: an animation of what this view shows.
    animation() {
      return moments.length > 1 ? { count: moments.length, show: (i) => moveTo(i, false), current: () => position } : null;
    },
    update(given) {
      stop();
      const number = (name) => (/^\d{1,9}$/.test(given.get(name) ?? "") ? Number(given.get(name)) : null);
      current = given.get("run") ?? current;
      hidden = new Set((given.get("hidden") ?? "").split(",").filter(Boolean));
      wantedStep = number("step");
      follows = wantedStep === null;
      byTime.checked = given.has("time");
      log.checked = given.has("log");
      const texts = Object.fromEntries(["source", "target", "kind"].filter((name) => given.get(name)).map((name) => [name, given.get(name)]));
      const numbers = Object.fromEntries(["layer", "head"].filter((name) => number(name) !== null).map((name) => [name, number(name)]));
      filmState = { ...texts, ...numbers };
      showNotice("none");
      load();
    },
  };
}

// The words of an output, those that the reference has too being marked.
function markWords(output, reference) {
  const remaining = reference.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  return output.split(/([\p{L}\p{N}]+)/u).map((piece, i) => {
    const index = i % 2 && reference ? remaining.indexOf(piece.toLowerCase()) : -1;
    if (index < 0) return piece;
    remaining.splice(index, 1);
    return make("span", { class: "sample-right" }, piece);
  });
}
