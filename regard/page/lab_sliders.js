// The labs that are formulas, with sliders: recomputed in the browser as a slider moves. Each lab has its controls, and a
// function from their values to charts and a sentence on what they show.

import { capitalize, make, percent } from "./dom.js";
import { COLOUR_RAMPS } from "./heat_map.js";
import { createLineChart } from "./line_chart.js";
import * as formulas from "./lab_formulas.js";

const KEY_VARIANCE = 1e-6; // variance of every component of a key, in the labs one-head and two-heads
const SAMPLE_COUNT = 400; // number of samples in these labs; those in Python draw more
const round = (value, digits = 3) => (value === 0 ? "0" : `${Number(value.toPrecision(digits))}`);
const range = (low, high, step = 1) => Array.from({ length: Math.floor((high - low) / step + 1e-9) + 1 }, (_, i) => low + i * step);
const SEED_SLIDER = { name: "seed", title: "Random numbers", meaning: "another seed draws others", min: 0, max: 20, step: 1, value: 0 };
const BETA_SLIDER = { name: "beta", title: "β", meaning: "length of the query", min: 1, max: 30, step: 0.5, value: 10 };
const LENGTH_VARIANCE_SLIDER = { name: "variance", title: "Variance of k_a’s length", meaning: "0: all keys keep their length", min: 0, max: 1, step: 0.05, value: 0.5 };
const KEY_COUNT_SLIDER = { name: "keys", title: "Keys", meaning: "number of keys", min: 2, max: 64, step: 1, value: 8 };

