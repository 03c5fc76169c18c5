// The page of `regard serve`: four views, named by what stands behind the address's #, which reproduces what is seen.

import { addressWriter } from "./address.js";
import { questions } from "./api.js";
import { labs } from "./labs.js";
import { looking } from "./looking.js";
import { make } from "./parts.js";
import { translate } from "./translate.js";
import { write } from "./write.js";

// Maps and not objects: names come from the address, and every object has a "constructor".
const VIEWS = new Map([
  ["translate", ["Translate", translate]],
  ["look", ["Look", looking]],
  ["write", ["Write", write]],
  ["labs", ["Labs", labs]],
]);
const main = document.getElementById("main");
const links = new Map([...VIEWS].map(([name, [title]]) => [name, make("a", { href: `#/${name}` }, title)]));
const written = addressWriter();
let open = null; // the view that is open: its name, and what it gave
let shown = null; // the address that it shows

function address() {
  const [path, options] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  return { name: VIEWS.has(name) ? name : "translate", rest: rest.map(safelyDecoded), options: new URLSearchParams(options) };
}

function safelyDecoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// Say in the address what is seen: as a new place to come back to, or in place of the last.
function told(name, options, { push = false } = {}) {
  const given = Object.entries(options).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const hash = `#/${name}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
  links.get(name.split("/")[0]).href = hash;
  written.set(hash, { push });
  shown = hash;
}

function route(models) {
  if (location.hash === shown || location.hash === "#main") return;
  const first = shown === null;
  written.drop();
  shown = location.hash;
  const { name, rest, options } = address();
  links.get(name).href = location.hash || `#/${name}`;
  if (open?.name !== name) {
    const [title, view] = VIEWS.get(name);
    open?.view.close?.();
    open = { name, view: view({ models, told }) };
    main.replaceChildren(open.view.root);
    document.title = `${title} · Regard`;
    for (const [each, link] of links) link.toggleAttribute("aria-current", each === name);
    links.get(name).setAttribute("aria-current", "page");
    if (!first) main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  open.view.update(options, rest);
}

async function start() {
  document.querySelector("nav").replaceChildren(...links.values());
  const { place, question } = questions(start);
  main.replaceChildren(make("div", { class: "view" }, place));
  const models = await question("/api/models");
  if (!models) return;
  for (const event of ["hashchange", "popstate"]) addEventListener(event, () => route(models));
  route(models);
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
start();
