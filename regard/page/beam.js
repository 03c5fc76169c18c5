// The beam as a tree: every hypothesis from left to right, what was pruned dim, the path that won bold.

import { cut, fading, filled, make, standing } from "./parts.js";

const GAP = 30; // pixels between one step's tokens and the next's
const HEIGHT = 30; // pixels of a leaf
const LETTERS = 12;
const PAD = 8; // pixels around a token
const START = { id: null, token: "•", score: 0, step: -1, kept: true, best: true };

export function beamTree({ nodes }, special) {
  const picture = svg("svg", { role: "tree", "aria-label": "The beam: arrow keys move along the tree" });
  const readout = make("p", { class: "beam-readout", "aria-live": "polite" });
  const all = make("input", { type: "checkbox" });
  const root = make("section", { class: "look-card beam", "aria-label": "The beam" },
    make("h2", {}, "The beam"),
    make("p", { class: "look-hint" }, "Every sentence begun, from left to right: bold the one that won, dim what was given up on the way."),
    make("label", { class: "beam-all" }, all, " with what was never kept"),
    fading(make("div", { class: "beam-scroll" }, picture)), readout);
  let placed = [];

  function draw() {
    placed = place(nodes.filter(({ kept, best }) => all.checked || kept || best), special);
    const width = Math.max(...placed.map(({ x, wide }) => x + wide)) + 4;
    const height = Math.max(...placed.map(({ y }) => y)) + HEIGHT / 2 + 2;
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) picture.setAttribute(name, value);
    const ordered = [...placed].sort((a, b) => a.best - b.best); // the best path lies on top
    picture.replaceChildren(...ordered.filter(({ up }) => up).map(edge), ...placed.map(leaf));
  }

  function leaf(node) {
    const text = svg("text", { x: node.x + PAD, y: node.y + 4.5 }, label(node));
    const attributes = { class: looks(node), role: "treeitem", "aria-level": node.depth + 1, "aria-label": sentence(node), tabindex: node.up ? -1 : 0 };
    const back = svg("rect", { x: node.x, y: node.y - 11.5, width: node.wide, height: 23, rx: 6 });
    const group = (node.element = svg("g", attributes, back, text));
    for (const event of ["focus", "pointerenter"]) group.addEventListener(event, () => (readout.textContent = sentence(node)));
    group.addEventListener("keydown", (event) => move(event, node));
    return group;
  }

  function move(event, node) {
    const column = placed.filter(({ depth }) => depth === node.depth).sort((a, b) => a.y - b.y);
    const at = column.indexOf(node);
    const onward = [...node.down].sort((a, b) => b.best - a.best || b.score - a.score)[0];
    const to = { ArrowLeft: node.up, ArrowRight: onward, ArrowUp: column[at - 1], ArrowDown: column[at + 1] };
    if (!Object.hasOwn(to, event.key)) return;
    event.preventDefault();
    if (!to[event.key]) return;
    for (const each of placed) each.element.setAttribute("tabindex", each === to[event.key] ? 0 : -1);
    to[event.key].element.focus();
  }

  const pruned = nodes.filter(({ kept, best }) => !kept && !best).length;
  all.parentElement.hidden = pruned === 0;
  all.addEventListener("change", draw);
  readout.textContent = `${nodes.length - pruned} tokens were kept${pruned ? `, ${pruned} more were weighed and left` : ""}.`;
  draw();
  return root;
}

// Where each node stands: a column for each step, and a row for each branch, as high up as there is room for it.
// A hypothesis is alive that came to an end of its own or to the last step.
function place(nodes, special) {
  const byId = new Map([START, ...nodes].map((node) => [node.id, { ...node, down: [], up: null }]));
  for (const node of byId.values()) {
    node.up = node.id === START.id ? null : byId.get(node.parent) ?? null;
    node.up?.down.push(node);
  }
  branch(byId.get(START.id), 0, -1, []);
  const placed = [...byId.values()].filter(({ depth }) => depth !== undefined);
  const last = Math.max(...placed.map(({ step }) => step));
  for (const node of [...placed].sort((a, b) => b.depth - a.depth)) {
    const ended = node.kept && (node.step === last || special.includes(node.token));
    node.alive = node.best || node.down.some(({ alive }) => alive) || (!node.down.length && ended);
  }
  spread(placed);
  return placed;
}

// A branch follows the likeliest child of each node, the winner's if it is one; the others begin branches below.
// `taken` has the columns that are taken in each row.
function branch(node, depth, above, taken) {
  const along = [];
  for (let each = node; each; each = each.down[0]) {
    each.down.sort((a, b) => b.best - a.best || b.score - a.score);
    each.depth = depth + along.length;
    along.push(each);
  }
  const [from, to] = [depth - 1, depth + along.length - 1]; // with the line that leads to it
  let row = above + 1;
  while (taken[row]?.some(([left, right]) => left <= to && from <= right)) row++;
  (taken[row] ??= []).push([from, to]);
  for (const each of along) each.y = HEIGHT * (row + 0.5);
  for (const each of along.reverse()) for (const child of each.down.slice(1)) branch(child, each.depth + 1, row, taken);
}

// From left to right: a column is as wide as its widest token.
function spread(placed) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = '700 13px system-ui, "Noto Sans", sans-serif';
  for (const node of placed) node.wide = Math.ceil(pen.measureText(label(node)).width) + 2 * PAD;
  let x = 2;
  for (let depth = 0; placed.some((node) => node.depth === depth); depth++) {
    const column = placed.filter((node) => node.depth === depth);
    for (const node of column) node.x = x;
    x += Math.max(...column.map(({ wide }) => wide)) + GAP;
  }
}

const label = ({ token }) => cut(standing(token), LETTERS);

function edge({ up, x, y, best, alive, kept }) {
  const bend = x - GAP / 2;
  const path = `M${up.x + up.wide} ${up.y}H${x - GAP}C${bend} ${up.y} ${bend} ${y} ${x} ${y}`;
  return svg("path", { d: path, class: looks({ best, alive, kept }) });
}

function looks({ best, alive, kept }) {
  return best ? "beam-best" : kept && alive ? "beam-kept" : kept ? "beam-lost" : "beam-cut";
}

function sentence(node) {
  const words = [];
  for (let each = node; each.up; each = each.up) words.unshift(each.token);
  if (!words.length) return "The start";
  const fate = node.best ? "on the path that won" : node.alive ? "kept to the end" : node.kept ? "kept, and given up later" : "weighed, and not kept";
  return `${words.join(" ").replaceAll(" ·", "")}: score ${node.score.toFixed(2)}, ${fate}`;
}

function svg(tag, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}
