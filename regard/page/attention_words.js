// The words of the source and of the output, with what is changed. A source word can be hidden; an output word shows its
// alternatives, and the translation can continue from one of them. Words that the model predicts are tinted by probability.

import { make, moveFocus, percent, visibleToken } from "./dom.js";
import { createBars } from "./probability_bars.js";
import { createTintLegend, tint } from "./probability_tint.js";
import { describeChanges, hasChanges, wordPositions } from "./attention_changes.js";
import { createTokenNames, joinLabels, withTokenNames } from "./token_names.js";

const hint = (read, written) => `Select ${read} word to hide it from the model. Select ${written} word to see its alternatives.`;

// `onHide(positions, isHidden)`, `onBranch(ids)`, `onUndo()`, `onReset()` and `onRemove(changes)` change what is changed.
export function createWords(data, { changes, usual, canUndo, canBranch, onHide, onBranch, onUndo, onReset, onRemove }) {
  const name = createTokenNames(data);
  const sourceMap = data.maps.find(({ kind }) => kind === "encoder" || kind === "cross") ?? data.maps[0];
  const sourceKeys = withTokenNames(data, sourceMap).keys;
  const sourceWords = wordPositions(sourceKeys, data.words?.source ?? data.words?.target);
  const effects = make("span", { class: "hint" });
  const steps = data.steps ?? [];
  const hasCross = data.maps.some(({ kind }) => kind === "cross");
  const sourceButtons = sourceWords.map(sourceButton);
  const outputButtons = wordPositions(steps.map(({ token }) => token), outputWords()).flatMap((positions) => positions.map((i, n) => outputButton(i, n > 0)));
  const alternatives = make("div", { class: "word-alternatives", hidden: "" });
  const [undo, reset] = ["Undo", "Reset"].map((text) => make("button", { type: "button" }, text));
  const source = make("p", { class: "word-line", role: "group", "aria-label": "Source words: select one to hide it" }, ...sourceButtons);
  const output = make("p", { class: "word-line", role: "group", "aria-label": "Output words: select one for its alternatives" }, ...outputButtons);
  const root = make("section", { class: "card words", "aria-label": "Words" }, make("h2", { class: "visually-hidden" }, "Words"),
    make("div", { class: "word-grid" },
      make("span", { class: "word-side" }, hasCross ? "source" : "text"), source,
      ...(steps.length ? [make("span", { class: "word-side" }, hasCross ? "output" : "predicted"), make("div", {}, output, alternatives)] : []),
      ...(usual !== null && usual !== data.target ? [make("span", { class: "word-side" }, "unchanged"), make("p", { class: "word-usual" }, ...difference(usual, data.target ?? ""))] : [])),
    changeList(), ...(steps.some(({ p }) => p !== undefined) ? [createTintLegend()] : []), make("p", { class: "hint" }, hasCross ? hint("a source", "an output") : hint("a", "a predicted"), " ", effects));
  let openStep = null;

  function sourceButton(positions) {
    const isHidden = positions.every((position) => changes.hide.includes(position));
    const text = visibleToken(joinLabels(positions.map((position) => sourceKeys[position])));
    const button = make("button", { type: "button", class: isHidden ? "word word-hidden" : "word", "aria-pressed": isHidden, title: isHidden ? "hidden: select to show it" : "select to hide it from the model", tabindex: -1 }, make("bdi", {}, text));
    const shares = positions.map(readProbability).filter((p) => p !== undefined);
    if (shares.length) tint(button, Math.min(...shares));
    button.addEventListener("click", () => onHide(positions, !isHidden));
    return button;
  }

  // The probability of a token of the text that a language model reads; undefined for its first token and other models.
  function readProbability(position) {
    return !hasCross && steps.length === sourceKeys.length - 1 ? steps[position - 1]?.p : undefined;
  }

  // Which word each output token belongs to: the tokens that are read start with one that is not written.
  function outputWords() {
    const words = data.words?.target;
    return words && steps.map((_, i) => words[words.length - steps.length + i + 1] ?? Infinity);
  }

  function outputButton(i, continues) {
    const { token, p } = steps[i];
    const button = make("button", { type: "button", class: continues ? "word word-piece" : "word", "aria-expanded": "false", tabindex: -1, ...(p === undefined ? {} : { title: `probability ${percent(p)}`, "aria-label": `${label(token, false)}, probability ${percent(p)}` }) }, make("bdi", {}, label(token, continues)));
    if (p !== undefined) tint(button, p);
    button.addEventListener("click", () => openAlternatives(openStep === i ? null : i));
    return button;
  }

  function label(token, continues) {
    return visibleToken(continues ? name(token).replace(/^·/, "") : name(token));
  }

  function openAlternatives(i) {
    openStep = i;
    outputButtons.forEach((button, n) => button.setAttribute("aria-expanded", n === i));
    alternatives.hidden = i === null;
    if (i === null) return;
    const { token, top } = steps[i];
    const title = canBranch ? `Instead of “${label(token, false)}”: pick a token to continue from it` : `Most likely tokens in place of “${label(token, false)}”`;
    const bars = createBars(title, canBranch ? (item) => pick(i, item) : null);
    bars.show(top.map((item) => ({ ...item, raw: item.token, token: visibleToken(name(item.token)) })), visibleToken(name(token)));
    alternatives.replaceChildren(make("h3", {}, title), bars.list);
  }

  function pick(i, { id, raw }) {
    if (raw === steps[i].token || (data.ends ?? []).includes(raw)) return; // after the end nothing can follow
    onBranch([...data.written.slice(0, i), id]);
  }

  // What is changed, each with a button that removes it.
  function changeList() {
    const chips = describeChanges(changes, data).map(([text, removed]) => {
      const button = make("button", { type: "button", class: "change-chip", "aria-label": `Remove: ${text}` }, text, make("span", { "aria-hidden": "true" }, " ×"));
      button.addEventListener("click", () => onRemove(removed));
      return button;
    });
    undo.disabled = !canUndo;
    reset.disabled = !hasChanges(changes);
    const list = make("div", { class: "changes", role: "group", "aria-label": "Changes" }, ...(chips.length ? chips : [make("span", { class: "hint" }, "Nothing is changed.")]), make("span", { class: "spacer" }), undo, reset);
    list.hidden = !chips.length && !canUndo;
    return list;
  }

  // Underlines source words by how much the output changes without them, as measured.
  function showEffects(measured) {
    const largest = Math.max(...measured.map(({ divergence }) => divergence), 1e-9);
    sourceWords.forEach((positions, n) => {
      const effect = measured.find((word) => word.positions[0] === positions[0]);
      if (!effect) return;
      sourceButtons[n].style.setProperty("--effect", effect.divergence / largest);
      sourceButtons[n].title = `hiding it changes the output by ${effect.divergence.toFixed(2)} bits per token`;
    });
    effects.textContent = "The bars under source words show how much the output changes without each of them.";
  }

  undo.addEventListener("click", onUndo);
  reset.addEventListener("click", onReset);
  for (const [line, buttons] of [[source, sourceButtons], [output, outputButtons]]) {
    if (buttons.length) buttons[0].tabIndex = 0;
    line.addEventListener("keydown", (event) => moveFocus(event, buttons, buttons.length + 1));
    line.addEventListener("focusin", (event) => buttons.forEach((button) => (button.tabIndex = button === event.target ? 0 : -1)));
  }
  return { root, showEffects };
}

// The words of a text, of which those that another text does not have in this order are marked.
function difference(text, other) {
  const [a, b] = [text.split(" "), other.split(" ")];
  const lengths = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  }
  const pieces = [];
  for (let i = 0, j = 0; i < a.length; i++) {
    while (j < b.length && a[i] !== b[j] && lengths[i][j + 1] >= lengths[i + 1][j] && lengths[i][j + 1] > 0) j++;
    const isCommon = j < b.length && a[i] === b[j];
    if (isCommon) j++;
    pieces.push(i ? " " : "", isCommon ? a[i] : make("del", {}, a[i]));
  }
  return pieces;
}
