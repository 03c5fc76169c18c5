// Weights as colours, and how a heat map is laid out.

import { make } from "./parts.js";

export const RAMPS = {
  light: [[246, 247, 250], [203, 230, 221], [126, 194, 190], [56, 140, 178], [37, 84, 150], [22, 28, 80]],
  dark: [[13, 17, 40], [36, 56, 116], [28, 112, 148], [53, 168, 140], [160, 214, 96], [253, 231, 76]],
};
export const NARROW = 16; // pixels; cells below are small beside their tokens
export const ROOMY = 28; // pixels; a cell of the heat map that has them says its number

// A weight's colour: by its square root, so that small ones are seen beside large ones.
export function colour(ramp, share) {
  const place = Math.sqrt(Math.max(0, Math.min(1, share))) * (ramp.length - 1);
  const low = Math.min(Math.floor(place), ramp.length - 2);
  return ramp[low].map((from, i) => Math.round(from + (ramp[low + 1][i] - from) * (place - low)));
}

export function readableOn(rgb) {
  const [red, green, blue] = rgb.map((c) => (c <= 10 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) ? "#000000" : "#ffffff";
}

export function lookup(ramp) {
  return Array.from({ length: 1001 }, (_, i) => colour(ramp, (i / 1000) ** 2)); // finer where colours change fast
}

export function canvasOf(values) {
  return make("canvas", { width: values[0].length, height: values.length });
}

export function paintCells(canvas, values, table) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  let at = 0;
  for (const row of values) {
    for (const share of row) {
      const rgb = table[Math.round(1000 * Math.sqrt(Math.max(0, Math.min(1, share))))];
      image.data.set(rgb, at);
      image.data[at + 3] = 255;
      at += 4;
    }
  }
  context.putImageData(image, 0, 0);
}

// A canvas of so many CSS pixels, sharp on any screen.
export function prepare(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return { context, width, height };
}

// Where the cells of the large map stand, and how large cells and letters are: the largest letters that leave cells room
// for numbers or, where there is no room for those, cells as high as the letters.
export function layOut(room, rows, columns, family) {
  const context = document.createElement("canvas").getContext("2d");
  const widest = (labels, font) => {
    context.font = `700 ${font}px ${family}`;
    return Math.max(...labels.map((label) => context.measureText(label).width));
  };
  let plan = null;
  for (const [font, least] of [[16, ROOMY], [14, ROOMY], [12, ROOMY], [16, 18], [14, 16], [12, 14], [11, 13], [10, 12]]) {
    const left = Math.ceil(widest(rows, font)) + 8;
    const slant = widest(columns, font);
    const right = Math.ceil(slant / 2) + font / 2;
    const cell = Math.floor(Math.min(44, Math.max(least, (room - left - right) / columns.length)));
    const top = Math.ceil(slant * 0.87 + 6 + font * 0.6);
    plan = { font, family, left, top, cell, width: left + cell * columns.length + right, height: top + cell * rows.length + 2 };
    if (plan.width <= room) break;
  }
  return plan;
}
