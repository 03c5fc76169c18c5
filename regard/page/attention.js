// The Attention view: a sentence, the attention of every head, the decoding steps and the beam search.

import { createRequests } from "./api.js";
import { changesFromUrl, changesToRequest, changesToUrl, describeChanges, hasChanges, isSame as isSameChanges, NO_CHANGES } from "./attention_changes.js";
import { createAttentionDisplay } from "./attention_display.js";
import { createLanguageWarning, createModelSelector, createTextField, exampleButtons, examples, lengthProblem, submitOnEnter, textLengths } from "./controls.js";
import { make } from "./dom.js";
import { isTourDue, startTour } from "./tour.js";

const COUNTER_SHARE = 0.8; // share of the maximum length from which characters are counted
const SAVE_DELAY_MS = 150; // time that a head or step is open before it is written to the URL
const TRANSLATION_NOTE = "The Translate view translates each sentence of a longer text separately, and in lower precision on"
  + " some devices. Here the model reads the text in one piece; its own translation of it would be: ";

export function attentionView({ models, saveState, isFirstScreen = false }) {
  const model = createModelSelector(models, () => submit());
  const placeholder = "Type a sentence and press Enter";
  const source = createTextField({ id: "attention-source", class: "headline", placeholder });
  const target = createTextField({ id: "attention-target", class: "headline second" });
  const { notice, request, cancel, showNotice } = createRequests(() => load(requested));
  const exampleList = make("p", { class: "examples" });
  const counter = make("p", { class: "count hint", "aria-live": "polite" });
  const translationNote = make("p", { class: "translation-note hint" });
  const warning = createLanguageWarning();
  const content = make("div", { class: "attention-content" });
  const targetLabel = make("label", { for: "attention-target" });
  const form = make("form", { class: "card sentence" },
    make("label", { for: "attention-source" }, "Sentence"), source.field, targetLabel, target.field,
    make("button", { type: "submit", class: "main" }, "Show"), counter, exampleList);
  const root = make("div", { class: "view" },
    make("div", { class: "head" }, make("h1", {}, "Attention"), model.root), form, notice, warning.root, translationNote, content);
  let requested = {}; // the model, source and target that are displayed or being loaded
  let clicked = ""; // the translation of the source that was clicked in the Translate view
  let open = {}; // the kind of attention, layer, head, step and cell to display
  let changes = NO_CHANGES; // what is changed in the model
  let undone = []; // previous changes, the latest last
  let usual = null; // the output without changes, and the texts that it is for
  let display = { words: false, sinks: false }; // how maps are shown
  let compared = null; // the model, source, layer and head to compare with
  let measuredFor = null; // the texts for which the effects of all heads are shown; they are measured again after a change
  let [data, displayed] = [null, null]; // the last response, and the components that display it
  let timer = null;
  let loads = 0; // number of times that something was loaded
  let tour = null; // the tour of the first screen, while it is shown
  let wantsTour = isFirstScreen && isTourDue();
  let isClosed = false; // another view is displayed, and the URL is its own

  const inputs = () => ({
    model: model.selected().name,
    source: source.field.value.trim(),
    target: target.field.value.trim(),
  });
  const isSame = (a, b) => JSON.stringify(a) === JSON.stringify(b);
  const parameters = () => ({ ...open, ...changesToUrl(changes), words: display.words ? 1 : null, sinks: display.sinks ? 1 : null, ...comparedToUrl(compared) });

  // A new sentence keeps the open head and silenced heads; a new model keeps only the kind of attention.
  function submit() {
    const { kind, layer, head } = open;
    const isSameModel = inputs().model === requested.model;
    open = isSameModel ? { kind, layer, head } : { kind };
    changes = isSameModel && displayed ? { ...NO_CHANGES, off: changes.off } : NO_CHANGES; // nothing that was refused
    if (compared?.source === requested.source) compared = { ...compared, source: inputs().source }; // of the same sentence
    undone = [];
    clicked = "";
    translationNote.replaceChildren();
    saveState("look", { ...inputs(), ...parameters() }, { push: true });
    load();
  }

  // Applies other changes, or none (null), to the same text. Those that are being loaded are kept: `update` receives them.
  function change(update) {
    if (isClosed) return; // a slider that is removed while it is held reports a change
    undone.push(changes);
    apply(update ? update(changes) : NO_CHANGES);
  }

  function undo() {
    if (undone.length) apply(undone.pop());
  }

  function apply(next) {
    changes = next;
    if (changes.from.length) target.field.value = ""; // another translation is searched for
    const texts = { ...requested, ...(changes.from.length ? { target: "" } : {}) }; // what is typed but not submitted stays in the form
    saveState("look", { ...texts, ...parameters() }, { push: true });
    load(texts);
  }

  async function load(texts = inputs()) {
    const number = (loads += 1);
    updateForm();
    requested = texts;
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
    const given = Object.fromEntries(Object.entries(requested).filter(([, value]) => value));
    const isChanged = hasChanges(changes);
    if (isChanged && !isSame(usual?.requested, requested)) {
      const unchanged = await request("/api/attend", given);
      if (number !== loads) return;
      if (!unchanged) return unchanged === null ? clear() : undefined;
      usual = { requested, target: unchanged.target };
    }
    const beginning = requested.target ? {} : { beginning: changes.from };
    const response = await request("/api/attend", isChanged ? { ...given, ...beginning, changes: changesToRequest(changes) } : given);
    if (number !== loads) return;
    if (response && clicked && !requested.target && response.target?.trim() !== clicked.trim()) return loadClicked(response);
    if (response === null) clear();
    await displayed?.released(); // everything is created again, and a slider that is being dragged would be lost
    if (!response || number !== loads) return;
    if (!isChanged) usual = { requested, target: response.target };
    show(response);
  }

  // Loads the translation that was clicked in the Translate view, which differs from that of the whole text.
  function loadClicked({ target: other }) {
    translationNote.replaceChildren(TRANSLATION_NOTE, make("q", {}, other));
    target.field.value = clicked;
    return load({ ...requested, target: clicked });
  }

  function updateCounter() {
    const maximum = model.selected().look_at_most;
    const long = textLengths(model.selected(), inputs()).filter(([, length]) => length > COUNTER_SHARE * maximum);
    counter.textContent = long.map(([name, length]) => `${name}: ${length} of ${maximum} characters`).join(" · ");
  }

  function clear() {
    displayed?.close();
    [data, displayed] = [null, null];
    warning.show();
    content.classList.remove("stale");
    content.replaceChildren();
    target.field.placeholder = "";
  }

  function show(response) {
    const focus = focusedControl();
    const previousCell = displayed?.cell() ?? null;
    clear();
    data = response;
    warning.show(data.warning);
    if (wantsTour && !open.kind) open = clearestHead(data);
    target.field.placeholder = data.target ?? "";
    requestAnimationFrame(target.fit);
    displayed = createAttentionDisplay(data, {
      open: { ...open, head: parseNumber(`${open.head}`) },
      models,
      model: model.selected(),
      requested,
      changes,
      compared,
      isMeasured: measuredFor === measuredText(),
      usual: hasChanges(changes) ? usual?.target ?? null : null,
      canUndo: undone.length > 0,
      previousCell,
      display,
      onOpen(next, push) {
        if (content.classList.contains("stale")) return; // another text is being loaded, with what is to be opened there
        open = next;
        saveOpen(push && Boolean(displayed));
      },
      onChanges: change,
      onUndo: undo,
      onDisplay(next) {
        display = next;
        saveOpen(false);
        show(data);
      },
      onCompare(next) {
        compared = next;
        saveOpen(false);
      },
      onMeasured: () => (measuredFor = measuredText()),
    });
    content.replaceChildren(displayed.root);
    focus?.();
    if (wantsTour && displayed.stepCount) showTour();
  }

  const measuredText = () => JSON.stringify(requested);

  function showTour() {
    wantsTour = false;
    tour = startTour({
      source: requested.source,
      container: content,
      steps: () => displayed?.stepCount ?? 0,
      showStep: (step) => displayed?.showStep(step),
      onClose: () => (tour = null),
    });
  }

  // A function that focuses the control that has the focus now, after everything was created again: the one with the same
  // text in the same group, or the one at the same position. A group that is not there yet is waited for.
  function focusedControl() {
    const active = document.activeElement;
    if (!content.contains(active)) return null;
    const tag = active.tagName.toLowerCase();
    const groupName = active.closest("[role=group], [role=region], section")?.getAttribute("aria-label");
    const findGroup = () => [...content.querySelectorAll("[aria-label]")].find((element) => element.getAttribute("aria-label") === groupName);
    const controls = () => [...((groupName && findGroup()) || content).querySelectorAll(tag)];
    const [index, text] = [controls().indexOf(active), active.textContent];
    const focus = () => {
      const list = controls();
      (list.find((element) => text && element.textContent === text) ?? list[index])?.focus({ preventScroll: true });
    };
    return () => {
      if (!groupName || findGroup()) focus();
      else waitFor(findGroup, focus);
      if (!content.contains(document.activeElement)) content.querySelector("button[tabindex='0']")?.focus({ preventScroll: true });
    };
  }

  // Calls a function when something has appeared, unless a key or the pointer is used or something else is displayed before.
  function waitFor(find, then) {
    const display = displayed;
    const observer = new MutationObserver(() => {
      if (find()) then();
      if (find() || display !== displayed) observer.disconnect();
    });
    observer.observe(content, { childList: true, subtree: true });
    for (const name of ["keydown", "pointerdown"]) content.addEventListener(name, () => observer.disconnect(), { once: true });
  }

  function saveOpen(push) {
    clearTimeout(timer);
    if (isClosed) return;
    if (push) saveState("look", { ...requested, ...parameters() }, { push });
    else timer = setTimeout(() => saveState("look", { ...requested, ...parameters() }), SAVE_DELAY_MS);
  }

  // Adapts the form to the selected model.
  function updateForm() {
    const { translates, writes, source: language } = model.selected();
    for (const element of [targetLabel, target.field]) element.hidden = !translates && !writes;
    targetLabel.textContent = translates ? "Translation" : "Continuation";
    exampleList.replaceChildren(...exampleButtons(model.selected(), (text) => {
      source.field.value = text;
      target.field.value = "";
      submit();
    }));
    source.field.lang = language ?? "";
    updateCounter();
    for (const { fit } of [source, target]) requestAnimationFrame(fit);
  }

  for (const { field } of [source, target]) {
    field.addEventListener("input", updateCounter);
    submitOnEnter(field, form);
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  return {
    root,
    close() {
      isClosed = true;
      loads += 1;
      clearTimeout(timer);
      tour?.close();
      cancel();
      clear();
    },
    // For the take-away menu: the decoding steps as an animation, and this view as an interactive file.
    animation() {
      const count = displayed?.stepCount ?? 0;
      return count > 1 && open.kind !== "encoder" ? { count, show: displayed.showStep, current: () => (open.step ?? count) - 1 } : null;
    },
    // What is changed in the model, in words.
    changeTexts: () => (data ? describeChanges(changes, data).map(([text]) => text) : []),
    async exportHtml(request) {
      const { kind, layer, head, row, column } = open;
      const given = Object.entries({ ...requested, kind, layer, head: parseNumber(`${head}`), row, column }).filter(([, value]) => value || value === 0);
      const beginning = requested.target ? {} : { beginning: changes.from };
      const changed = hasChanges(changes) ? { ...beginning, changes: changesToRequest(changes) } : {};
      return (await request("/api/attention-page", { ...Object.fromEntries(given), ...changed }))?.html;
    },
    update(options) {
      clearTimeout(timer);
      model.select(options.get("model"));
      source.field.value = options.get("source") ?? examples(model.selected())[0] ?? "";
      target.field.value = options.get("target") ?? "";
      clicked = options.get("said") ?? "";
      const numbers = ["layer", "head", "step", "row", "column"].map((name) => [name, parseNumber(options.get(name))]);
      const previous = changes;
      const isSameDisplay = isSame(display, (display = { words: options.has("words"), sinks: options.has("sinks") }));
      open = { kind: options.get("kind") ?? undefined, ...Object.fromEntries(numbers) };
      changes = changesFromUrl(options);
      compared = comparedFromUrl(options);
      if (displayed && isSame(requested, inputs()) && isSameChanges(previous, changes)) return isSameDisplay ? displayed.restore(open) : show(data);
      undone = [];
      translationNote.replaceChildren();
      load();
    },
  };
}

// The head of cross-attention that is aligned most clearly, for the first screen.
function clearestHead({ patterns }) {
  const heads = (patterns?.cross ?? []).flatMap((layer, l) => layer.map(({ label, share }, h) => ({ kind: "cross", layer: l, head: h, share: label === "aligned" ? share : 0 })));
  const [best] = heads.sort((a, b) => b.share - a.share);
  return best?.share ? { kind: best.kind, layer: best.layer, head: best.head } : {};
}

// The other side of a comparison as options of the URL, and back.
function comparedToUrl(compared) {
  return compared && { with: compared.model, with_source: compared.source, with_layer: compared.layer, with_head: compared.head ?? "mean" };
}

function comparedFromUrl(options) {
  if (!options.has("with")) return null;
  const [model, source] = ["with", "with_source"].map((name) => options.get(name) ?? "");
  return { model, source, layer: parseNumber(options.get("with_layer")) ?? 0, head: parseNumber(options.get("with_head")) };
}

function parseNumber(text) {
  return /^\d{1,4}$/.test(text ?? "") ? Number(text) : null;
}
