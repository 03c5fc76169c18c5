// The labs: a list of questions, and for each lab its figure, tables and conclusions.

import { createRequests } from "./api.js";
import { addScrollFade, make, scrollWithin } from "./dom.js";
import { createLabSliders, hasSliders } from "./lab_sliders.js";

export function labs({ saveState }) {
  const { notice, request, cancel } = createRequests(() => load());
  const list = make("ol", { class: "lab-list" });
  const index = addScrollFade(make("nav", { "aria-label": "Labs" }, list));
  const shown = make("article", { class: "card lab" });
  const root = make("div", { class: "view" }, make("div", { class: "head" }, make("h1", {}, "Labs"),
    make("p", { class: "about" }, "Questions that every course on the Transformer asks, answered by measurement.")), notice,
  make("div", { class: "lab-pair" }, index, shown));
  let [all, wanted] = [null, null];
  let settings = {}; // of the sliders, from the URL
  let sliders = null;

  async function load() {
    all ??= await request("/api/labs");
    if (all) show();
  }

  function show() {
    const lab = all.find(({ name }) => name === wanted) ?? (wanted ? null : all[0]);
    list.replaceChildren(...all.map((item) => entry(item, item === lab)));
    root.classList.toggle("lab-open", Boolean(wanted));
    const open = list.querySelector("[aria-current]");
    if (open) requestAnimationFrame(() => scrollWithin(index, open));
    if (!all.length) return shown.replaceChildren(make("p", {}, "There are no lab results. Run “regard lab all --out regard/labs/gallery” in a checkout to create them."));
    if (!lab) return shown.replaceChildren(make("p", {}, `There is no lab “${wanted}”.`));
    sliders?.close();
    sliders = hasSliders(lab.name) ? createLabSliders(lab.name, (changed) => saveState(`labs/${lab.name}`, changed), settings) : null;
    shown.replaceChildren(...content(lab, sliders ? [sliders.root] : []));
  }

  return {
    root,
    close() {
      sliders?.close();
      cancel();
    },
    update(options, [name]) {
      wanted = name ?? null;
      settings = Object.fromEntries([...options].filter(([, value]) => value !== "" && Number.isFinite(Number(value))));
      load();
      if (wanted) scrollTo(0, 0);
    },
  };
}

function entry({ name, question, claims }, open) {
  const confirmed = claims.filter(({ holds }) => holds).length;
  const link = make("a", { href: `#/labs/${encodeURIComponent(name)}`, ...(open && { "aria-current": "true" }) },
    make("span", {}, ...prose(question)), make("small", {}, `${name} · ${confirmed} of ${claims.length} conclusions confirmed${hasSliders(name) ? " · with sliders" : ""}`));
  return make("li", {}, link);
}

function content({ name, question, about = [], claims, tables, notes, picture, command }, more) {
  const items = claims.map(({ text, holds }) => make("li", { class: holds ? "holds" : "fails" },
    make("strong", {}, holds ? "✓ " : "✗ not confirmed: "), ...prose(text)));
  return [
    make("a", { class: "lab-back", href: "#/labs" }, "All labs"),
    make("h2", {}, ...prose(question)),
    ...about.map((text) => make("p", { class: "lab-about" }, ...prose(text))),
    ...more,
    make("img", { src: picture, alt: `Figure of the lab ${name}; the tables below hold the numbers`, loading: "lazy" }),
    make("h3", {}, "Conclusions"), make("ul", { class: "claims" }, ...items),
    ...tables.flatMap(table),
    ...(notes.length ? [make("h3", {}, "Notes"), make("ul", {}, ...notes.map((note) => make("li", {}, ...prose(note))))] : []),
    make("p", { class: "hint" }, "Run it yourself: ", code(command || `regard lab ${name}`)),
  ];
}

function table({ title, head, rows }) {
  const numeric = head.map((_, i) => rows.every((row) => /^[−–<>≥≤~+-]?\s?[\d.,]/.test(row[i] ?? "") || !row[i]));
  const cells = (tag, row) => row.map((cell, i) => {
    const isHeader = tag === "th" && cell !== ""; // an empty header would confuse screen readers
    return make(isHeader ? "th" : "td", { ...(numeric[i] && { class: "number" }), ...(isHeader && { scope: "col" }) }, ...prose(`${cell}`));
  });
  const body = rows.map((row) => make("tr", {}, ...cells("td", row)));
  const caption = title ? [make("caption", {}, ...prose(title))] : [];
  const element = make("table", {}, ...caption, make("thead", {}, make("tr", {}, ...cells("th", head))), make("tbody", {}, ...body));
  return [addScrollFade(make("div", { class: "table", tabindex: 0, role: "region", "aria-label": title || "Table" }, element))];
}

// Text with `code` between backticks.
function prose(text) {
  return text.split("`").map((piece, i) => (i % 2 ? code(piece) : piece));
}

// A command wraps between its words, but not within a word or between an option and its value.
function code(text) {
  const words = text.match(/--\S+ (?!-)\S+|\S+/g) ?? [];
  return make("code", {}, ...words.flatMap((word, i) => [i ? " " : "", make("span", { class: "word" }, word)]));
}
