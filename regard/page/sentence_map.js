// Sentences as dots: their vectors in two dimensions, by principal component analysis.

import { make } from "./dom.js";
import { placeLabels, showLabel } from "./label_placement.js";
import { makeSvg } from "./line_chart.js";
import { principalCoordinates } from "./principal_coordinates.js";

const MAP_HEIGHT = 320; // pixels
const MAP_PADDING = 34;
const LABEL_LENGTH = 34; // characters

export function createSentenceMap(vectors, texts) {
  const { points, explained } = principalCoordinates(vectors);
  const svg = makeSvg("svg", { role: "img", "aria-label": `Map of ${texts.length} sentences; the list above has their similarities` });
  const box = make("div", { class: "layers-box" }, svg);
  const root = make("figure", { class: "sentence-map" }, make("figcaption", {}, "Map of the sentences"), box,
    make("p", { class: "hint" }, `Nearby dots have similar vectors. The two dimensions show ${Math.round(100 * explained)}% of the variance; the first sentence is marked.`));

  function draw() {
    const width = Math.max(220, box.clientWidth);
    const extent = (axis) => [Math.min(...points.map((point) => point[axis])), Math.max(...points.map((point) => point[axis]))];
    const [[left, right], [low, high]] = [extent(0), extent(1)];
    const unit = Math.min((width - 2 * MAP_PADDING) / (right - left || 1), (MAP_HEIGHT - 2 * MAP_PADDING) / (high - low || 1));
    const place = ([x, y]) => [width / 2 + (x - (left + right) / 2) * unit, MAP_HEIGHT / 2 - (y - (low + high) / 2) * unit];
    for (const [name, value] of Object.entries({ width, height: MAP_HEIGHT, viewBox: `0 0 ${width} ${MAP_HEIGHT}` })) svg.setAttribute(name, value);
    const dots = points.map((point, i) => {
      const [x, y] = place(point);
      return { x, y, text: texts[i], isBold: i === 0 };
    });
    const labels = placeLabels(svg, dots, { width, height: MAP_HEIGHT, maxLength: LABEL_LENGTH });
    svg.replaceChildren(...dots.map(({ x, y, text }, i) => {
      const group = makeSvg("g", { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, class: i ? "" : "sentence-first" },
        makeSvg("title", {}, text), makeSvg("path", { class: "label-line" }), makeSvg("circle", { r: i ? 5 : 7 }), makeSvg("text", {}));
      showLabel(group, labels[i], text);
      return group;
    }));
  }

  new ResizeObserver(() => requestAnimationFrame(draw)).observe(box);
  return root;
}
