// What an element looks like, as one SVG that any program opens: texts stay texts, lines stay lines, and heat maps, which are
// canvases, become embedded images. `elementToSvg(element)` reads positions and styles as the browser has laid them out.

const NAMESPACE = "http://www.w3.org/2000/svg";
const SVG_STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity",
  "font-family", "font-size", "font-weight", "font-style", "text-anchor"];
const measuring = document.createElement("canvas").getContext("2d");

function node(tag, attributes = {}, text = null) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, typeof value === "number" ? Number(value.toFixed(2)) : value);
  if (text !== null) element.textContent = text;
  return element;
}

const isVisible = (colour) => colour !== "transparent" && !/^rgba\(.*, 0\)$/.test(colour);

// Copies an element as an SVG document: its width and height in pixels, and the text of the document.
export function elementToSvg(element) {
  const box = element.getBoundingClientRect();
  const [width, height] = [Math.ceil(box.width), Math.ceil(box.height)];
  const root = node("svg", { xmlns: NAMESPACE, width, height, viewBox: `0 0 ${width} ${height}` });
  root.append(node("title", {}, document.title), node("desc", {}, location.href));
  root.append(node("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor }));
  const copy = { origin: box };
  copyElement(element, root, copy);
  return { width, height, text: new XMLSerializer().serializeToString(root) };
}

function copyElement(element, parent, copy) {
  const style = getComputedStyle(element);
  if (style.display === "none" || style.visibility === "hidden" || element.matches(".skip, noscript, script, [data-not-exported]")) return;
  const box = relativeBox(element.getBoundingClientRect(), copy);
  const isHidden = box.width <= 1 && box.height <= 1 && style.overflow !== "visible"; // for screen readers only
  if (isHidden) return;
  const opacity = Number(style.opacity);
  const group = opacity < 1 ? node("g", { opacity }) : parent;
  if (group !== parent) parent.append(group);
  drawBox(group, box, style);
  drawShadows(group, box, style);
  drawContent(group, element, box, style, copy);
  drawOutline(group, box, style);
  drawStrike(group, element, box);
}

function drawContent(group, element, box, style, copy) {
  if (element instanceof HTMLCanvasElement) return drawCanvas(group, element, box, style);
  if (element instanceof HTMLImageElement) return drawImage(group, element, box);
  if (element instanceof SVGSVGElement) return drawSvg(group, element, box);
  if (element.matches("input, textarea, select, progress")) return drawControl(group, element, box, style);
  const target = clipped(element, group, box, style);
  for (const child of element.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) drawText(target, child, style, copy);
    else if (child.nodeType === Node.ELEMENT_NODE) copyElement(child, target, copy);
  }
  if (element instanceof HTMLQuoteElement && element.tagName === "Q") drawQuotes(target, element, style, copy);
}

// The quotation marks of a quotation, which are not part of its text.
function drawQuotes(parent, element, style, { origin }) {
  const rects = [...element.getClientRects()];
  if (!rects.length) return;
  setFont(style);
  const ascent = measuring.measureText("x").fontBoundingBoxAscent;
  const [first, last] = [rects[0], rects.at(-1)];
  for (const [mark, x, y] of [["“", first.left, first.top], ["”", last.right - measuring.measureText("”").width, last.top]]) {
    parent.append(node("text", { x: x - origin.left, y: y - origin.top + ascent, ...fontOf(style) }, mark));
  }
}

function relativeBox({ left, top, width, height }, { origin }) {
  return { x: left - origin.left, y: top - origin.top, width, height };
}

// A part of the drawing that hides what an element with scroll bars hides.
function clipped(element, parent, box, style) {
  const isCut = element.scrollWidth > element.clientWidth + 1 || element.scrollHeight > element.clientHeight + 1;
  if (!isCut || style.overflow === "visible" || element === document.body) return parent;
  const group = node("svg", { ...box, viewBox: `${box.x} ${box.y} ${box.width} ${box.height}` }); // shows only what is inside
  parent.append(group);
  return group;
}

function drawBox(parent, box, style) {
  const radius = Math.min(parseFloat(style.borderTopLeftRadius) || 0, box.height / 2, box.width / 2);
  const sides = ["Top", "Right", "Bottom", "Left"].map((side) => ({
    width: style[`border${side}Style`] === "none" ? 0 : parseFloat(style[`border${side}Width`]),
    colour: style[`border${side}Color`],
  }));
  const share = style.backgroundImage.startsWith("linear-gradient") ? Number.parseFloat(style.getPropertyValue("--p")) : NaN;
  if (!Number.isNaN(share)) { // a bar, filled up to a share
    for (const [part, variable] of [[1, "--edge"], [share, "--line"]]) {
      parent.append(node("rect", { ...box, width: Math.max(0, box.width * part), rx: radius, fill: style.getPropertyValue(variable) }));
    }
  }
  const [{ width, colour }] = sides;
  const isFrame = width > 0 && isVisible(colour) && sides.every((side) => side.width === width && side.colour === colour);
  const inset = isFrame ? width / 2 : 0;
  if (isVisible(style.backgroundColor) || isFrame) {
    const fill = isVisible(style.backgroundColor) ? style.backgroundColor : "none";
    parent.append(node("rect", {
      x: box.x + inset, y: box.y + inset, width: Math.max(0, box.width - 2 * inset), height: Math.max(0, box.height - 2 * inset), rx: radius, fill,
      ...(isFrame && { stroke: colour, "stroke-width": width }),
    }));
  }
  if (isFrame) return;
  const [right, bottom] = [box.x + box.width, box.y + box.height];
  const ends = [[box.x, box.y, right, box.y], [right, box.y, right, bottom], [box.x, bottom, right, bottom], [box.x, box.y, box.x, bottom]];
  sides.forEach((side, i) => {
    if (!side.width || !isVisible(side.colour)) return;
    const [x1, y1, x2, y2] = ends[i];
    parent.append(node("line", { x1, y1, x2, y2, stroke: side.colour, "stroke-width": side.width }));
  });
}

// Shadows without blur, which are used as lines: around a box, inside it, or along its lower edge.
function drawShadows(parent, box, style) {
  for (const { colour, dx, dy, spread, isInset } of sharpShadows(style.boxShadow)) {
    const radius = Math.min(parseFloat(style.borderTopLeftRadius) || 0, box.height / 2, box.width / 2);
    if (!dx && !dy && spread > 0) drawFrame(parent, box, { colour, width: spread, offset: isInset ? -spread : 0, radius });
    else if (isInset && !dx && dy < 0) parent.append(node("rect", { x: box.x - spread, y: box.y + box.height + dy - spread, width: Math.max(0, box.width + 2 * spread), height: -dy + spread, fill: colour }));
  }
}

// Parses the computed value of box-shadow: a colour, four lengths and possibly "inset" for each shadow.
function sharpShadows(text) {
  return text.split(/,(?![^(]*\))/).flatMap((shadow) => {
    const lengths = shadow.match(/-?[\d.]+px/g)?.map(parseFloat);
    if (lengths?.length !== 4 || lengths[2] > 0) return [];
    const colour = shadow.replace(/-?[\d.]+px|inset/g, "").trim();
    return isVisible(colour) ? [{ colour, dx: lengths[0], dy: lengths[1], spread: lengths[3], isInset: shadow.includes("inset") }] : [];
  });
}

function drawOutline(parent, box, style) {
  const width = style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth);
  const radius = parseFloat(style.borderTopLeftRadius) || 0;
  if (width > 0 && isVisible(style.outlineColor)) drawFrame(parent, box, { colour: style.outlineColor, width, offset: parseFloat(style.outlineOffset), radius });
}

