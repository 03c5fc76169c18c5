// The page of `regard serve`: its views. The URL's hash names the view and contains its complete state.

import { createRequests } from "./api.js";
import { make } from "./dom.js";
import { createTakeAway } from "./take_away.js";
import { createHash, createUrlUpdater } from "./url_history.js";

// The title of each view and its module, which is loaded when the view is first opened. Maps, not objects: names come from the
// URL, and every object has a "constructor".
const VIEWS = new Map([
  ["translate", ["Translate", async () => (await import("./translate.js")).translateView]],
  ["look", ["Attention", async () => (await import("./attention.js")).attentionView]],
  ["layers", ["Layers", async () => (await import("./layers.js")).layersView]],
  ["write", ["Write", async () => (await import("./write.js")).writeView]],
  ["read", ["Read", async () => (await import("./read.js")).readView]],
  ["runs", ["Runs", async () => (await import("./runs.js")).runsView]],
  ["labs", ["Labs", async () => (await import("./labs.js")).labs]],
]);
const NOT_LOADED = "This view could not be loaded. Is “regard serve” still running?";
const main = document.getElementById("main");
const links = new Map([...VIEWS].map(([name, [title]]) => [name, make("a", { href: `#/${name}` }, title)]));
const url = createUrlUpdater();
const takeAway = createTakeAway(() => current?.view);
let current = null; // the name and the view that are displayed
let currentHash = null; // the hash that the view displays
let navigations = 0; // number of times that the user went somewhere

// Views that work without models.
const WITHOUT_MODELS = ["runs", "labs"];

// The view to start with: what the first models are for.
function defaultView(models) {
  if (!models.length) return "runs";
  return models.some((model) => model.translates) ? "look" : models.some((model) => model.writes) ? "write" : "read";
}

function parseHash(models) {
  const [path, options] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const isAvailable = VIEWS.has(name) && (models.length || WITHOUT_MODELS.includes(name));
  return { name: isAvailable ? name : defaultView(models), rest: rest.map(decode), options: new URLSearchParams(options) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// Writes a view's state to the URL, as a new history entry (`push`) or in place of the current one.
function saveState(name, options, { push = false } = {}) {
  const hash = createHash(name, options);
  links.get(name.split("/")[0]).href = hash;
  url.set(hash, { push });
  currentHash = hash;
}

async function route(models) {
  if (location.hash === currentHash || location.hash === "#main") return;
  const isFirst = currentHash === null;
  url.cancel();
  currentHash = location.hash;
  const { name, rest, options } = parseHash(models);
  links.get(name).href = location.hash || `#/${name}`;
  if (current?.name !== name) {
    const number = (navigations += 1);
    const [title, load] = VIEWS.get(name);
    current?.view.close?.();
    current = null;
    takeAway.close();
    const createView = await load().catch(() => null);
    if (number !== navigations) return; // the user has gone elsewhere meanwhile
    if (!createView) return showNotLoaded();
    const isFirstScreen = isFirst && /^#?\/?$/.test(location.hash);
    current = { name, view: createView({ models, saveState, isFirstScreen }) };
    main.replaceChildren(current.view.root);
    document.title = `${title} · Regard`;
    for (const [other, link] of links) link.toggleAttribute("aria-current", other === name);
    links.get(name).setAttribute("aria-current", "page");
    if (!isFirst) main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  current.view.update(options, rest);
}

function showNotLoaded() {
  currentHash = null; // so that the same link loads it again
  main.replaceChildren(make("div", { class: "view" }, make("p", { class: "notice notice-error", role: "status" }, NOT_LOADED)));
}

async function start() {
  document.querySelector("nav").replaceChildren(...links.values());
  document.querySelector(".site-header").append(takeAway.root);
  const { notice, request } = createRequests(start);
  main.replaceChildren(make("div", { class: "view" }, notice));
  const models = await request("/api/models");
  if (!models) return;
  for (const [name, link] of links) link.hidden = !models.length && !WITHOUT_MODELS.includes(name);
  if (!location.hash && (await request("/api/runs"))?.some(({ state }) => state === "running")) history.replaceState(null, "", "#/runs");
  for (const event of ["hashchange", "popstate"]) addEventListener(event, () => route(models));
  route(models);
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
start();