const LABS = new Map([
  ["scaling", {
    controls: [
      { name: "power", title: "Width h", meaning: "of queries and keys", min: 1, max: 10, step: 1, value: 6, format: (power) => `${2 ** power}` },
      { name: "length", title: "Keys", meaning: "number of keys", min: 4, max: 64, step: 4, value: 32 },
      SEED_SLIDER,
    ],
    compute({ power, length, seed }) {
      const measured = [false, true].map((divides) => range(1, 10).map((each) => {
        const draw = formulas.normalNumbers(seed);
        const [queries, keys] = [0, 1].map(() => formulas.randomMatrix(length, 2 ** each, draw));
        return formulas.measureScaling(queries, keys, formulas.randomMatrix(length, length, draw), divides);
      }));
      const chart = (title, name, format) => ({
        title, format, formatX: (x) => `${Math.round(2 ** x)}`, cursor: power, log: name === "variance",
        series: ["undivided", "divided by √h"].map((label, i) => ({ name: label, className: `run-${1 - i}`, dots: true, points: range(1, 10).map((each) => [each, measured[i][each - 1][name]]) })),
      });
      const [sharp, flat] = measured.map((list) => list[power - 1]);
      return {
        charts: [chart("Variance of scores, by width", "variance", (value) => round(value, 2)), chart("Entropy of weights, as a share of its maximum", "entropy", percent), chart("Gradient at the scores", "gradient", (value) => round(value, 2))],
        summary: `At h = ${2 ** power} the scores have variance ${round(sharp.variance)}, and the weights ${percent(sharp.entropy)} of the largest entropy. Divided by √h: ${round(flat.variance)} and ${percent(flat.entropy)}.`,
      };
    },
  }],
  ["copy", {
    controls: [
      { name: "lead", title: "Lead", meaning: "of one key’s score over the others", min: 0, max: 20, step: 0.5, value: 8 },
      { ...KEY_COUNT_SLIDER, max: 512, value: 64 },
      { name: "spread", title: "Spread of the other scores", meaning: "0: all equal", min: 0, max: 2, step: 0.1, value: 0 },
      SEED_SLIDER,
    ],
    compute({ lead, keys, spread, seed }) {
      const draw = formulas.normalNumbers(seed);
      const others = Array.from({ length: keys - 1 }, () => spread * draw());
      const values = formulas.randomMatrix(keys, 64, draw);
      const leads = range(0, 20, 0.5);
      const errors = formulas.copyErrors(others, values, leads);
      const needed = formulas.predictedLead(keys);
      const [error] = formulas.copyErrors(others, values, [lead]);
      return {
        charts: [{
          title: "Error of the output, by lead (logarithmic)", format: (value) => (value >= 1e-3 ? percent(value) : value.toExponential(0)), formatX: (x) => `${round(x)}`, cursor: lead, log: true,
          series: [{ name: "error", className: "run-0", points: leads.map((x, i) => [x, errors[i]]) }, { name: "a copy: 1%", className: "run-1", faint: true, points: [[0, 0.01], [20, 0.01]] }],
        }],
        summary: `With a lead of ${lead} the output differs from the value by ${percent(error)}. With equal other scores, a copy (1%) needs a lead of about ln(99 · ${keys - 1}) = ${round(needed)}.`,
      };
    },
  }],
  ["average", {
    controls: [
      { name: "beta", title: "β", meaning: "length of the query β(k_a + k_b)", min: 0, max: 16, step: 0.5, value: 8 },
      { name: "longer", title: "k_a is longer by", meaning: "0%: all keys have length 1", min: 0, max: 0.5, step: 0.01, value: 0, format: (value) => `${Math.round(100 * value)}%` },
      { ...KEY_COUNT_SLIDER, max: 32, value: 16 },
      SEED_SLIDER,
    ],
    compute({ beta, longer, keys: count, seed }) {
      const draw = formulas.normalNumbers(seed);
      const keys = formulas.orthonormalRows(formulas.randomMatrix(count, 64, draw));
      keys[0] = keys[0].map((value) => value * (1 + longer));
      const values = formulas.randomMatrix(count, 64, draw);
      const betas = range(0, 16, 0.5);
      const mixtures = betas.map((each) => formulas.mixTwo(keys, values, each));
      const now = formulas.mixTwo(keys, values, beta);
      const points = (name) => betas.map((x, i) => [x, mixtures[i][name]]);
      return {
        charts: [
          { title: "Weights, by β", format: percent, formatX: round, cursor: beta, series: [{ name: "v_a", className: "run-0", points: points("weightA") }, { name: "v_b", className: "run-1", points: points("weightB") }] },
          { title: "Error against ½(v_a + v_b) (logarithmic)", format: (value) => (value >= 1e-3 ? percent(value) : value.toExponential(0)), formatX: round, cursor: beta, log: true, series: [{ name: "error", className: "run-0", points: points("error") }] },
        ],
        summary: `At β = ${beta} the weights are ${percent(now.weightA)} and ${percent(now.weightB)}, and the output differs from the average by ${percent(now.error)}.`,
      };
    },
  }],
  ["one-head", { controls: [BETA_SLIDER, LENGTH_VARIANCE_SLIDER, KEY_COUNT_SLIDER, SEED_SLIDER], compute: (values) => headsLab(values, [1]) }],
  ["two-heads", { controls: [{ ...BETA_SLIDER, value: 20 }, LENGTH_VARIANCE_SLIDER, KEY_COUNT_SLIDER, SEED_SLIDER], compute: (values) => headsLab(values, [1, 2]) }],
  ["positions", {
    controls: [
      { name: "width", title: "Width", meaning: "of the position vectors", min: 4, max: 256, step: 2, value: 130 },
      { name: "count", title: "Positions", meaning: "number of positions", min: 8, max: 120, step: 1, value: 50 },
      { name: "from", title: "Position", meaning: "whose products with the others are drawn", min: 0, max: 119, step: 1, value: 0 },
    ],
    compute({ width, count, from }) {
      const position = Math.min(from, count - 1);
      const table = range(0, count - 1).map((each) => formulas.sinusoids(each, width));
      const products = table.map((_, other) => [other, formulas.positionProduct(other - position, width)]);
      return {
        picture: { title: "Sinusoids: a row for each position", table },
        charts: [{ title: `Product with position ${position}`, format: (value) => round(value), formatX: round, cursor: position, series: [{ name: "product", className: "run-0", points: products }] }],
        summary: `The product of two position vectors depends on their distance only: ${round(width / 2)} at distance 0, ${round(formulas.positionProduct(1, width))} at 1, ${round(formulas.positionProduct(10, width))} at 10.`,
      };
    },
  }],
  ["schedule", {
    controls: [
      { name: "warmup", title: "Warm-up", meaning: "number of steps", min: 0, max: 8000, step: 100, value: 4000 },
      { name: "width", title: "Width", meaning: "of the model", min: 64, max: 1024, step: 64, value: 512 },
      { name: "steps", title: "Steps", meaning: "of the run", min: 1000, max: 100_000, step: 1000, value: 20_000 },
    ],
    compute({ warmup, width, steps }) {
      const at = range(1, steps, Math.max(1, Math.floor(steps / 300)));
      const names = ["inverse-sqrt", "cosine", "linear", "constant"];
      const series = names.map((schedule, i) => ({ name: schedule, className: `run-${i}`, faint: i > 0, points: at.map((step) => [step, formulas.learningRate(step, { warmup, width, steps, schedule })]) }));
      const peak = (width * Math.max(1, warmup)) ** -0.5;
      return {
        charts: [{ title: "Learning rate, by step", format: (value) => (value ? value.toExponential(1).replace("-", "−") : "0"), formatX: (x) => Math.round(x).toLocaleString("en"), cursor: Math.min(warmup, steps), series: series.reverse() }],
        summary: `The paper’s schedule rises to (width · warm-up)^−½ = ${peak.toExponential(2).replace("-", "−")} at step ${warmup.toLocaleString("en")}, then falls with the square root of the step.`,
      };
    },
  }],
]);

