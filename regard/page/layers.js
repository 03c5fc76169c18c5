// The Layers view: the vectors of the tokens after each layer in two dimensions, and what each layer would predict.

import { createRequests } from "./api.js";
import { createModelSelector, createTextField, exampleButtons, examples, lengthProblem, submitOnEnter } from "./controls.js";
import { clampIndex, make, moveFocus, percent, visibleToken } from "./dom.js";
import { COLOUR_RAMPS } from "./heat_map.js";
import { placeLabels, showLabel } from "./label_placement.js";
import { createLineChart, makeSvg } from "./line_chart.js";
import { createLogitLens } from "./logit_lens.js";
import { createTokenNames, START_LABEL, withTokenNames } from "./token_names.js";

const MAP_HEIGHT = 440; // pixels of the map of vectors
const MAP_PADDING = 46;
const LABEL_LENGTH = 14; // characters
const PLAY_MS = 900;
const KIND_TITLES = { encoder: ["Encoder", "tokens of the source"], decoder: ["Decoder", "tokens that it reads"] };
const MAP_HINT = "Each dot is the vector of a token, projected on the two directions in which the vectors differ most (PCA). Nearby dots"
  + " have similar vectors, as far as two dimensions can show it. Vectors are scaled to the same mean length in each layer,"
  + " and the map is zoomed to the dots.";
const FINAL_HINT = "The probability that each layer gives to the token which the last one predicts: the layer at which a line rises is"
  + " where the model decides.";

