// Updates the page's URL. Browsers limit how often the history may change (WebKit: 100 times in 30 s, then it throws), and
// a view changes its URL with every keystroke. So changes are batched, and a rejected change is retried later. Updating
// the URL never throws: the page works even if its URL cannot change.

const INTERVAL_MS = 320; // minimum time between two changes: at most 94 in 30 s
const RETRY_MS = 5000; // delay after a change that the browser rejected

// The hash of a view and its options; options without a value are left out.
export function createHash(view, options) {
  const given = Object.entries(options).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#/${view}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

export function createUrlUpdater() {
  let pending = null; // the hash that the URL should have
  let timer = null;
  let lastChange = -Infinity;

  function apply(push) {
    clearTimeout(timer);
    timer = null;
    if (pending === null || pending === location.hash) return true;
    lastChange = performance.now();
    try {
      history[push ? "pushState" : "replaceState"](null, "", pending);
      return true;
    } catch {
      timer = setTimeout(apply, RETRY_MS, false);
      return false;
    }
  }

  // A new history entry is added at once; a replacement of the current entry may be delayed.
  function set(hash, { push = false } = {}) {
    if (push) {
      if (timer !== null) apply(false);
      pending = hash;
      return apply(true);
    }
    pending = hash;
    if (timer === null) timer = setTimeout(apply, Math.max(0, lastChange + INTERVAL_MS - performance.now()), false);
    return true;
  }

  // Discards pending changes after the user has navigated.
  function cancel() {
    clearTimeout(timer);
    timer = null;
    pending = null;
  }

  // Pending changes are applied before a link is followed or the page is left.
  const flush = () => timer !== null && apply(false);
  addEventListener("click", flush, { capture: true });
  addEventListener("pagehide", flush);
  return { set, cancel };
}
