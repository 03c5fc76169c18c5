// A line chart in SVG: several series over a common x-axis, a vertical cursor, and the values at the cursor.
// `createLineChart({ title, format })` returns the element and `show(series, options)`. A series has a name, a CSS class
// that sets its colour, points [x, y] in the order of x, and may be `faint` (a thin line) or have `dots`.

import { make } from "./dom.js";

const CHART_HEIGHT = 190; // pixels
const PLOT_MARGIN = { left: 52, right: 14, top: 10, bottom: 24 };
const TICK_SPACING = { x: 60, y: 26 }; // minimum pixels between two ticks
const SVG = "http://www.w3.org/2000/svg";

export function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Round numbers between two limits, about `count` of them.
export function niceTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

// Powers of ten, or 1, 2 and 5 times them if the range is small.
function logTicks(low, high) {
  const powers = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) powers.push(10 ** power);
  const factors = high / low > 200 ? [1] : [1, 2, 5];
  return powers.flatMap((power) => factors.map((factor) => Number((factor * power).toPrecision(6)))).filter((tick) => tick >= low && tick <= high);
}

// The value of a series at x: that of the last point at or before it.
function valueAt(points, x) {
  let [low, high] = [0, points.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= x) low = middle + 1;
    else high = middle;
  }
  return low ? points[low - 1][1] : null;
}

export function createLineChart({ title, format, formatX, onPick = null }) {
  const svg = makeSvg("svg", { role: "img", "aria-label": title });
  const values = make("ul", { class: "chart-values" });
  const empty = make("p", { class: "hint" });
  const root = make("figure", { class: "chart" }, make("figcaption", {}, title), make("div", { class: "chart-box" }, svg), values, empty);
  let shown = { series: [], cursor: null, log: false, message: "" };
  let hover = null; // the x under the pointer
  let scale = null; // the functions from values to pixels and back

  function measure(width) {
    const points = shown.series.flatMap((series) => series.points).filter(([, y]) => y !== null && (!shown.log || y > 0));
    if (!points.length) return null;
    const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
    const extent = (list) => list.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
    const [[left, right], [low, high]] = [extent(xs), extent(ys)];
    const transform = shown.log ? Math.log10 : (value) => value;
    const padding = (transform(high) - transform(low)) * 0.06 || Math.abs(transform(high)) * 0.05 || 1;
    const isPositive = low >= 0 && !shown.log;
    const [bottom, top] = [isPositive ? Math.max(0, transform(low) - padding) : transform(low) - padding, transform(high) + padding];
    const inner = { width: width - PLOT_MARGIN.left - PLOT_MARGIN.right, height: CHART_HEIGHT - PLOT_MARGIN.top - PLOT_MARGIN.bottom };
    const span = right - left || 1;
    return {
      x: (value) => PLOT_MARGIN.left + ((value - left) / span) * inner.width,
      y: (value) => PLOT_MARGIN.top + (1 - (transform(value) - bottom) / (top - bottom)) * inner.height,
      inverseX: (pixel) => Math.max(left, Math.min(right, left + ((pixel - PLOT_MARGIN.left) / inner.width) * span)),
      xTicks: niceTicks(left, right, inner.width / TICK_SPACING.x),
      yTicks: shown.log ? logTicks(10 ** bottom, 10 ** top) : niceTicks(bottom, top, inner.height / TICK_SPACING.y),
      width,
    };
  }

  function path(points) {
    let isPen = false; // whether the line has begun: it is interrupted where a value is missing
    return points.map(([x, y]) => {
      const isDrawn = y !== null && (!shown.log || y > 0);
      const command = isDrawn ? `${isPen ? "L" : "M"}${scale.x(x).toFixed(1)} ${scale.y(y).toFixed(1)}` : "";
      isPen = isDrawn;
      return command;
    }).join("");
  }

  function draw() {
    const width = Math.max(160, svg.parentElement.clientWidth || root.clientWidth);
    scale = measure(width);
    svg.setAttribute("width", width);
    svg.setAttribute("height", CHART_HEIGHT);
    svg.setAttribute("viewBox", `0 0 ${width} ${CHART_HEIGHT}`);
    empty.textContent = scale ? "" : shown.message;
    svg.toggleAttribute("hidden", !scale);
    if (!scale) {
      svg.replaceChildren();
      return values.replaceChildren();
    }
    const bottom = CHART_HEIGHT - PLOT_MARGIN.bottom;
    const horizontal = scale.yTicks.flatMap((tick) => [
      makeSvg("line", { class: "chart-grid", x1: PLOT_MARGIN.left, x2: width - PLOT_MARGIN.right, y1: scale.y(tick), y2: scale.y(tick) }),
      makeSvg("text", { x: PLOT_MARGIN.left - 6, y: scale.y(tick), dy: "0.32em", "text-anchor": "end" }, format(tick)),
    ]);
    const vertical = scale.xTicks.map((tick) => makeSvg("text", { x: Math.min(scale.x(tick), width - 2), y: bottom + 16, "text-anchor": scale.x(tick) > width - 26 ? "end" : "middle" }, formatX(tick)));
    const lines = shown.series.map(({ points, className, faint, dots }) => makeSvg("g", { class: `chart-series ${className}${faint ? " chart-faint" : ""}` },
      makeSvg("path", { d: path(points) }),
      ...(dots ? points.filter(([, y]) => y !== null && (!shown.log || y > 0)).map(([x, y]) => makeSvg("circle", { cx: scale.x(x), cy: scale.y(y), r: 2.6 })) : [])));
    svg.replaceChildren(...horizontal, makeSvg("line", { class: "chart-axis", x1: PLOT_MARGIN.left, x2: width - PLOT_MARGIN.right, y1: bottom, y2: bottom }),
      ...vertical, ...lines, makeSvg("line", { class: "chart-cursor", y1: PLOT_MARGIN.top, y2: bottom }));
    drawCursor();
  }

  function drawCursor() {
    const x = hover ?? shown.cursor;
    const line = svg.querySelector(".chart-cursor");
    if (!line) return;
    line.toggleAttribute("hidden", x === null);
    line.classList.toggle("chart-hidden", x === null);
    if (x !== null) for (const name of ["x1", "x2"]) line.setAttribute(name, scale.x(Math.max(scale.inverseX(0), Math.min(x, scale.inverseX(1e9)))));
    const items = shown.series.filter(({ unlisted }) => !unlisted).map(({ name, className, points, faint }) => {
      const value = valueAt(points, x ?? Infinity);
      return make("li", { class: `${className}${faint ? " chart-faint" : ""}` }, make("span", { class: "chart-key" }), make("span", {}, name), " ", make("b", {}, value === null ? "–" : format(value)));
    });
    values.replaceChildren(...items);
  }

  svg.addEventListener("pointermove", (event) => {
    if (!scale || event.pointerType === "touch") return;
    hover = scale.inverseX(event.offsetX);
    drawCursor();
  });
  svg.addEventListener("pointerleave", () => {
    hover = null;
    drawCursor();
  });
  if (onPick) svg.addEventListener("click", (event) => scale && onPick(scale.inverseX(event.offsetX)));
  const observer = new ResizeObserver(() => requestAnimationFrame(draw));
  observer.observe(root);
  return {
    root,
    show(series, { cursor = null, log = false, message = "" } = {}) {
      shown = { series, cursor, log, message };
      draw();
    },
    moveCursor(cursor) {
      shown.cursor = cursor;
      drawCursor();
    },
    close: () => observer.disconnect(),
  };
}
