// The colours of attention weights, and the layout of a heat map.

import { make } from "./dom.js";

export const COLOUR_RAMPS = {
  light: [[246, 247, 250], [203, 230, 221], [126, 194, 190], [56, 140, 178], [37, 84, 150], [22, 28, 80]],
  dark: [[13, 17, 40], [36, 56, 116], [28, 112, 148], [53, 168, 140], [160, 214, 96], [253, 231, 76]],
};
export const MIN_SIDE_CELL = 16; // pixels; with smaller cells the heat map gets the full width
export const MIN_NUMBER_CELL = 28; // pixels; cells of this size contain their weight as a number

// The colour of a weight, by its square root, so that small weights are visible next to large ones.
export function colour(ramp, weight) {
  const position = Math.sqrt(Math.max(0, Math.min(1, weight))) * (ramp.length - 1);
  const low = Math.min(Math.floor(position), ramp.length - 2);
  return ramp[low].map((from, i) => Math.round(from + (ramp[low + 1][i] - from) * (position - low)));
}

// Black or white, whichever has more contrast with the background.
export function textColourOn(rgb) {
  const [red, green, blue] = rgb.map((c) => (c <= 10 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) ? "#000000" : "#ffffff";
}

export function colourTable(ramp) {
  return Array.from({ length: 1001 }, (_, i) => colour(ramp, (i / 1000) ** 2)); // finer where colours change fast
}

export function createCanvas(weights) {
  return make("canvas", { width: weights[0].length, height: weights.length });
}

export function paintCells(canvas, weights, table) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  let offset = 0;
  for (const row of weights) {
    for (const weight of row) {
      const rgb = table[Math.round(1000 * Math.sqrt(Math.max(0, Math.min(1, weight))))];
      image.data.set(rgb, offset);
      image.data[offset + 3] = 255;
      offset += 4;
    }
  }
  context.putImageData(image, 0, 0);
}

// Sets the size of a canvas in CSS pixels, sharp on any screen.
export function resizeCanvas(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return { context, width, height };
}

// The positions and sizes of cells and labels: the largest font whose cells have room for numbers or, if none has, whose
// cells are as high as the letters. With a given size of cells, the largest font that fits them.
export function layOut(room, rows, columns, family, givenCell = null) {
  const context = document.createElement("canvas").getContext("2d");
  const widest = (labels, font) => {
    context.font = `700 ${font}px ${family}`;
    return Math.max(...labels.map((label) => context.measureText(label).width));
  };
  const numbers = MIN_NUMBER_CELL;
  let layout = null;
  const sizes = givenCell
    ? [[Math.max(10, Math.min(16, givenCell - 2)), givenCell]]
    : [[16, numbers], [14, numbers], [12, numbers], [16, 18], [14, 16], [12, 14], [11, 13], [10, 12]];
  for (const [font, minCell] of sizes) {
    const left = Math.ceil(widest(rows, font)) + 8;
    const slant = widest(columns, font);
    const right = Math.ceil(slant / 2) + font / 2;
    const cell = givenCell ?? Math.floor(Math.min(44, Math.max(minCell, (room - left - right) / columns.length)));
    const top = Math.ceil(slant * 0.87 + 6 + font * 0.6);
    layout = { font, family, left, top, cell, width: left + cell * columns.length + right, height: top + cell * rows.length + 2 };
    if (layout.width <= room) break;
  }
  return layout;
}
