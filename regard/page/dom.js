// Helpers for DOM elements and labels. Text is only ever set as text, never as HTML.

export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children); // strings become text nodes
  return element;
}

export function capitalize(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}`;
}

const MIN_PERCENT = 0.001; // smaller ones are not worth their digits

export function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < MIN_PERCENT) return `< ${MIN_PERCENT}%`;
  return `${Number(value < 1 ? value.toFixed(3) : value.toPrecision(3))}%`;
}

export function truncate(text, maxLength) {
  const characters = [...text];
  return characters.length > maxLength ? `${characters.slice(0, maxLength - 1).join("")}…` : text;
}

export function clampIndex(index, list) {
  return Math.max(0, Math.min(list.length - 1, index));
}

// Makes a token visible that would not be: an empty one, or a combining mark.
export function visibleToken(token) {
  return token === "" ? "∅" : /^\p{M}/u.test(token) ? `◌${token}` : token;
}

// Makes spaces and invisible characters of a text visible.
export function visibleText(text) {
  const signs = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍" };
  const shown = text.replace(/[\p{C}\p{Z}]/gu, (c) => signs[c] ?? `\\u{${c.codePointAt(0).toString(16)}}`);
  return visibleToken(shown);
}

// Says how something is selected with the devices that there are, and what is shown then.
export function pointingHint(what, shows, action = "Hover over") {
  if (matchMedia("(hover: none)").matches) return `Tap ${what} to see ${shows}.`;
  return `${action} ${what}, or select one with Tab and the arrow keys, to see ${shows}.`;
}

// Fades the edges of a scrollable box where there is more to see.
export function addScrollFade(box) {
  const update = () => {
    const { scrollLeft, scrollTop, clientWidth, clientHeight, scrollWidth, scrollHeight } = box;
    box.classList.toggle("more-left", scrollLeft > 1);
    box.classList.toggle("more-right", scrollLeft + clientWidth < scrollWidth - 1);
    box.classList.toggle("more-above", scrollTop > 1);
    box.classList.toggle("more-below", scrollTop + clientHeight < scrollHeight - 1);
  };
  const observer = new ResizeObserver(update);
  for (const element of [box, ...box.children]) observer.observe(element);
  box.addEventListener("scroll", update, { passive: true });
  box.classList.add("scroll-fade");
  return box;
}

// Scrolls a box, but nothing around it, so that one of its elements is visible.
export function scrollWithin(box, element) {
  const [outer, inner] = [box, element].map((each) => each.getBoundingClientRect());
  if (inner.top < outer.top) box.scrollTop -= outer.top - inner.top + inner.height;
  else if (inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom + inner.height;
}

// Scrolls a box, but nothing around it, so that one of its elements is in the middle, unless it is visible already.
export function scrollToMiddle(box, element) {
  const [outer, inner] = [box, element].map((each) => each.getBoundingClientRect());
  if (inner.top < outer.top || inner.bottom > outer.bottom) box.scrollTop += (inner.top + inner.bottom - outer.top - outer.bottom) / 2;
}

// Moves the focus with the arrow keys, Home and End among buttons of which Tab reaches one. In a single column the left
// and right arrows move to `otherList`, if given.
export function moveFocus(event, buttons, columns, otherList) {
  const list = [...buttons];
  const index = list.indexOf(event.target);
  const steps = { ArrowUp: -columns, ArrowDown: columns, Home: -index, End: list.length - 1 - index };
  if (columns > 1) Object.assign(steps, { ArrowLeft: -1, ArrowRight: 1 });
  const isSideways = columns === 1 && otherList && (event.key === "ArrowLeft" || event.key === "ArrowRight");
  if (index < 0 || !(Object.hasOwn(steps, event.key) || isSideways)) return;
  event.preventDefault();
  if (isSideways) otherList.children[clampIndex(index, otherList.children)].focus();
  else list[index + steps[event.key]]?.focus();
}
