// The menu “Take away”: what is on screen as PNG, SVG, animated GIF or one HTML file, and a link that restores the view.

import { createRequests } from "./api.js";
import { make } from "./dom.js";

const MAX_GIF_WIDTH = 1000; // pixels
const MAX_GIF_FRAMES = 60;
const FRAME_MS = 500;
const LAST_FRAME_MS = 2000;
const SETTLE_MS = 60; // time for a view to draw a frame
const WHOLE_VIEW = "The whole view";
// Controls that show nothing and cannot work in a file without scripts.
const ACTION_SELECTOR = "button.main, button.play, .examples, .matrix-zoom, .target-language button, .tools > button, .notice, .skip";
// Other controls show something, such as a token and its probability: they look as on the page, and do nothing.
const INACTIVE_STYLE = "label, [aria-disabled] { pointer-events: none; }"; // a label would toggle its checkbox

// `currentView` returns the view that is displayed. A view may have `animation()`, which returns null or the number of frames
// (`count`), a function that shows one (`show`) and one that returns the index of the shown one (`current`); and
// `exportHtml(request)`, which resolves to the text of an interactive page; `changeTexts()` says what is changed in the model.
export function createTakeAway(currentView) {
  const summary = make("summary", {}, "Take away");
  const part = make("select", { id: "take-away-part" });
  const status = make("p", { class: "hint", role: "status" });
  const { notice, request, cancel } = createRequests(() => {}); // its notice is not displayed: errors go to `status`
  const buttons = new Map([
    ["link", ["Copy link", copyLink]],
    ["png", ["PNG", savePng]],
    ["svg", ["SVG", saveSvg]],
    ["gif", ["Animated GIF", saveGif]],
    ["html", ["HTML file", saveHtml]],
  ].map(([name, [title, action]]) => {
    const button = make("button", { type: "button", "data-format": name }, title);
    button.addEventListener("click", () => run(action));
    return [name, button];
  }));
  const menu = make("div", { class: "take-away-menu" }, make("label", { for: "take-away-part" }, "What"), part,
    make("div", { class: "take-away-buttons" }, ...buttons.values()), status);
  const root = make("details", { class: "take-away" }, summary, menu);
  let isBusy = false;

  function elements() {
    const main = document.getElementById("main");
    const sections = [...main.querySelectorAll("section[aria-label], .chart")].filter((element) => element.checkVisibility() && element.getBoundingClientRect().height > 20);
    const name = (element) => element.getAttribute("aria-label") ?? element.querySelector("figcaption")?.textContent ?? "";
    return [[WHOLE_VIEW, main], ...sections.map((element) => [name(element), element]).filter(([title]) => title)];
  }

  const chosen = () => (elements().find(([name]) => name === part.value) ?? elements()[0])[1];
  const fileName = (ending) => {
    const words = [document.title.split(" ·")[0], part.value === WHOLE_VIEW ? "" : part.value].filter(Boolean).join(" ");
    return `regard-${words.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "")}.${ending}`;
  };

  async function run(action) {
    if (isBusy) return;
    isBusy = true;
    status.textContent = "Working …";
    menu.setAttribute("aria-busy", "true");
    try {
      status.textContent = await action();
    } catch (error) {
      status.textContent = `This did not work: ${error.message ?? error}`;
    } finally {
      isBusy = false;
      menu.removeAttribute("aria-busy");
    }
  }

  async function copyLink() {
    await navigator.clipboard.writeText(location.href);
    return "The link is copied. It restores what you see, on this server.";
  }

  async function savePng() {
    const { elementToSvg, svgToCanvas } = await import("./svg_export.js");
    const canvas = await svgToCanvas(elementToSvg(chosen()), Math.max(2, devicePixelRatio || 1));
    return download(await new Promise((resolve) => canvas.toBlob(resolve, "image/png")), fileName("png"));
  }

  async function saveSvg() {
    const { elementToSvg } = await import("./svg_export.js");
    return download(new Blob([elementToSvg(chosen()).text], { type: "image/svg+xml" }), fileName("svg"));
  }

  async function saveGif() {
    const [{ elementToSvg, svgToCanvas }, { encodeGif }] = await Promise.all([import("./svg_export.js"), import("./gif.js")]);
    const animation = currentView().animation();
    const before = animation.current();
    const stride = Math.ceil(animation.count / MAX_GIF_FRAMES);
    const indices = Array.from({ length: animation.count }, (_, i) => i).filter((i) => i % stride === 0 || i === animation.count - 1);
    const images = [];
    let size = null;
    for (const [number, index] of indices.entries()) {
      status.textContent = `Drawing frame ${number + 1} of ${indices.length} …`;
      animation.show(index);
      await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
      const svg = elementToSvg(chosen());
      size ??= { width: svg.width, height: svg.height }; // all frames have the size of the first
      const canvas = await svgToCanvas({ ...svg }, Math.min(1, MAX_GIF_WIDTH / size.width));
      images.push(fit(canvas, Math.min(1, MAX_GIF_WIDTH / size.width), size));
    }
    animation.show(before);
    const delays = images.map((_, i) => (i === images.length - 1 ? LAST_FRAME_MS : FRAME_MS));
    return download(encodeGif(images, delays), fileName("gif"));
  }

  async function saveHtml() {
    const exportHtml = currentView().exportHtml;
    const text = exportHtml && part.value === WHOLE_VIEW ? await exportHtml(request) : await staticPage();
    if (!text) throw new Error(notice.querySelector("span")?.textContent ?? "the server sent no page");
    return download(new Blob([text], { type: "text/html" }), fileName("html"));
  }

  // A copy of what is on screen, without scripts: styles are included, and heat maps are images.
  async function staticPage() {
    const original = chosen();
    const copy = original.cloneNode(true);
    const canvases = original.querySelectorAll("canvas");
    copy.querySelectorAll("canvas").forEach((canvas, i) => {
      const { width, height } = canvases[i].getBoundingClientRect();
      const image = make("img", { src: canvases[i].toDataURL(), width: Math.round(width), height: Math.round(height), alt: canvas.getAttribute("aria-label") ?? "" });
      canvas.replaceWith(image);
    });
    const images = [...original.querySelectorAll("img")];
    copy.querySelectorAll("img:not([src^='data:'])").forEach((image, i) => image.setAttribute("src", toDataUrl(images[i])));
    const fields = original.querySelectorAll("input, textarea, select");
    copy.querySelectorAll("input, textarea, select").forEach((field, i) => freeze(field, fields[i]));
    copy.querySelectorAll("a").forEach((link) => link.removeAttribute("href")); // other views are not in the file
    copy.querySelectorAll(ACTION_SELECTOR).forEach((element) => element.remove());
    copy.querySelectorAll("button").forEach((button) => setInactive(button));
    const focusable = "[tabindex='0']:not(button, input, textarea, select, [role=region])"; // regions are scrolled with the keyboard
    copy.querySelectorAll(focusable).forEach((element) => element.setAttribute("tabindex", -1));
    const sheets = await Promise.all([...document.querySelectorAll("link[rel=stylesheet]")].map(async ({ href }) => (await fetch(href)).text()));
    const metadata = [
      { charset: "utf-8" },
      { "http-equiv": "Content-Security-Policy", content: "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'" },
      { name: "viewport", content: "width=device-width, initial-scale=1" },
      { name: "color-scheme", content: "light dark" },
    ].map((attributes) => serialize(make("meta", attributes)));
    const title = serialize(make("title", {}, document.title));
    const changed = currentView().changeTexts?.() ?? [];
    const changeNote = changed.length ? [serialize(make("div", { class: "view" }, make("p", {}, make("b", {}, "The model was changed for this page: "), `${changed.join("; ")}.`)))] : [];
    const origin = serialize(make("div", { class: "view" }, make("p", { class: "hint" }, `Made with Regard: ${location.href}`)));
    // As text: an element with styles would need the permission of this page's security policy.
    return ["<!doctype html>", "<html lang=\"en\">", "<head>", ...metadata, title, `<style>${sheets.join("\n")}\n${INACTIVE_STYLE}</style>`, "</head>", "<body>",
      ...changeNote, serialize(copy), origin, "</body>", "</html>", ""].join("\n");
  }

  function updateMenu() {
    const selected = part.value;
    part.replaceChildren(...elements().map(([name]) => make("option", { value: name }, name)));
    part.value = [...part.options].some(({ value }) => value === selected) ? selected : WHOLE_VIEW;
    buttons.get("gif").hidden = !currentView()?.animation?.();
    status.textContent = "";
  }

  root.addEventListener("toggle", () => root.open && updateMenu());
  document.addEventListener("click", (event) => {
    if (root.open && !root.contains(event.target)) root.open = false;
  });
  root.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !root.open) return;
    root.open = false;
    summary.focus();
  });
  return {
    root,
    close() {
      root.open = false;
      cancel();
    },
  };
}

