// The heat map of one head on a canvas. A map that is larger than its box scrolls; its labels stay visible. The canvas is as
// large as the visible part, so that a long text needs no more memory than a short one.

import { addScrollFade, make, truncate, visibleToken } from "./dom.js";
import { colour, layOut, MIN_NUMBER_CELL, resizeCanvas, textColourOn } from "./heat_map.js";

const ZOOM_STEPS = [1, 1.5, 2, 3, 4];
const MAX_CELL_SIZE = 64; // pixels, however far one zooms in
const MAX_VISIBLE_SHARE = 0.8; // of the window's height, for a map that is zoomed in

export const NO_CELL = { t: null, s: null }; // no cell is selected: t is a row (query), s a column (key)

// `style` returns a CSS variable, `ramp` the colours of the weights.
export function createMatrix({ style, ramp, id }) {
  const canvas = make("canvas", { tabindex: 0, role: "application", "aria-roledescription": "heat map", "aria-describedby": id });
  const size = make("div", { class: "matrix-size" }, canvas);
  const box = addScrollFade(make("div", { class: "attention-matrix" }, size));
  const [zoomOut, zoomIn] = [["−", "Zoom out"], ["+", "Zoom in"]].map(([sign, name]) => make("button", { type: "button", tabindex: -1, "aria-label": name, title: `${name}, or press ${sign} on the map` }, sign)); // keys zoom, too
  const root = make("div", { class: "matrix-panel" }, box, make("div", { class: "matrix-zoom" }, zoomOut, zoomIn));
  let [zoom, shown, layout] = [0, null, null];

  // Draws a map: its weights, and the same as an image with one pixel per cell; the active cell, the gold alignment, and the
  // last row that is not dimmed.
  function draw(what) {
    shown = what;
    const { rows, columns } = matrixLabels(what.map);
    const family = style("font-family");
    const room = box.clientWidth - 8;
    layout = layOut(room, rows, columns, family);
    if (zoom) layout = layOut(room, rows, columns, family, Math.min(MAX_CELL_SIZE, Math.round(layout.cell * ZOOM_STEPS[zoom])));
    zoomOut.disabled = zoom === 0;
    zoomIn.disabled = zoom === ZOOM_STEPS.length - 1 || layout.cell >= MAX_CELL_SIZE;
    Object.assign(size.style, { width: `${layout.width}px`, height: `${layout.height}px` });
    const maxHeight = zoom ? Math.round(MAX_VISIBLE_SHARE * innerHeight) : Infinity;
    box.style.maxHeight = zoom ? `${maxHeight + 8}px` : "";
    const { context } = resizeCanvas(canvas, Math.min(layout.width, Math.max(room, 0)), Math.min(layout.height, maxHeight));
    drawCells(context, what);
    drawLabels(context, what, rows, columns);
    canvas.setAttribute("aria-label", `Heat map of ${what.name}: one row per query token, one column per key token; use the arrow keys to move between cells, plus and minus to zoom`);
  }

  // Runs a function that draws at the scrolled position, within these edges of the canvas.
  function within(context, [x, y], scroll, drawPart) {
    context.save();
    context.beginPath();
    context.rect(x, y, canvas.clientWidth, canvas.clientHeight);
    context.clip();
    context.translate(...scroll);
    drawPart();
    context.restore();
  }

  function drawCells(context, { map, weights, image, cell, gold, lastRow }) {
    const { left, top, cell: side } = layout;
    within(context, [left - 2, top - 2], [-box.scrollLeft, -box.scrollTop], () => {
      context.imageSmoothingEnabled = false;
      context.drawImage(image, left, top, side * map.keys.length, side * map.queries.length);
      if (side >= MIN_NUMBER_CELL) drawNumbers(context, weights);
      for (const [t, s] of gold) drawRing(context, left + (s + 0.5) * side, top + (t + 0.5) * side, side / 2 - 2);
      if (lastRow !== null) {
        context.globalAlpha = 0.8;
        context.fillStyle = style("--card");
        context.fillRect(left, top + (lastRow + 1) * side, side * map.keys.length, side * (map.queries.length - lastRow - 1));
        context.globalAlpha = 1;
      }
      Object.assign(context, { strokeStyle: style("--mark"), lineWidth: 2 });
      if (cell.t !== null) context.strokeRect(left, top + cell.t * side, side * map.keys.length, side);
      if (cell.s !== null) context.strokeRect(left + cell.s * side, top, side, side * map.queries.length);
    });
  }

  function drawLabels(context, { cell, lastRow }, rows, columns) {
    const { left, top, cell: side } = layout;
    context.textBaseline = "middle";
    context.textAlign = "right";
    within(context, [0, top - 2], [0, -box.scrollTop], () => rows.forEach((label, t) => {
      context.globalAlpha = lastRow !== null && t > lastRow ? 0.2 : 1;
      drawLabel(context, label, left - 6, top + (t + 0.5) * side, 0, t === cell.t);
    }));
    context.textAlign = "left";
    context.save();
    context.beginPath();
    context.rect(left - side / 2, 0, canvas.clientWidth, top);
    context.clip();
    context.translate(-box.scrollLeft, 0);
    columns.forEach((label, s) => drawLabel(context, label, left + (s + 0.5) * side, top - 6, -Math.PI / 3, s === cell.s));
    context.restore();
  }

  function drawLabel(context, label, x, y, angle, active) {
    context.save();
    context.translate(x, y);
    context.rotate(angle);
    context.font = `${active ? 700 : 400} ${layout.font}px ${layout.family}`;
    context.fillStyle = style(active ? "--mark" : "--ink");
    context.fillText(label, 0, 0);
    context.restore();
  }

  // A ring in two colours, so that it is visible on any background.
  function drawRing(context, x, y, radius) {
    for (const [name, width] of [["--card", 4], ["--mark", 2]]) {
      Object.assign(context, { strokeStyle: style(name), lineWidth: width });
      context.beginPath();
      context.arc(x, y, Math.max(2, radius), 0, 2 * Math.PI);
      context.stroke();
    }
  }

  function drawNumbers(context, weights) {
    const { left, top, cell: side, family } = layout;
    const colours = ramp();
    Object.assign(context, { textAlign: "center", textBaseline: "middle", font: `${Math.min(16, Math.round(side * 0.36))}px ${family}` });
    weights.forEach((shares, t) => shares.forEach((share, s) => {
      if (share < 0.005) return;
      context.fillStyle = textColourOn(colour(colours, share));
      context.fillText(`${Math.round(100 * share)}`, left + (s + 0.5) * side, top + (t + 0.5) * side);
    }));
  }

  // The cell at the position of a pointer, or null.
  function cellAt(event) {
    const { left, top, cell } = layout;
    if (event.offsetX < left || event.offsetY < top) return null;
    const [s, t] = [Math.floor((event.offsetX + box.scrollLeft - left) / cell), Math.floor((event.offsetY + box.scrollTop - top) / cell)];
    return s < shown.map.keys.length && t < shown.map.queries.length ? { t, s } : null;
  }

  // Scrolls the box, but nothing around it, so that a cell is visible next to the labels.
  function reveal({ t, s }) {
    const { left, top, cell: side } = layout;
    const scrolled = (now, start, visible) => Math.max(Math.min(now, start), start + side - visible);
    if (s !== null) box.scrollLeft = scrolled(box.scrollLeft, s * side, canvas.clientWidth - left);
    if (t !== null) box.scrollTop = scrolled(box.scrollTop, t * side, canvas.clientHeight - top);
  }

  function setZoom(step) {
    zoom = Math.max(0, Math.min(ZOOM_STEPS.length - 1, step));
    draw(shown);
    reveal(shown.cell);
  }

  zoomIn.addEventListener("click", () => setZoom(zoom + 1));
  zoomOut.addEventListener("click", () => setZoom(zoom - 1));
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "=") setZoom(zoom + 1);
    else if (event.key === "-") setZoom(zoom - 1);
  });
  box.addEventListener("scroll", () => shown && requestAnimationFrame(() => draw(shown)), { passive: true });
  return { root, box, canvas, draw, cellAt, reveal };
}

// A layout for the map at this width, to find out whether it fits.
export function fitMatrix(room, map, family) {
  const { rows, columns } = matrixLabels(map);
  return layOut(room, rows, columns, family);
}

function matrixLabels({ queries, writes, keys }) {
  const label = (token, maxLength) => `\u2068${truncate(visibleToken(token), maxLength)}\u2069`; // isolated, for right-to-left text
  const rows = queries.map((read, t) => (writes[t] ? `${label(read, 10)} → ${label(writes[t], 10)}` : label(read, 24)));
  return { rows, columns: keys.map((key) => label(key, 16)) };
}
