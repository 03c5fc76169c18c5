// Writes the page's address. Browsers limit how often history may change (WebKit: 100 times in 30 s, then it throws), and
// a view changes its address with every key: changes are gathered, and one that is refused is tried again later. Writing
// the address never throws, so that what is seen does not depend on it.

const INTERVAL = 320; // milliseconds between two changes: at most 94 in 30 s
const RETRY = 5000; // milliseconds after a change that the browser refused

export function addressWriter() {
  let current = null; // the address as it should be
  let timer = null;
  let last = -Infinity; // when it was last changed

  function write(push) {
    clearTimeout(timer);
    timer = null;
    if (current === null || current === location.hash) return true;
    last = performance.now();
    try {
      history[push ? "pushState" : "replaceState"](null, "", current);
      return true;
    } catch {
      timer = setTimeout(write, RETRY, false);
      return false;
    }
  }

  // An address to come back to is added at once; one in place of the last may wait.
  function set(hash, { push = false } = {}) {
    if (push) {
      if (timer !== null) write(false);
      current = hash;
      return write(true);
    }
    current = hash;
    if (timer === null) timer = setTimeout(write, Math.max(0, last + INTERVAL - performance.now()), false);
    return true;
  }

  // The user went elsewhere: discard what was to be written.
  function drop() {
    clearTimeout(timer);
    timer = null;
    current = null;
  }

  // Before a link is followed or the page is left, what is still to be written is written.
  const flush = () => timer !== null && write(false);
  addEventListener("click", flush, { capture: true });
  addEventListener("pagehide", flush);
  return { set, drop };
}
