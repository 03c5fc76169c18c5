// The attention page as a file: the attention of every head, the computation inside a cell, and how to read them. It has the
// data of the server's response, and the vectors of the heads, so that it needs no server.

import { changesFromRequest, describeChanges, headKey, NO_CHANGES } from "./attention_changes.js";
import { createAttentionMap, describePattern } from "./attention_map.js";
import { make } from "./dom.js";
import { createHeadCell } from "./head_cell.js";
import { withTokenNames } from "./token_names.js";
import { CAPTIONS } from "./tour.js";

const CAPTIONS_SHOWN = ["Queries", "Keys", "Values"]; // those of the tour that say how to read a map
const OWN_CAPTIONS = [
  { title: "Queries", text: "Each row is a token that asks a question about the text: that is its query." },
  { title: "Keys", text: "Each column is a token that has a key, which says what it has to offer. Where query and key match, the cell is dark." },
  { title: "Values", text: "From the tokens that match, the row takes their values, in just these proportions, and mixes them." },
];

export function createAttentionFile(root, data) {
  const pattern = make("p", { class: "head-pattern" });
  const cell = data.head_vectors ? createHeadCell({ connect: null, stored: data.head_vectors, onWeight: null, onHead: (head) => map.open(current.kind, { ...current, head }), findChange: () => null }) : null;
  let current = {}; // the kind, layer, head and cell that are open
  let map = null;

  function onChange({ kind, layer, head, cell: selected }) {
    current = { kind, layer, head, cell: selected };
    const measured = head === null ? null : data.patterns?.[kind]?.[layer]?.[head];
    pattern.hidden = !measured;
    if (measured) pattern.replaceChildren("Pattern: ", make("b", {}, describePattern(measured)), make("span", { class: "hint" }, ` Rule: ${data.pattern_rules[measured.label]}.`));
    const original = data.maps.find((each) => each.kind === kind);
    const isCell = selected && selected.t !== null && selected.s !== null;
    cell?.show(isCell ? { kind, layer, head, row: selected.t, column: selected.s, map: withTokenNames(data, original) } : null);
  }

  const more = cell ? [help(data), cell.root] : [];
  const changes = data.changes ? changesFromRequest(data.changes, data.beginning ?? []) : NO_CHANGES;
  const changed = describeChanges(changes, data).map(([text]) => text);
  const isSilenced = (kind, layer, head) => changes.off.includes(headKey(kind, layer, head));
  map = createAttentionMap(root, data, { onChange, more, headTools: data.patterns ? [pattern] : [], isSilenced });
  if (changed.length) root.firstChild.append(changeNote(changed, data));
}

// Says what was changed in the model, so that nobody takes it for what the model does by itself.
function changeNote(changed, { usual, target, head_vectors: vectors }) {
  return make("div", { class: "file-changes", role: "note" },
    make("p", {}, make("b", {}, "The model was changed for this page: "), `${changed.join("; ")}.`),
    ...(usual !== undefined && usual !== target ? [make("p", {}, "Without the changes, its output is: ", make("q", {}, usual))] : []),
    ...(vectors ? [] : [make("p", { class: "hint" }, "How a weight is computed is not shown, because the computation does not explain weights that were set by hand.")]));
}

function help({ maps }) {
  const captions = maps.some(({ kind }) => kind === "cross") ? CAPTIONS.filter(({ title }) => CAPTIONS_SHOWN.includes(title)) : OWN_CAPTIONS;
  const entries = captions.flatMap(({ title, text }) => [make("dt", {}, title), make("dd", {}, text)]);
  return make("section", { class: "attention-card attention-help", "aria-label": "How to read this" }, make("h2", {}, "How to read this"), make("dl", {}, ...entries));
}