// A line of this width around a box, `offset` pixels away from it, or inside it if negative.
function drawFrame(parent, box, { colour, width, offset, radius }) {
  const distance = offset + width / 2;
  parent.append(node("rect", {
    x: box.x - distance, y: box.y - distance, width: Math.max(0, box.width + 2 * distance), height: Math.max(0, box.height + 2 * distance),
    rx: Math.max(0, radius + distance), fill: "none", stroke: colour, "stroke-width": width,
  }));
}

// The diagonal line over a head that is silenced, which is a pseudo-element.
function drawStrike(parent, element, box) {
  if (!element.matches(".attention-silenced")) return;
  const inset = parseFloat(getComputedStyle(element, "::after").left) + parseFloat(getComputedStyle(element).borderLeftWidth);
  const stroke = getComputedStyle(element).getPropertyValue("--mark");
  parent.append(node("line", { x1: box.x + inset, y1: box.y + inset, x2: box.x + box.width - inset, y2: box.y + box.height - inset, stroke, "stroke-width": 2 }));
}

function drawCanvas(parent, canvas, box, style) {
  if (!canvas.width || !canvas.height) return;
  const isPixels = style.imageRendering === "pixelated";
  const image = node("image", { ...box, href: (isPixels ? enlarge(canvas) : canvas).toDataURL(), preserveAspectRatio: "none" });
  parent.append(image);
}

