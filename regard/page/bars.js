// Tokens with their probabilities as bars; where `pick` is given, a bar is a button that chooses its token.

import { make, moveAmong, percent } from "./parts.js";

export function bars(label, pick = null) {
  const list = make("ol", { class: "bars", "aria-label": label });
  const rest = make("li", { class: "bar-rest" });
  let rows = [];

  function row(i) {
    const [token, before, after, share] = ["bar-token", "bar-before", "bar-after", "bar-share"].map((name) => make("span", { class: name }));
    token.append(make("bdi"));
    const track = make("span", { class: "bar-track", "aria-hidden": "true" }, before, after);
    const inside = make(pick ? "button" : "div", { class: "bar", ...(pick && { type: "button" }) }, token, track, share);
    if (pick) inside.addEventListener("click", () => pick(rows[i].item));
    return { element: make("li", {}, inside), inside, name: token.firstChild, before, after, share, item: null };
  }

  // `items` have a token, its probability p and, where some are cut, what is left of it: kept.
  function show(items, chosen = null) {
    while (rows.length < items.length) rows.push(row(rows.length));
    const left = 1 - items.reduce((sum, { p, kept = p }) => sum + kept, 0);
    rest.textContent = `all others together: ${told(left)}`;
    list.replaceChildren(...rows.slice(0, items.length).map(({ element }) => element), ...(items.length ? [rest] : []));
    const most = Math.max(...items.map(({ p, kept = p }) => Math.max(p, kept)), 1e-9);
    items.forEach((item, i) => {
      const { p, kept = p } = item;
      const { inside, name, before, after, share } = rows[i];
      rows[i].item = item;
      name.textContent = item.token;
      before.style.setProperty("--p", p / most);
      after.style.setProperty("--p", kept / most);
      share.textContent = kept === 0 ? "cut" : told(kept);
      inside.classList.toggle("bar-cut", kept === 0);
      inside.classList.toggle("bar-chosen", item.token === chosen);
      if (pick) inside.tabIndex = i === 0 ? 0 : -1;
    });
  }

  if (pick) {
    list.addEventListener("keydown", (event) => moveAmong(event, list.querySelectorAll("button"), 1));
    list.addEventListener("focusin", (event) => list.querySelectorAll("button").forEach((each) => (each.tabIndex = each === event.target ? 0 : -1)));
  }
  return { list, show };
}

const told = (share) => (share < 0.001 ? "< 0.1 %" : percent(share));