export function layersView({ models, saveState }) {
  const model = createModelSelector(models, () => submit());
  const source = createTextField({ id: "layers-source", class: "headline", placeholder: "Type a sentence and press Enter" });
  const target = createTextField({ id: "layers-target", class: "headline second" });
  const targetLabel = make("label", { for: "layers-target" });
  const exampleList = make("p", { class: "examples" });
  const { notice, request, cancel, showNotice } = createRequests(() => load());
  const form = make("form", { class: "card sentence" }, make("label", { for: "layers-source" }, "Sentence"), source.field, targetLabel, target.field,
    make("button", { type: "submit", class: "main" }, "Show"), exampleList);
  const content = make("div", { class: "layers-content" });
  const root = make("div", { class: "view" }, make("div", { class: "head" }, make("h1", {}, "Layers"), model.root), form, notice, content);
  let open = { stack: null, state: null, token: null, axes: "together" };
  let displayed = null;
  let requested = {};

  const inputs = () => ({ model: model.selected().name, source: source.field.value.trim(), target: target.field.value.trim() });

  function save(push = false) {
    const { axes, ...rest } = open;
    saveState("layers", { ...inputs(), ...rest, ...(axes === "apart" && { axes }) }, { push });
  }

  function submit() {
    open = { ...open, stack: null, state: null, token: null };
    save(true);
    load();
  }

  async function load() {
    updateForm();
    requested = inputs();
    if (!requested.source) {
      cancel();
      return clear();
    }
    const problem = lengthProblem(model.selected(), requested);
    if (problem) {
      cancel();
      clear();
      return showNotice("error", problem);
    }
    content.classList.add("stale");
    const data = await request("/api/layers", Object.fromEntries(Object.entries(requested).filter(([, value]) => value)));
    if (data) show(data);
    else if (data === null) clear();
  }

  function clear() {
    displayed?.close();
    displayed = null;
    content.classList.remove("stale");
    content.replaceChildren();
  }

  function show(data) {
    clear();
    target.field.placeholder = data.target ?? "";
    requestAnimationFrame(target.fit);
    displayed = createLayers(data, open, (state) => {
      open = state;
      save();
    });
    content.replaceChildren(displayed.root);
    displayed.draw();
  }

  function updateForm() {
    const { translates, writes } = model.selected();
    for (const element of [targetLabel, target.field]) element.hidden = !translates && !writes;
    targetLabel.textContent = translates ? "Translation" : "Continuation";
    exampleList.replaceChildren(...exampleButtons(model.selected(), (text) => {
      source.field.value = text;
      target.field.value = "";
      submit();
    }));
    for (const { fit } of [source, target]) requestAnimationFrame(fit);
  }

  for (const { field } of [source, target]) submitOnEnter(field, form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  return {
    root,
    close() {
      cancel();
      clear();
    },
    animation: () => displayed?.animation() ?? null,
    update(given) {
      model.select(given.get("model"));
      source.field.value = given.get("source") ?? examples(model.selected())[0] ?? "The cat sleeps on the table.";
      target.field.value = given.get("target") ?? "";
      const number = (name) => (/^\d{1,4}$/.test(given.get(name) ?? "") ? Number(given.get(name)) : null);
      open = { stack: given.get("stack"), state: number("state"), token: number("token"), axes: given.get("axes") === "apart" ? "apart" : "together" };
      load();
    },
  };
}

// The parts of the view for one response.
function createLayers(data, first, onState) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const controller = new AbortController();
  const open = { ...first };
  const stackIndex = data.stacks.findIndex(({ kind }) => kind === first.stack);
  let stack = data.stacks[stackIndex < 0 ? data.stacks.length - 1 : stackIndex];
  let timer = null;
  const names = { ...data, maps: data.stacks.length > 1 ? [{ kind: "cross" }] : [] }; // as the names of tokens need it
  const name = createTokenNames(names);
  const label = (token, i) => (i === 0 && stack.kind === "decoder" && data.stacks.length > 1 && data.special.includes(token) ? START_LABEL : visibleToken(name(token)));
  const svg = makeSvg("svg", { role: "group", "aria-label": "Vectors of the tokens" });
  const where = make("p", { class: "step-where", "aria-live": "polite" });
  const explained = make("p", { class: "hint" });
  const slider = make("input", { type: "range", min: 0, step: 1, "aria-label": "Layer" });
  const play = make("button", { type: "button", class: "play" }, "▶ Play");
  const paths = make("input", { type: "checkbox", checked: "" });
  const apart = make("input", { type: "checkbox", ...(open.axes === "apart" && { checked: "" }) });
  const kinds = make("fieldset", { class: "attention-kinds" }, make("legend", {}, "Stack"));
  const final = data.final ? createLineChart({ title: "Probability of the next token, by layer", format: percent, formatX: (x) => (Number.isInteger(x) ? data.lens.states[x] : "") }) : null;
  const lens = data.lens ? createLogitLens(withTokenNames(names, { ...data.lens, kind: "lens", keys: [] })) : null;
  const map = make("section", { class: "card layers-map", "aria-label": "Vectors in two dimensions" },
    make("h2", {}, "Vectors in two dimensions"), make("p", { class: "hint" }, MAP_HINT), kinds,
    make("div", { class: "step-line" }, play, slider), where, make("div", { class: "layers-box" }, svg), explained,
    make("p", { class: "tools" }, make("label", {}, paths, " paths from layer to layer"), make("label", {}, apart, " separate axes for each layer")));
  const root = make("div", { class: "layers-parts" }, map,
    ...(final ? [make("section", { class: "card", "aria-label": "Final token by layer" }, final.root, make("p", { class: "hint" }, FINAL_HINT))] : []),
    ...(lens ? [make("div", { class: "attention layers-lens" }, lens.root)] : []));

  const projection = () => stack[open.axes];
  const isChosen = (i) => open.token === i;

  function chooseStack(kind) {
    stack = data.stacks.find((each) => each.kind === kind);
    Object.assign(open, { stack: kind, token: null });
    open.state = clampIndex(open.state ?? Infinity, stack.states);
    build();
    draw();
    onState({ ...open });
  }

  kinds.append(...data.stacks.map(({ kind }) => {
    const input = make("input", { type: "radio", name: "layers-stack", value: kind, ...(kind === stack.kind && { checked: "" }) });
    input.addEventListener("change", () => chooseStack(kind));
    return make("label", {}, input, KIND_TITLES[kind][0], make("small", {}, KIND_TITLES[kind][1]));
  }));
  kinds.hidden = data.stacks.length < 2;

  // Creates a group for each token, which moves from layer to layer.
  function build() {
    slider.max = stack.states.length - 1;
    const groups = stack.tokens.map((token, i) => {
      const group = makeSvg("g", { tabindex: -1, role: "button", "aria-label": label(token, i), "aria-pressed": "false" },
        makeSvg("path", { class: "label-line" }), makeSvg("circle", { r: 5 }), makeSvg("text", {}));
      group.addEventListener("click", () => choose(isChosen(i) ? null : i));
      group.addEventListener("focus", () => group.matches(":focus-visible") && choose(i));
      return group;
    });
    svg.replaceChildren(makeSvg("g", { class: "layers-paths" }), ...groups);
  }

  function choose(token) {
    open.token = token;
    draw();
    onState({ ...open });
  }

  // The map is zoomed to the dots of the open layer, and to the path of the chosen token.
  function scales() {
    const { points } = projection();
    const path = open.token === null || !paths.checked ? [] : points.slice(0, open.state).map((state) => state[open.token]);
    const all = [...points[open.state], ...path];
    const width = Math.max(240, svg.parentElement.clientWidth);
    const extent = (axis) => [Math.min(...all.map((point) => point[axis])), Math.max(...all.map((point) => point[axis]))];
    const [[left, right], [low, high]] = [extent(0), extent(1)];
    const unit = Math.min((width - 2 * MAP_PADDING - 30) / (right - left || 1), (MAP_HEIGHT - 2 * MAP_PADDING) / (high - low || 1)); // the same for both axes
    const offset = [(width - unit * (right - left)) / 2 - 20, (MAP_HEIGHT - unit * (high - low)) / 2];
    return { width, place: ([x, y]) => [offset[0] + (x - left) * unit, MAP_HEIGHT - offset[1] - (y - low) * unit] };
  }

  function draw() {
    open.state = clampIndex(open.state ?? Infinity, stack.states);
    if (open.token !== null && open.token >= stack.tokens.length) open.token = null;
    slider.value = open.state;
    slider.setAttribute("aria-valuetext", stack.states[open.state]);
    const { width, place } = scales();
    svg.setAttribute("viewBox", `0 0 ${width} ${MAP_HEIGHT}`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", MAP_HEIGHT);
    const { points, explained: shares } = projection();
    const dots = stack.tokens.map((token, i) => {
      const [x, y] = place(points[open.state][i]);
      return { i, x, y, text: label(token, i), isBold: isChosen(i) };
    });
    const byImportance = [...dots].sort((a, b) => b.isBold - a.isBold);
    const labels = placeLabels(svg, byImportance, { width, height: MAP_HEIGHT, maxLength: LABEL_LENGTH });
    const groups = [...svg.querySelectorAll("g[role=button]")];
    byImportance.forEach(({ i, x, y, text }, n) => {
      const group = groups[i];
      showLabel(group, labels[n], text);
      group.style.transform = `translate(${x}px, ${y}px)`;
      group.setAttribute("aria-pressed", isChosen(i));
      group.setAttribute("tabindex", i === (open.token ?? 0) ? 0 : -1);
    });
    const lines = stack.tokens.flatMap((_, i) => {
      const isDrawn = paths.checked && (open.token === null || isChosen(i)) && open.state > 0;
      const steps = points.slice(0, open.state + 1).map((state) => place(state[i]).map((value) => value.toFixed(1)).join(" "));
      return isDrawn ? [makeSvg("path", { d: `M${steps.join("L")}`, class: isChosen(i) ? "layers-chosen" : "" })] : [];
    });
    svg.querySelector(".layers-paths").replaceChildren(...lines);
    const share = shares.length === 1 ? shares[0] : shares[open.state];
    explained.textContent = `The two dimensions show ${percent(share)} of the variance of ${shares.length === 1 ? "all layers" : "this layer"}.`;
    const title = open.state ? `After ${stack.states[open.state]}` : "The embeddings";
    where.replaceChildren(make("b", {}, title), ...(open.token === null ? [] : [`, “${label(stack.tokens[open.token], open.token)}”: nearest are ${nearest(points[open.state])}`]));
    showFinal();
    lens?.paint(dark.matches ? COLOUR_RAMPS.dark : COLOUR_RAMPS.light);
  }

  // The tokens that are nearest to the chosen one on the map.
  function nearest(points) {
    const [x, y] = points[open.token];
    const distances = points.map(([a, b], i) => [Math.hypot(a - x, b - y), i]).filter(([, i]) => i !== open.token).sort(([a], [b]) => a - b);
    return distances.slice(0, 3).map(([, i]) => `“${label(stack.tokens[i], i)}”`).join(", ") || "none";
  }

  function showFinal() {
    if (!final) return;
    const isShown = stack === data.stacks.at(-1);
    const series = data.lens.queries.map((_, t) => {
      const predicted = name(data.lens.top.at(-1)[t][0].token);
      const isBold = isShown && isChosen(t);
      return { name: `“${visibleToken(predicted)}”`, className: `run-${isBold ? 0 : 1 + (t % 7)}`, faint: !isBold, dots: isBold, unlisted: !isBold, points: data.final.map((state, i) => [i, state[t]]) };
    });
    series.sort((a, b) => Number(b.faint) - Number(a.faint));
    final.show(series, { cursor: isShown ? open.state : null });
  }

  function moveTo(state) {
    open.state = clampIndex(state, stack.states);
    draw();
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶ Play";
  }

  slider.addEventListener("input", () => {
    stop();
    moveTo(Number(slider.value));
    onState({ ...open });
  });
  play.addEventListener("click", () => {
    if (timer !== null) return stop();
    if (open.state === stack.states.length - 1) moveTo(0);
    play.textContent = "❚❚ Pause";
    timer = setInterval(() => {
      moveTo(open.state + 1);
      if (open.state < stack.states.length - 1) return;
      stop();
      onState({ ...open });
    }, PLAY_MS);
  });
  paths.addEventListener("change", draw);
  apart.addEventListener("change", () => {
    open.axes = apart.checked ? "apart" : "together";
    draw();
    onState({ ...open });
  });
  svg.addEventListener("keydown", (event) => {
    const groups = [...svg.querySelectorAll("g[role=button]")];
    if (event.key === "Escape") return choose(null);
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return choose(groups.indexOf(event.target)); // Esc deselects it
    }
    return moveFocus(event, groups, groups.length);
  });
  dark.addEventListener("change", draw, { signal: controller.signal });
  build();
  const observer = new ResizeObserver(() => requestAnimationFrame(() => !controller.signal.aborted && draw()));
  observer.observe(svg.parentElement);
  return {
    root,
    draw,
    animation: () => ({ count: stack.states.length, show: moveTo, current: () => open.state }),
    close() {
      stop();
      controller.abort();
      observer.disconnect();
      final?.close();
    },
  };
}