// The pixels of a canvas in a frame of this size.
function fit(canvas, scale, { width, height }) {
  const frame = document.createElement("canvas");
  [frame.width, frame.height] = [Math.round(width * scale), Math.round(height * scale)];
  const context = frame.getContext("2d", { willReadFrequently: true });
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, frame.width, frame.height);
  context.drawImage(canvas, 0, 0);
  return context.getImageData(0, 0, frame.width, frame.height);
}

// Makes a control of a copy do nothing, without the look of a disabled one.
function setInactive(control) {
  control.setAttribute("aria-disabled", "true");
  control.setAttribute("tabindex", -1);
  if (control instanceof HTMLButtonElement) control.setAttribute("type", "button");
}

function freeze(copy, { value, checked, selectedIndex }) {
  setInactive(copy);
  if (copy instanceof HTMLTextAreaElement) copy.setAttribute("readonly", "");
  if (copy instanceof HTMLTextAreaElement) copy.textContent = value;
  else if (copy instanceof HTMLSelectElement) [...copy.options].forEach((option, i) => option.toggleAttribute("selected", i === selectedIndex));
  else copy.setAttribute("value", value);
  if (copy.type === "checkbox" || copy.type === "radio") copy.toggleAttribute("checked", checked);
}

const serialize = (element) => new XMLSerializer().serializeToString(element);

function toDataUrl(image) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.naturalWidth || 1, image.naturalHeight || 1];
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas.toDataURL();
}

function download(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return `${name}, ${Math.max(1, Math.round(blob.size / 1000)).toLocaleString("en")} kB, is saved.`;
}
