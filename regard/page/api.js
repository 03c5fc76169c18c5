// Questions to the server: one at a time for each view, waiting and refusals told in plain words.

import { make } from "./parts.js";

const SOON = 300; // milliseconds that an answer may take before we say that we wait
const GONE = "The server does not answer. Is “regard serve” still running?";

class Refused extends Error {
  constructor(message, status = 0, wait = 1) {
    super(message);
    Object.assign(this, { status, wait });
  }
}

async function ask(path, body, signal) {
  const token = sessionStorage.getItem("token");
  const headers = { ...(body && { "Content-Type": "application/json" }), ...(token && { Authorization: `Bearer ${asBytes(token)}` }) };
  const answer = await fetch(path, { ...(body && { method: "POST", body: JSON.stringify(body) }), headers, signal }).catch((error) => {
    throw signal?.aborted ? error : new Refused(GONE);
  });
  const told = await answer.json().catch(() => null);
  if (answer.ok && told !== null) return told;
  const reason = told?.error?.message ?? told?.error ?? `The server answered ${answer.status} and did not say why.`;
  throw new Refused(`${reason}`, answer.status, Number(answer.headers.get("Retry-After")) || 1);
}

// A place for what there is to say of the server, and questions asked through it: `question(path, body)` gives the answer,
// null where it was refused, which the place then tells, or undefined where a newer question was asked meanwhile.
export function questions(again) {
  const place = make("div", { class: "notice", role: "status" });
  let current = null;

  function say(kind, text, ...more) {
    place.className = `notice notice-${kind}`;
    place.replaceChildren(...(text ? [make("span", {}, text)] : []), ...more);
  }

  function refuse(error) {
    if (error.status === 401) return say("wrong", "This server asks for a token.", tokenForm(again));
    const button = make("button", { type: "button" }, "Try again");
    button.addEventListener("click", again);
    say("wrong", error.message, ...(error.status === 0 || error.status >= 500 ? [button] : []));
  }

  async function question(path, body) {
    current?.abort();
    const { signal } = (current = new AbortController());
    const slow = setTimeout(() => !signal.aborted && say("wait", "Waiting for the model …"), SOON);
    try {
      for (;;) {
        const told = await ask(path, body, signal).catch((error) => error);
        if (signal.aborted) return undefined;
        clearTimeout(slow);
        if (!(told instanceof Error)) {
          say("none");
          return told;
        }
        if (told.status !== 429) {
          refuse(told);
          return null;
        }
        say("wait", `The server is busy: asking again in ${told.wait} s.`);
        await new Promise((done) => setTimeout(done, 1000 * told.wait));
        if (signal.aborted) return undefined;
      }
    } finally {
      clearTimeout(slow);
    }
  }

  function drop() {
    current?.abort();
    say("none");
  }

  return { place, question, drop, say };
}

// A header's characters are bytes: what is not ASCII is sent as UTF-8, which is what the server expects.
function asBytes(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

// The token is kept for as long as this tab is open.
function tokenForm(again) {
  const field = make("input", { type: "password", autocomplete: "off", "aria-label": "Token" });
  const form = make("form", { class: "tools" }, field, make("button", { type: "submit" }, "Use it"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", field.value.trim());
    again();
  });
  return form;
}
