// A list of tokens with their probabilities as bars. If `onPick` is given, each bar is a button that picks its token.
// `others` names what is not shown; null hides its share.

import { make, moveFocus, percent } from "./dom.js";

export function createBars(label, onPick = null, others = "all other tokens") {
  const list = make("ol", { class: "bars", "aria-label": label });
  const rest = make("li", { class: "bar-rest" });
  const rows = [];

  function createRow(i) {
    const [token, before, after, share] = ["bar-token", "bar-before", "bar-after", "bar-share"].map((name) => make("span", { class: name }));
    token.append(make("bdi"));
    const track = make("span", { class: "bar-track", "aria-hidden": "true" }, before, after);
    const bar = make(onPick ? "button" : "div", { class: "bar", ...(onPick && { type: "button" }) }, token, track, share);
    if (onPick) bar.addEventListener("click", () => onPick(rows[i].item));
    return { element: make("li", {}, bar), bar, name: token.firstChild, before, after, share, item: null };
  }

  // Items have a token, its probability p and, if sampling options apply, the probability that remains: kept.
  function show(items, chosen = null) {
    while (rows.length < items.length) rows.push(createRow(rows.length));
    const remainder = 1 - items.reduce((sum, { p, kept = p }) => sum + kept, 0);
    rest.textContent = `${others}: ${formatShare(remainder)}`;
    list.replaceChildren(...rows.slice(0, items.length).map(({ element }) => element), ...(items.length && others ? [rest] : []));
    const largest = Math.max(...items.map(({ p, kept = p }) => Math.max(p, kept)), 1e-9);
    items.forEach((item, i) => {
      const { p, kept = p } = item;
      const isCut = item.kept === 0; // without sampling options, 0 is only rounded
      const { bar, name, before, after, share } = rows[i];
      rows[i].item = item;
      name.textContent = item.token;
      before.style.setProperty("--p", p / largest);
      after.style.setProperty("--p", kept / largest);
      share.textContent = isCut ? "excluded" : formatShare(kept);
      bar.classList.toggle("bar-cut", isCut);
      bar.classList.toggle("bar-chosen", item.token === chosen);
      if (onPick) bar.tabIndex = i === 0 ? 0 : -1;
    });
  }

  if (onPick) {
    list.addEventListener("keydown", (event) => moveFocus(event, list.querySelectorAll("button"), 1));
    list.addEventListener("focusin", (event) => list.querySelectorAll("button").forEach((button) => (button.tabIndex = button === event.target ? 0 : -1)));
  }
  return { list, show };
}

const formatShare = (share) => (share < 0.001 ? "< 0.1%" : percent(share));