// Samples as in the lab one-head: only the products of the keys with μ_a and μ_b matter, and only the length of k_a varies much.
function headsLab({ beta, variance, keys, seed }, heads) {
  const draw = formulas.normalNumbers(seed);
  const values = formulas.randomMatrix(keys, 32, draw);
  const noise = () => Math.sqrt(KEY_VARIANCE) * draw();
  const samples = Array.from({ length: SAMPLE_COUNT }, () => Array.from({ length: keys }, (_, key) => [(key === 0) + noise() + (key === 0 ? Math.sqrt(variance) * draw() : 0), (key === 1) + noise()]));
  const kept = samples.filter(([[length]]) => length >= 0);
  const weights = heads.map((count) => kept.map((products) => formulas.headWeights(products, beta, count)));
  const single = (list) => list.filter(([a]) => a >= 0.9 || a <= 0.1).length / list.length;
  const near = (list) => list.filter(([a]) => a >= 0.4 && a <= 0.6).length / list.length;
  const order = kept.map(([[length]], i) => [length, i]).sort(([a], [b]) => a - b);
  const names = ["one head", "two heads"];
  const byLength = heads.map((count, i) => ({ name: names[count - 1], className: `run-${2 - count}`, points: order.map(([length, sample]) => [length, weights[i][sample][0]]) }));
  const bins = range(0, 20).map((bin) => bin / 20);
  const histogram = heads.map((count, i) => ({
    name: names[count - 1], className: `run-${2 - count}`, dots: true,
    points: bins.map((low) => [low, weights[i].filter(([a]) => a >= low - 0.025 && a < low + 0.025).length / kept.length]),
  }));
  const reversed = 1 - kept.length / SAMPLE_COUNT;
  const variances = weights.map((list) => formulas.outputVariance(list, values));
  const figures = heads.map((count, i) => `${capitalize(names[count - 1])}: ${percent(near(weights[i]))} of the samples are close to the average, ${percent(single(weights[i]))} are almost one value only; variance of the output ${round(variances[i])} (coin toss: 1)`);
  const predicted = heads.length === 1
    ? `Predicted by the normal distribution: one value only in ${percent(formulas.predictSingle(beta, variance, KEY_VARIANCE))}, reversed in ${percent(formulas.predictReversed(variance, KEY_VARIANCE))}.`
    : `Its own head is predicted to miss k_a in ${percent(formulas.predictMisses(beta, keys, variance, KEY_VARIANCE))}.`;
  return {
    charts: [
      { title: "Weight of v_a, by the length of k_a", format: percent, formatX: (x) => round(x, 2), cursor: 1, series: byLength },
      { title: "How often each weight of v_a occurs", format: percent, formatX: percent, cursor: 0.5, series: histogram },
    ],
    summary: `${figures.join(". ")}. k_a is reversed in ${percent(reversed)} of ${SAMPLE_COUNT} samples, which are left out. ${predicted}`,
  };
}

