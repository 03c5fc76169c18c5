// The patterns of the heads of one kind of attention, each with its number of heads and its rule. Selecting one marks its heads.

import { make, moveFocus } from "./dom.js";

export function createPatternLegend({ patterns, pattern_rules: rules }) {
  const list = make("div", { class: "patterns", role: "group", "aria-label": "Patterns of heads: select one to mark its heads" });
  const readout = make("p", { class: "hint", "aria-live": "polite" });
  const root = make("div", { class: "pattern-legend" }, list, readout);
  let [kind, marked, heads] = [null, null, null];

  // Marks the thumbnails of the heads with the selected pattern; `heads` has them by layer, the mean last.
  function mark() {
    const layers = patterns[kind];
    const columns = layers[0].length + 1;
    heads.querySelectorAll("button").forEach((button, i) => {
      const pattern = layers[Math.floor(i / columns)][i % columns]?.label;
      button.classList.toggle("attention-marked", marked !== null && pattern === marked);
    });
    for (const button of list.children) button.setAttribute("aria-pressed", button.dataset.pattern === marked);
    readout.textContent = marked ? `${marked}: ${rules[marked]}.` : "";
  }

  // Shows the patterns of another kind of attention.
  function update(nextKind, element) {
    if (!patterns?.[nextKind] || (kind === nextKind && heads === element)) return;
    [kind, heads, marked] = [nextKind, element, null];
    const labels = patterns[kind].flat().map(({ label }) => label);
    const names = Object.keys(rules).filter((name) => labels.includes(name));
    list.replaceChildren(...names.map((name, i) => {
      const count = labels.filter((label) => label === name).length;
      const button = make("button", { type: "button", title: rules[name], tabindex: i ? -1 : 0 }, `${name} ${count}`);
      button.dataset.pattern = name;
      button.addEventListener("click", () => {
        marked = marked === name ? null : name;
        mark();
      });
      return button;
    }));
    mark();
  }

  list.addEventListener("keydown", (event) => moveFocus(event, list.children, list.children.length + 1));
  list.addEventListener("focusin", (event) => [...list.children].forEach((button) => (button.tabIndex = button === event.target ? 0 : -1)));
  root.hidden = !patterns;
  return { root, update };
}