// Small heat maps are enlarged, because many programs smooth the pixels of an image.
function enlarge(canvas) {
  const factor = Math.max(1, Math.ceil(200 / Math.max(canvas.width, canvas.height)));
  const large = document.createElement("canvas");
  [large.width, large.height] = [canvas.width * factor, canvas.height * factor];
  const context = large.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, 0, 0, large.width, large.height);
  return large;
}

function drawImage(parent, image, box) {
  if (!image.complete || !image.naturalWidth) return;
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
  canvas.getContext("2d").drawImage(image, 0, 0);
  parent.append(node("image", { ...box, href: canvas.toDataURL() }));
}

// A copy of an SVG whose styles, which come from style sheets, are attributes.
function drawSvg(parent, svg, box) {
  const copy = svg.cloneNode(true);
  const [originals, copies] = [[...svg.querySelectorAll("*")], [...copy.querySelectorAll("*")]];
  originals.forEach((original, i) => {
    const style = getComputedStyle(original);
    if (style.visibility === "hidden" || style.display === "none") copies[i].setAttribute("display", "none");
    for (const name of SVG_STYLES) copies[i].setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "tabindex", "role"]) copies[i].removeAttribute(name);
  });
  for (const [name, value] of Object.entries(box)) copy.setAttribute(name, value);
  for (const name of ["class", "role", "style"]) copy.removeAttribute(name);
  parent.append(copy);
}

function fontOf(style) {
  return { "font-family": style.fontFamily, "font-size": style.fontSize, "font-weight": style.fontWeight, "font-style": style.fontStyle, fill: style.color };
}

function setFont(style) {
  measuring.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
}

// Each line of a text, at the position of its first word and with the width that it has on the page.
function drawText(parent, textNode, style, copy) {
  if (!textNode.data.trim()) return;
  setFont(style);
  const ascent = measuring.measureText("x").fontBoundingBoxAscent;
  const range = document.createRange();
  const lines = [];
  for (const { 0: word, index } of textNode.data.matchAll(/\S+/g)) {
    range.setStart(textNode, index);
    range.setEnd(textNode, index + word.length);
    for (const rect of pieces(range, textNode, index, word)) {
      const last = lines.at(-1);
      if (last && Math.abs(last.top - rect.top) < 3 && rect.left >= last.right - 1) Object.assign(last, { text: `${last.text} ${rect.text}`, right: rect.right });
      else lines.push({ ...rect });
    }
  }
  const decoration = textDecoration(textNode.parentElement);
  for (const { text, left, top, right } of lines) {
    if (right - left < 0.5) continue;
    if (decoration) drawDecoration(parent, decoration, { x1: left - copy.origin.left, x2: right - copy.origin.left, baseline: top - copy.origin.top + ascent }, style);
    parent.append(node("text", { x: left - copy.origin.left, y: top - copy.origin.top + ascent, ...fontOf(style), textLength: right - left, lengthAdjust: "spacingAndGlyphs" }, text));
  }
}

// The decoration of a text: its own, or that of an element around it, which the text does not inherit but shows.
function textDecoration(element) {
  for (let each = element; each && each !== document.body; each = each.parentElement) {
    const style = getComputedStyle(each);
    if (style.textDecorationLine !== "none") return style;
    if (style.display.startsWith("inline-") || style.position === "absolute") return null; // decorations end there
  }
  return null;
}

