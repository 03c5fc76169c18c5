// A vector as a strip of cells: one colour for positive numbers, another for negative ones, stronger for larger ones.

import { make } from "./dom.js";
import { resizeCanvas } from "./heat_map.js";

const STRIP_HEIGHT = 16; // pixels

// `getStyle` returns a CSS variable. A click or drag on the strip picks a dimension.
export function createStrip(getStyle, onPick) {
  const canvas = make("canvas", { class: "strip", "aria-hidden": "true" });
  let count = 1;

  // Draws the vector; `largest` has full colour, and the cell of the picked dimension is marked.
  function draw(values, largest, picked) {
    count = values.length;
    const { context, width } = resizeCanvas(canvas, canvas.parentElement?.clientWidth || 200, STRIP_HEIGHT);
    const cell = width / count;
    values.forEach((value, i) => {
      context.globalAlpha = Math.min(1, Math.sqrt(Math.abs(value) / (largest || 1)));
      context.fillStyle = getStyle(value < 0 ? "--negative" : "--line");
      context.fillRect(i * cell, 0, Math.max(1, cell - (cell > 4 ? 1 : 0)), STRIP_HEIGHT);
    });
    Object.assign(context, { globalAlpha: 1, strokeStyle: getStyle("--ink"), lineWidth: 1.5 });
    context.strokeRect(picked * cell, 0.75, Math.max(2, cell - (cell > 4 ? 1 : 0)), STRIP_HEIGHT - 1.5);
  }

  function pick(event) {
    const index = Math.floor((event.offsetX / canvas.clientWidth) * count);
    onPick(Math.max(0, Math.min(count - 1, index)));
  }

  canvas.addEventListener("pointerdown", pick);
  canvas.addEventListener("pointermove", (event) => event.buttons && pick(event));
  return { canvas, draw };
}

export function largestOf(...vectors) {
  return Math.max(...vectors.flat().map(Math.abs), 1e-9);
}

// A number with this many significant digits and a real minus sign.
export function formatNumber(value, digits = 3) {
  const text = Math.abs(value) >= 1000 ? `${Math.round(value)}` : `${Number(value.toPrecision(digits))}`;
  return text.includes("e") ? text.replace("e", " × 10^").replaceAll("-", "−") : text.replace("-", "−");
}
