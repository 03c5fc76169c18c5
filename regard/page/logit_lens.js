// The logit lens: a table of the most likely token at each position after each layer. A selected cell shows its
// alternatives. `createLogitLens(data.lens)` takes the data of `LogitLens.to_json`.

import { colour, textColourOn } from "./heat_map.js";
import { addScrollFade, make, moveFocus, percent, pointingHint, visibleToken } from "./dom.js";

const EXPLANATION = "The vectors after each layer, read by the final norm and the output head as if the layer were the last: the"
  + " most likely token at each position, and its probability.";

export function createLogitLens({ queries, writes, states, top }) {
  const readout = make("p", { class: "lens-readout", "aria-live": "polite" });
  const cells = queries.flatMap((_, t) => states.map((_, layer) => createCell(layer, t)));
  const head = make("tr", {}, make("th", { scope: "col" }, writes.length ? "reads → predicts" : "token"),
    ...states.map((name) => make("th", { scope: "col" }, name)));
  const rows = queries.map((_, t) => make("tr", {}, make("th", { scope: "row" }, ...rowLabel(t)),
    ...cells.slice(t * states.length, (t + 1) * states.length).map(({ button }) => make("td", {}, button))));
  const table = make("table", { class: "lens-table" }, make("thead", {}, head), make("tbody", {}, ...rows));
  const root = make("section", { class: "attention-card attention-lens", "aria-label": "Logit lens" },
    make("h2", {}, "Logit lens"), make("p", { class: "hint" }, EXPLANATION),
    addScrollFade(make("div", { class: "lens-scroll" }, table)), readout);
  const buttons = cells.map(({ button }) => button);
  let reachable = buttons[0]; // the cell that Tab reaches

  function createCell(layer, t) {
    const [{ token, p }] = top[layer][t];
    const button = make("button", { type: "button", tabindex: -1, "aria-label": describe(layer, t) },
      make("bdi", {}, visibleToken(token)), make("span", {}, percent(p)));
    const show = () => (readout.textContent = describe(layer, t));
    button.addEventListener("pointerover", (event) => event.pointerType !== "touch" && show());
    button.addEventListener("focus", () => {
      reachable.tabIndex = -1;
      reachable = button;
      button.tabIndex = 0;
      show();
    });
    button.addEventListener("click", () => button.focus());
    return { button, p };
  }

  function rowLabel(t) {
    const read = make("bdi", {}, visibleToken(queries[t]));
    return writes[t] ? [make("i", {}, read, " → "), make("bdi", {}, visibleToken(writes[t]))] : [read];
  }

  function describe(layer, t) {
    const isolate = (token) => `\u2068${visibleToken(token)}\u2069`; // for right-to-left text
    const alternatives = top[layer][t].map(({ token, p }) => `${isolate(token)} ${percent(p)}`).join(", ");
    return `After ${layer ? states[layer] : "the embedding"}, at “${isolate(queries[t])}”: ${alternatives}`;
  }

  function paint(ramp) {
    for (const { button, p } of cells) {
      const rgb = colour(ramp, p);
      Object.assign(button.style, { backgroundColor: `rgb(${rgb})`, color: textColourOn(rgb) });
    }
  }

  table.addEventListener("keydown", (event) => moveFocus(event, buttons, states.length));
  readout.replaceChildren(make("span", { class: "hint" }, pointingHint("a cell", "its most likely tokens")));
  reachable.tabIndex = 0;
  return { root, paint };
}