// Lines through or under a line of text.
function drawDecoration(parent, decoration, { x1, x2, baseline }, { fontSize }) {
  const size = parseFloat(fontSize);
  const heights = { "line-through": baseline - 0.28 * size, underline: baseline + (parseFloat(decoration.textUnderlineOffset) || 0.12 * size) };
  const width = parseFloat(decoration.textDecorationThickness) || Math.max(1, size / 16);
  for (const name of decoration.textDecorationLine.split(" ")) {
    const y = heights[name];
    if (y === undefined) continue;
    parent.append(node("line", { x1, y1: y, x2, y2: y, stroke: decoration.textDecorationColor, "stroke-width": width, ...(decoration.textDecorationStyle === "dotted" && { "stroke-dasharray": `${width} ${width}` }) }));
  }
}

// The rectangles of a word: more than one if it is broken over lines.
function pieces(range, textNode, index, word) {
  const rects = [...range.getClientRects()].filter(({ width }) => width > 0);
  if (rects.length <= 1) return rects.map(({ left, top, right }) => ({ text: word, left, top, right }));
  const letters = [];
  [...word].reduce((offset, letter) => {
    range.setStart(textNode, index + offset);
    range.setEnd(textNode, index + offset + letter.length);
    const { left, top, right } = range.getBoundingClientRect();
    const last = letters.at(-1);
    if (last && Math.abs(last.top - top) < 3) Object.assign(last, { text: last.text + letter, right });
    else letters.push({ text: letter, left, top, right });
    return offset + letter.length;
  }, 0);
  return letters;
}

// Form controls, whose content is not part of the document.
function drawControl(parent, control, box, style) {
  const accent = style.accentColor === "auto" ? style.color : style.accentColor;
  const middle = box.y + box.height / 2;
  if (control.type === "range" || control instanceof HTMLProgressElement) {
    const [low, high] = [Number(control.min ?? 0) || 0, Number(control.max)];
    const share = high > low ? (Number(control.value) - low) / (high - low) : 0;
    const isRange = control.type === "range";
    const colour = isRange ? accent : getComputedStyle(control).getPropertyValue("--run") || accent;
    for (const [width, fill] of [[box.width, "#8888"], [box.width * share, colour]]) parent.append(node("rect", { x: box.x, y: middle - 3, width, height: 6, rx: 3, fill }));
    if (isRange) parent.append(node("circle", { cx: box.x + 8 + share * (box.width - 16), cy: middle, r: 8, fill: accent }));
    return;
  }
  if (control.type === "checkbox" || control.type === "radio") {
    if (style.opacity === "0") return; // a label is shown instead
    parent.append(node("rect", { ...box, rx: control.type === "radio" ? box.width / 2 : 2, fill: control.checked ? accent : "none", stroke: accent }));
    return;
  }
  const text = control instanceof HTMLSelectElement ? control.selectedOptions[0]?.textContent ?? "" : control.value || control.placeholder || "";
  setFont(style);
  const { fontBoundingBoxAscent: ascent } = measuring.measureText("x");
  const lineHeight = parseFloat(style.lineHeight) || parseFloat(style.fontSize) * 1.4;
  const padding = parseFloat(style.paddingLeft) + parseFloat(style.borderLeftWidth);
  const top = control instanceof HTMLTextAreaElement ? box.y + parseFloat(style.paddingTop) : middle - lineHeight / 2;
  wrap(text, control instanceof HTMLTextAreaElement ? box.width - 2 * padding : Infinity).forEach((line, i) => {
    parent.append(node("text", { x: box.x + padding, y: top + i * lineHeight + (lineHeight - parseFloat(style.fontSize)) / 2 + ascent * 0.86, ...fontOf(style) }, line));
  });
}

function wrap(text, width) {
  return text.split("\n").flatMap((paragraph) => {
    const lines = [""];
    for (const word of paragraph.split(" ")) {
      const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
      if (measuring.measureText(longer).width > width && lines.at(-1)) lines.push(word);
      else lines[lines.length - 1] = longer;
    }
    return lines;
  });
}

// An SVG drawn on a canvas, `scale` pixels for each of its own.
export async function svgToCanvas({ width, height, text }, scale) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}
