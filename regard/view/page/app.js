// The page of `regard serve`: four views, named by what stands behind the address's #, which reproduces what is seen.

import { questions } from "./api.js";
import { labs } from "./labs.js";
import { looking } from "./looking.js";
import { make } from "./parts.js";
import { translate } from "./translate.js";
import { write } from "./write.js";

const VIEWS = {
  translate: ["Translate", translate],
  look: ["Look", looking],
  write: ["Write", write],
  labs: ["Labs", labs],
};
const main = document.getElementById("main");
const links = Object.fromEntries(Object.entries(VIEWS).map(([name, [title]]) => [name, make("a", { href: `#/${name}` }, title)]));
let open = null; // the view that is open: its name, and what it gave
let shown = null; // the address that it shows

function address() {
  const [path, options] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  return { name: name in VIEWS ? name : "translate", rest: rest.map(safelyDecoded), options: new URLSearchParams(options) };
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
  links[name.split("/")[0]].href = hash;
  if (hash === location.hash) return;
  history[push ? "pushState" : "replaceState"](null, "", hash);
  shown = hash;
}

function route(models) {
  if (location.hash === shown || location.hash === "#main") return;
  const first = shown === null;
  shown = location.hash;
  const { name, rest, options } = address();
  links[name].href = location.hash || `#/${name}`;
  if (open?.name !== name) {
    open?.view.close?.();
    open = { name, view: VIEWS[name][1]({ models, told }) };
    main.replaceChildren(open.view.root);
    document.title = `${VIEWS[name][0]} · Regard`;
    for (const [each, link] of Object.entries(links)) link.toggleAttribute("aria-current", each === name);
    links[name].setAttribute("aria-current", "page");
    if (!first) main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  open.view.update(options, rest);
}

async function start() {
  document.querySelector("nav").replaceChildren(...Object.values(links));
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
