// Requests to the server: at most one at a time per view, with a notice for progress and errors.

import { make } from "./dom.js";

const NOTICE_DELAY_MS = 300; // time after which a slow request is announced
const UNREACHABLE = "The server does not respond. Is “regard serve” still running?";

class RequestError extends Error {
  constructor(message, status = 0, retryAfter = 1) {
    super(message);
    Object.assign(this, { status, retryAfter });
  }
}

// Answers requests in the page itself, for a page without a server: `respond(path, body, signal)` returns what the server would
// respond, or a promise of it, or throws an Error whose message is shown. It may stop once the signal is aborted.
export function answerRequestsWith(respond) {
  send = async (path, body, signal) => {
    await new Promise((resolve) => setTimeout(resolve)); // so that the browser can draw before a long computation
    return signal.aborted ? undefined : respond(path, body, signal);
  };
}

let send = fetchFromServer;

async function fetchFromServer(path, body, signal) {
  const token = sessionStorage.getItem("token");
  const headers = { ...(body && { "Content-Type": "application/json" }), ...(token && { Authorization: `Bearer ${utf8Bytes(token)}` }) };
  const response = await fetch(path, { ...(body && { method: "POST", body: JSON.stringify(body) }), headers, signal }).catch((error) => {
    throw signal?.aborted ? error : new RequestError(UNREACHABLE);
  });
  const content = await response.json().catch(() => null);
  if (response.ok && content !== null) return content;
  const reason = content?.error?.message ?? content?.error ?? `The server responded with status ${response.status}.`;
  throw new RequestError(`${reason}`, response.status, Number(response.headers.get("Retry-After")) || 1);
}

// Creates a notice and a function `request(path, body)`, which resolves to the response, to null if the request failed
// (the notice then shows the error), or to undefined if a newer request replaced it.
export function createRequests(retry) {
  const notice = make("div", { class: "notice", role: "status" });
  let current = null;

  function showNotice(kind, text, ...more) {
    notice.className = `notice notice-${kind}`;
    notice.replaceChildren(...(text ? [make("span", {}, text)] : []), ...more);
  }

  function showError(error) {
    if (error.status === 401) return showNotice("error", "This server requires a token.", tokenForm(retry));
    const button = make("button", { type: "button" }, "Try again");
    button.addEventListener("click", retry);
    showNotice("error", error.message, ...(error.status === 0 || error.status >= 500 ? [button] : []));
  }

  async function request(path, body) {
    current?.abort();
    const { signal } = (current = new AbortController());
    const slow = setTimeout(() => !signal.aborted && showNotice("wait", "Waiting for the model …"), NOTICE_DELAY_MS);
    try {
      for (;;) {
        const result = await send(path, body, signal).catch((error) => error);
        if (signal.aborted) return undefined;
        clearTimeout(slow);
        if (!(result instanceof Error)) {
          showNotice("none");
          return result;
        }
        if (result.status !== 429) {
          showError(result);
          return null;
        }
        showNotice("wait", `The server is busy. Retrying in ${result.retryAfter} s.`);
        await new Promise((resolve) => setTimeout(resolve, 1000 * result.retryAfter));
        if (signal.aborted) return undefined;
      }
    } finally {
      clearTimeout(slow);
    }
  }

  function cancel() {
    current?.abort();
    showNotice("none");
  }

  return { notice, request, cancel, showNotice };
}

// Header values are bytes: non-ASCII characters are sent as UTF-8, as the server expects.
function utf8Bytes(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

// The token is stored until the tab is closed.
function tokenForm(retry) {
  const field = make("input", { type: "password", autocomplete: "off", "aria-label": "Token" });
  const form = make("form", { class: "tools" }, field, make("button", { type: "submit" }, "Continue"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", field.value.trim());
    retry();
  });
  return form;
}
