// Labels next to dots so that no two of them overlap: each gets the first free position around its dot, nearest first. A label
// that fits nowhere is shortened, and one that fits nowhere even then is left out.

import { truncate } from "./dom.js";

const DOT_GAP = 10; // pixels between the centre of a dot and its label
const LINE_HEIGHT = 15; // pixels
const LABEL_MARGIN = 3; // pixels between labels, and between a label and the frame
const LABEL_LENGTHS = [Infinity, 20, 12, 7]; // characters that a label is shortened to
const ROW_OFFSETS = [0, 1, -1, 2, -2, 3, -3, 4, -4]; // rows that a label may be above or below its dot

let measuring = null; // the context of a canvas that measures texts, created when the first labels are placed

// A function that returns the width of a text in pixels, in the font of an element.
function createMeasure(element) {
  measuring ??= document.createElement("canvas").getContext("2d");
  const { fontSize, fontFamily } = getComputedStyle(element);
  return (text, isBold) => {
    measuring.font = `${isBold ? 700 : 400} ${fontSize} ${fontFamily}`;
    return measuring.measureText(text).width;
  };
}

// `dots` have x, y, a text and whether it is bold; those that matter most come first. The result has the text of each label, its
// position relative to the dot and its anchor; null for a label that is left out. No text is longer than `maxLength`. Texts
// are measured in the font of the <svg>.
export function placeLabels(svg, dots, { width, height, maxLength }) {
  const measure = createMeasure(svg);
  const taken = [];
  const circles = dots.map(({ x, y }) => ({ left: x - 5, right: x + 5, top: y - 5, bottom: y + 5 }));
  return dots.map((dot, i) => {
    const others = circles.filter((_, n) => n !== i);
    const isFree = (box) => isInside(box, width, height) && !taken.some((other) => overlap(box, other, LABEL_MARGIN));
    const options = candidates(dot, maxLength, measure).filter(({ box }) => isFree(box));
    const found = options.find(({ box }) => !others.some((other) => overlap(box, other, 0))) ?? options[0];
    if (!found) return null;
    taken.push(found.box);
    return found.label;
  });
}

// All labels of a dot, the best first: long before short, near before far, on the right before on the left.
function candidates({ x, y, text, isBold = false }, maxLength, measure) {
  const texts = [...new Set(LABEL_LENGTHS.map((length) => truncate(text, Math.min(length, maxLength))))];
  return texts.flatMap((shown) => {
    const size = measure(shown, isBold);
    return ROW_OFFSETS.flatMap((lines) => [1, -1].map((side) => {
      const [dx, dy] = [side * DOT_GAP, lines * LINE_HEIGHT];
      const left = side > 0 ? x + dx : x + dx - size;
      const box = { left, right: left + size, top: y + dy - LINE_HEIGHT / 2, bottom: y + dy + LINE_HEIGHT / 2 };
      return { box, label: { text: shown, x: dx, y: dy, anchor: side > 0 ? "start" : "end" } };
    }));
  });
}

function isInside({ left, right, top, bottom }, width, height) {
  return left >= LABEL_MARGIN && right <= width - LABEL_MARGIN && top >= LABEL_MARGIN && bottom <= height - LABEL_MARGIN;
}

function overlap(a, b, margin) {
  return a.left < b.right + margin && b.left < a.right + margin && a.top < b.bottom && b.top < a.bottom;
}

// Shows a label in the <text> of a dot's group, and a line to it in the <path> if it is not next to the dot.
export function showLabel(group, label, fullText) {
  const [text, line] = [group.querySelector("text"), group.querySelector("path")];
  group.classList.toggle("label-left-out", !label);
  const { text: shown, x, y, anchor } = label ?? { text: truncate(fullText, LABEL_LENGTHS[1]), x: DOT_GAP, y: 0, anchor: "start" };
  text.textContent = `\u2068${shown}\u2069`;
  for (const [name, value] of Object.entries({ x, y, dy: "0.34em", "text-anchor": anchor })) text.setAttribute(name, value);
  line.setAttribute("d", y ? `M0 0L${x * 0.8} ${y}` : "");
}
