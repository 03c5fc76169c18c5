// The beam search as a tree: every hypothesis from left to right, the best path in bold, pruned hypotheses dimmed.

import { addScrollFade, fill, make, truncate, visibleToken } from "./dom.js";

const COLUMN_GAP = 30; // pixels between the tokens of one step and the next
const ROW_HEIGHT = 30; // pixels
const MAX_LABEL_LENGTH = 12; // characters
const TOKEN_PADDING = 8; // pixels around a token
const ROOT_NODE = { id: null, token: "•", score: 0, step: -1, kept: true, best: true };

// `nodes` are those of the server; `ends` says whether a node's token ends the translation.
export function createBeamTree(nodes) {
  const picture = svg("svg", { role: "tree", "aria-label": "Beam search tree: use the arrow keys to move" });
  const readout = make("p", { class: "beam-readout", "aria-live": "polite" });
  const showAll = make("input", { type: "checkbox" });
  const root = make("section", { class: "attention-card beam", "aria-label": "Beam search" },
    make("h2", {}, "Beam search"),
    make("p", { class: "hint" }, "Every hypothesis, from left to right. Bold: the best translation. Dimmed: pruned later."),
    make("label", { class: "beam-all" }, showAll, " show candidates that were never kept"),
    addScrollFade(make("div", { class: "beam-scroll" }, picture)), readout);
  let placed = [];

  function draw() {
    placed = layOutTree(nodes.filter(({ kept, best }) => showAll.checked || kept || best));
    const width = Math.max(...placed.map(({ x, width }) => x + width)) + 4;
    const height = Math.max(...placed.map(({ y }) => y)) + ROW_HEIGHT / 2 + 2;
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) picture.setAttribute(name, value);
    const bestLast = [...placed].sort((a, b) => a.best - b.best); // so that the best path is drawn on top
    picture.replaceChildren(...bestLast.filter(({ parentNode }) => parentNode).map(createEdge), ...placed.map(createNode));
  }

  function createNode(node) {
    const text = svg("text", { x: node.x + TOKEN_PADDING, y: node.y + 4.5 }, label(node));
    const attributes = { class: nodeClass(node), role: "treeitem", "aria-level": node.depth + 1, "aria-label": describe(node), tabindex: node.parentNode ? -1 : 0 };
    const box = svg("rect", { x: node.x, y: node.y - 11.5, width: node.width, height: 23, rx: 6 });
    const group = (node.element = svg("g", attributes, box, text));
    for (const event of ["focus", "pointerenter"]) group.addEventListener(event, () => (readout.textContent = describe(node)));
    group.addEventListener("keydown", (event) => move(event, node));
    return group;
  }

  function move(event, node) {
    const column = placed.filter(({ depth }) => depth === node.depth).sort((a, b) => a.y - b.y);
    const index = column.indexOf(node);
    const targets = { ArrowLeft: node.parentNode, ArrowRight: node.children[0], ArrowUp: column[index - 1], ArrowDown: column[index + 1] };
    if (!Object.hasOwn(targets, event.key)) return;
    event.preventDefault();
    const target = targets[event.key];
    if (!target) return;
    for (const other of placed) other.element.setAttribute("tabindex", other === target ? 0 : -1);
    target.element.focus();
  }

  const dropped = nodes.filter(({ kept, best }) => !kept && !best).length;
  showAll.parentElement.hidden = dropped === 0;
  showAll.addEventListener("change", draw);
  readout.textContent = `${nodes.length - dropped} tokens were kept${dropped ? `; ${dropped} more candidates were not` : ""}.`;
  draw();
  return root;
}

// Positions all nodes: one column per step, and each branch in the highest row with room for it. A hypothesis survives
// if it reached its end or the last step.
function layOutTree(nodes) {
  const byId = new Map([ROOT_NODE, ...nodes].map((node) => [node.id, { ...node, children: [], parentNode: null }]));
  for (const node of byId.values()) {
    node.parentNode = node.id === ROOT_NODE.id ? null : byId.get(node.parent) ?? null;
    node.parentNode?.children.push(node);
  }
  placeBranch(byId.get(ROOT_NODE.id), 0, -1, []);
  const placed = [...byId.values()].filter(({ depth }) => depth !== undefined);
  const lastStep = Math.max(...placed.map(({ step }) => step));
  for (const node of [...placed].sort((a, b) => b.depth - a.depth)) {
    const ended = node.kept && (node.step === lastStep || node.ends);
    node.survives = node.best || node.children.some(({ survives }) => survives) || (!node.children.length && ended);
  }
  placeColumns(placed);
  return placed;
}

// A branch follows the best child of each node, preferably on the best path; the other children start branches below it.
// `occupied` has the occupied columns of each row.
function placeBranch(node, depth, rowAbove, occupied) {
  const branch = [];
  for (let current = node; current; current = current.children[0]) {
    current.children.sort((a, b) => b.best - a.best || b.score - a.score);
    current.depth = depth + branch.length;
    branch.push(current);
  }
  const [from, to] = [depth - 1, depth + branch.length - 1]; // including the edge that leads to the branch
  let row = rowAbove + 1;
  while (occupied[row]?.some(([left, right]) => left <= to && from <= right)) row++;
  (occupied[row] ??= []).push([from, to]);
  for (const current of branch) current.y = ROW_HEIGHT * (row + 0.5);
  for (const current of branch.reverse()) for (const child of current.children.slice(1)) placeBranch(child, current.depth + 1, row, occupied);
}

// Each column is as wide as its widest token.
function placeColumns(placed) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = '700 13px system-ui, "Noto Sans", sans-serif';
  for (const node of placed) node.width = Math.ceil(context.measureText(label(node)).width) + 2 * TOKEN_PADDING;
  let x = 2;
  for (let depth = 0; placed.some((node) => node.depth === depth); depth++) {
    const column = placed.filter((node) => node.depth === depth);
    for (const node of column) node.x = x;
    x += Math.max(...column.map(({ width }) => width)) + COLUMN_GAP;
  }
}

const label = ({ token }) => truncate(visibleToken(token), MAX_LABEL_LENGTH);

function createEdge(node) {
  const { parentNode, x, y } = node;
  const bend = x - COLUMN_GAP / 2;
  const path = `M${parentNode.x + parentNode.width} ${parentNode.y}H${x - COLUMN_GAP}C${bend} ${parentNode.y} ${bend} ${y} ${x} ${y}`;
  return svg("path", { d: path, class: nodeClass(node) });
}

function nodeClass({ best, survives, kept, usual, given }) {
  const fate = best ? "beam-best" : kept && survives ? "beam-kept" : kept ? "beam-lost" : "beam-cut";
  return `${fate}${usual && !best ? " beam-usual" : ""}${given ? " beam-given" : ""}`;
}

function describe(node) {
  const tokens = [];
  for (let current = node; current.parentNode; current = current.parentNode) tokens.unshift(current.token);
  if (!tokens.length) return "Start";
  const fate = node.given ? "given by you" : node.best ? "on the best path" : node.usual ? "the best path of the model’s own choice" : node.survives ? "kept to the end" : node.kept ? "kept, then pruned" : "considered, not kept";
  return `${tokens.join(" ").replaceAll(" ·", "")}: score ${node.score.toFixed(2)}, ${fate}`;
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}
