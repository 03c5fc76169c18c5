// Small parts that every view is made of. Text is only ever set as text.

export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children); // strings become text nodes
  return element;
}

export function capital(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}`;
}

export function percent(share) {
  return `${Number((100 * share).toPrecision(3))} %`;
}

export function cut(text, most) {
  const characters = [...text];
  return characters.length > most ? `${characters.slice(0, most - 1).join("")}…` : text;
}

export function within(index, list) {
  return Math.max(0, Math.min(list.length - 1, index));
}

// A token that has no shape of its own gets one: nothing at all, or a mark that sits on the letter before it.
export function standing(token) {
  return token === "" ? "∅" : /^\p{M}/u.test(token) ? `◌${token}` : token;
}

// A piece of raw text with its spaces and all that cannot be seen made visible.
export function visible(text) {
  const signs = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍" };
  const seen = text.replace(/[\p{C}\p{Z}]/gu, (c) => signs[c] ?? `\\u{${c.codePointAt(0).toString(16)}}`);
  return standing(seen);
}

// A box that scrolls fades where it goes on.
export function fading(box) {
  const mark = () => {
    const { scrollLeft, scrollTop, clientWidth, clientHeight, scrollWidth, scrollHeight } = box;
    box.classList.toggle("look-more-left", scrollLeft > 1);
    box.classList.toggle("look-more-right", scrollLeft + clientWidth < scrollWidth - 1);
    box.classList.toggle("look-more-above", scrollTop > 1);
    box.classList.toggle("look-more-below", scrollTop + clientHeight < scrollHeight - 1);
  };
  const resized = new ResizeObserver(mark);
  for (const each of [box, ...box.children]) resized.observe(each);
  box.addEventListener("scroll", mark, { passive: true });
  box.classList.add("look-fading");
  return box;
}

// Scrolls a box, and nothing around it, to show one of its parts.
export function reveal(box, part) {
  const [outer, inner] = [box, part].map((each) => each.getBoundingClientRect());
  if (inner.top < outer.top) box.scrollTop -= outer.top - inner.top + inner.height;
  else if (inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom + inner.height;
}

// Arrow keys, Home and End among the buttons of a group, of which Tab reaches one; sideways to `other`, if there is one.
export function moveAmong(event, buttons, columns, other) {
  const list = [...buttons];
  const at = list.indexOf(event.target);
  const steps = { ArrowUp: -columns, ArrowDown: columns, Home: -at, End: list.length - 1 - at };
  if (columns > 1) Object.assign(steps, { ArrowLeft: -1, ArrowRight: 1 });
  const sideways = columns === 1 && other && (event.key === "ArrowLeft" || event.key === "ArrowRight");
  if (at < 0 || !(Object.hasOwn(steps, event.key) || sideways)) return;
  event.preventDefault();
  if (sideways) other.children[within(at, other.children)].focus();
  else list[at + steps[event.key]]?.focus();
}
