// The tour of a first visit: five captions, while the translation is written once, step by step. It can be skipped, and is
// shown once per browser.

import { make } from "./dom.js";

const STORAGE_KEY = "regard-tour";
const CAPTION_MS = 6000; // duration of a caption while the tour plays
const OTHER_INPUT = ["keydown", "pointerdown", "wheel"];
const VISIBLE_SHARE = 0.65; // of the window, above the captions
export const CAPTIONS = [
  {
    title: "Queries",
    text: "The model translates this sentence word by word. Before each word it asks a question about the sentence: that is its query.",
    selector: ".attention-queries",
  },
  {
    title: "Keys",
    text: "Every word of the source has a key, which says what it has to offer. Where query and key match, the line is thick and the cell stands out.",
    selector: ".attention-keys",
  },
  {
    title: "Values",
    text: "The model mixes the values of the words, in proportion to how well their keys match. The mix decides the next word.",
    selector: ".attention-matrix",
  },
  {
    title: "The beam",
    text: "The model is not sure of every word. Beam search keeps the four best beginnings and extends them until the best translation ends.",
    selector: ".beam",
  },
  {
    title: "Your turn",
    text: "Every thumbnail is another head, with queries of its own. Silence one, hide a word, or select a cell to see its numbers.",
    selector: ".words, .attention-overview",
  },
];

export function isTourDue() {
  try {
    return localStorage.getItem(STORAGE_KEY) === null;
  } catch {
    return false; // storage is disabled, so it would be shown at every visit
  }
}

function remember() {
  try {
    localStorage.setItem(STORAGE_KEY, "seen");
  } catch {
    // it is shown again at the next visit
  }
}

// `source` is the sentence that is translated. `container` has the elements that the captions point at. `steps()` returns the
// number of decoding steps, `showStep(i)` shows one, and `onClose()` is called at the end.
export function startTour({ source, container, steps, showStep, onClose }) {
  const main = document.querySelector("main");
  const sentence = make("p", { class: "tour-sentence" }, source);
  const [title, text, position] = [make("h2", {}), make("p", {}), make("span", { class: "hint" })];
  const [pause, back, next, skip] = ["Pause", "Back", "Next", "Skip tour"].map((name) => make("button", { type: "button" }, name));
  next.classList.add("main");
  const root = make("section", { class: "tour view", "aria-label": "Tour" },
    make("div", { "aria-live": "polite" }, title, sentence, text), make("div", { class: "tools" }, position, make("span", { class: "spacer" }), skip, pause, back, next));
  let [caption, timer, marked] = [0, null, []];
  let isPlaying = !matchMedia("(prefers-reduced-motion: reduce)").matches;

  // The steps that are shown during a caption.
  function stepsOf(index) {
    const [from, to] = [index, index + 1].map((i) => Math.floor((i * steps()) / CAPTIONS.length));
    return Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i);
  }

  function show(index) {
    clearTimeout(timer);
    caption = index;
    const { title: heading, text: explanation, selector } = CAPTIONS[index];
    title.textContent = heading;
    text.textContent = explanation;
    sentence.hidden = index > 0; // it may have scrolled out of sight
    position.textContent = `${index + 1} of ${CAPTIONS.length}`;
    back.disabled = index === 0;
    const isLast = index === CAPTIONS.length - 1;
    next.textContent = isLast ? "Done" : "Next";
    skip.hidden = isLast;
    pause.textContent = isPlaying ? "Pause" : "Play";
    mark([...container.querySelectorAll(selector)]);
    play(stepsOf(index));
  }

  function play(list) {
    clearTimeout(timer);
    if (!isPlaying) return list.length && showStep(list.at(-1));
    const [first, ...rest] = list;
    if (first !== undefined) showStep(first);
    const isLast = caption === CAPTIONS.length - 1;
    timer = setTimeout(() => (rest.length ? play(rest) : isLast ? undefined : show(caption + 1)), CAPTION_MS / Math.max(1, stepsOf(caption).length));
  }

  function mark(elements) {
    for (const element of marked) element.classList.remove("tour-marked");
    marked = elements;
    for (const element of marked) element.classList.add("tour-marked");
    if (!marked.length) return;
    const { top } = marked[0].getBoundingClientRect();
    const isVisible = top >= 0 && top < VISIBLE_SHARE * innerHeight;
    if (!isVisible) marked[0].scrollIntoView({ block: "center", behavior: isPlaying ? "smooth" : "instant" });
  }

  // A visitor who does something else is not interrupted: the tour waits until they press Play or Next.
  function onOtherInput(event) {
    if (!isPlaying || root.contains(event.target)) return;
    isPlaying = false;
    clearTimeout(timer);
    pause.textContent = "Play";
  }

  function close() {
    clearTimeout(timer);
    removeEventListener("keydown", onKey);
    for (const type of OTHER_INPUT) removeEventListener(type, onOtherInput);
    mark([]);
    if (root.contains(document.activeElement)) main.focus({ preventScroll: true });
    root.remove();
    remember();
    onClose();
  }

  function onKey(event) {
    if (event.key === "Escape") close();
  }

  pause.addEventListener("click", () => {
    isPlaying = !isPlaying;
    show(caption);
  });
  back.addEventListener("click", () => show(caption - 1));
  next.addEventListener("click", () => (caption === CAPTIONS.length - 1 ? close() : show(caption + 1)));
  skip.addEventListener("click", close);
  addEventListener("keydown", onKey);
  for (const type of OTHER_INPUT) addEventListener(type, onOtherInput, { passive: true });
  main.prepend(root); // before the view, so that the keyboard reaches it first
  show(0);
  return { close };
}