export const hasSliders = (name) => LABS.has(name);

// The section of a lab with sliders.
export function createLabSliders(name, onChange = () => {}, given = {}) {
  const { controls, compute } = LABS.get(name);
  const summary = make("p", { class: "lab-summary", role: "status" });
  const charts = make("div", { class: "charts lab-charts" });
  const picture = make("figure", { class: "lab-picture" });
  const sliders = controls.map((control) => createControl(control, given[control.name]));
  const root = make("section", { class: "lab-try", "aria-label": "Try it" }, make("h3", {}, "Try it"),
    make("div", { class: "knobs" }, ...sliders.map((slider) => slider.root)), picture, charts, summary);
  let drawn = [];

  function createControl({ name: key, title, meaning, format = (value) => `${value}`, value, ...limits }, start) {
    const id = `lab-${key}`;
    const input = make("input", { type: "range", id, ...limits, value: start ?? value, "aria-describedby": `${id}-about` });
    const output = make("output", { for: id });
    const show = () => {
      output.textContent = format(Number(input.value));
      input.setAttribute("aria-valuetext", output.textContent);
    };
    input.addEventListener("input", () => {
      show();
      update();
      onChange(Object.fromEntries(sliders.filter((slider) => Number(slider.input.value) !== slider.initial).map((slider) => [slider.key, slider.input.value])));
    });
    show();
    return { key, input, initial: value, root: make("div", { class: "knob" }, make("label", { for: id }, title), output, input, make("small", { id: `${id}-about` }, meaning)) };
  }

  function update() {
    const values = Object.fromEntries(sliders.map(({ key, input }) => [key, Number(input.value)]));
    const result = compute(values);
    summary.textContent = result.summary;
    if (drawn.length !== result.charts.length) {
      drawn.forEach((chart) => chart.close());
      drawn = result.charts.map((chart) => createLineChart(chart));
      charts.replaceChildren(...drawn.map((chart) => chart.root));
    }
    result.charts.forEach(({ title, series, cursor, log }, i) => {
      drawn[i].root.querySelector("figcaption").textContent = title;
      drawn[i].show(series, { cursor, log });
    });
    if (result.picture) drawPicture(result.picture);
  }

  function drawPicture({ title, table }) {
    const canvas = make("canvas", { width: table[0].length, height: table.length, role: "img", "aria-label": title });
    const context = canvas.getContext("2d");
    const image = context.createImageData(canvas.width, canvas.height);
    const [low, , , high] = COLOUR_RAMPS.dark;
    table.flat().forEach((value, i) => image.data.set([...low.map((from, c) => Math.round(from + ((high[c] - from) * (value + 1)) / 2)), 255], 4 * i));
    context.putImageData(image, 0, 0);
    picture.replaceChildren(make("figcaption", {}, title), canvas);
  }

  requestAnimationFrame(update);
  return { root, close: () => drawn.forEach((chart) => chart.close()) };
}
