// Type, and the translation appears; what else the model might have said stands below.

import { questions } from "./api.js";
import { exampleButtons, growing, language, modelChoice } from "./choice.js";
import { make } from "./parts.js";

const PAUSE = 350; // milliseconds without a key before we ask

export function translate({ models, told }) {
  const able = models.filter((model) => model.translates);
  const model = modelChoice(able, () => changed(true));
  const { field, fit } = growing({ id: "source", rows: 3, placeholder: "Type a sentence" });
  const [from, to] = [make("label", { for: "source" }), make("h2", {})];
  const result = make("p", { class: "result", dir: "auto", "aria-live": "polite" });
  const copy = make("button", { type: "button" }, "Copy");
  const lookAt = make("a", { class: "button" }, "Look at this translation");
  const sure = make("span", { class: "look-hint" });
  const others = make("ol", { class: "others" });
  const otherCard = make("section", { class: "card", "aria-label": "Alternatives" }, make("h2", {}, "What else it might have said"), others,
    make("p", { class: "look-hint" }, "Ranked by the score: the sum of the tokens’ log-probabilities, which falls with every token, divided by a penalty that grows with the length. The nearer to 0, the better; the bar sets it beside the best."));
  const tries = make("p", { class: "tries" });
  const { place, question, drop } = questions(() => run());
  const tools = make("div", { class: "tools" }, copy, lookAt, sure);
  const root = make("div", { class: "view" },
    make("div", { class: "head" }, make("h1", {}, "Translate"), model.root),
    make("div", { class: "pair" },
      make("section", { class: "card", "aria-label": "Source" }, from, field, tries),
      make("section", { class: "card", "aria-label": "Translation" }, to, place, result, tools)),
    otherCard);
  let timer = null;

  function name() {
    const { source, target } = model.chosen();
    from.textContent = language(source, "Source");
    to.textContent = language(target, "Translation");
    field.lang = source ?? "";
    result.lang = target ?? "";
    tries.replaceChildren(...exampleButtons(source, (text) => {
      field.value = text;
      changed(true);
      field.focus();
    }));
  }

  function changed(push = false) {
    name();
    fit();
    told("translate", { model: model.chosen().name, source: field.value }, { push });
    clearTimeout(timer);
    drop(); // an answer to what stood there before is not to be shown
    mark(true);
    timer = setTimeout(run, push ? 0 : PAUSE);
  }

  async function run() {
    if (!field.value.trim()) {
      drop();
      return show([]);
    }
    mark(true);
    const answer = await question("/api/translate", { model: model.chosen().name, text: field.value });
    if (answer !== undefined) show(answer?.translations ?? []); // what was refused leaves nothing of the old answer
  }

  // Whether what is seen is of another text than the one that stands there.
  function mark(stale) {
    for (const each of [result, tools, otherCard]) each.classList.toggle("stale", stale);
  }

  function show(translations) {
    mark(false);
    const [best, ...rest] = translations;
    result.textContent = best?.text ?? "";
    tools.hidden = !best;
    otherCard.hidden = rest.length === 0;
    if (best) {
      lookAt.href = lookLink({ said: best.text });
      sure.replaceChildren(...scored(best));
    }
    others.replaceChildren(...rest.map((each) => alternative(each, translations)));
  }

  function lookLink(what) {
    const options = { model: model.chosen().name, source: field.value, ...what };
    return `#/look?${new URLSearchParams(options)}`;
  }

  function alternative({ text, ...scores }, [best]) {
    const share = Math.exp(scores.penalised - best.penalised);
    const bar = make("span", { class: "score-bar", "aria-hidden": "true" });
    bar.style.setProperty("--p", Math.min(1, share));
    const link = make("a", { href: lookLink({ target: text }), "aria-label": `Look at: ${text}` }, "look");
    return make("li", {}, make("span", { class: "other-text", dir: "auto", lang: result.lang }, text), make("span", { class: "score" }, bar, ...scored(scores)), link);
  }

  field.addEventListener("input", () => changed());
  copy.addEventListener("click", async () => {
    const done = await navigator.clipboard.writeText(result.textContent).then(() => "Copied", () => "Could not copy");
    copy.textContent = done;
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });

  if (!able.length) root.replaceChildren(make("h1", {}, "Translate"), make("p", {}, "None of the models served translates. “regard serve fr-en” serves the bundled translator from French."));
  return {
    root,
    close: () => {
      clearTimeout(timer);
      drop();
    },
    update(options) {
      if (!able.length) return;
      model.choose(options.get("model"));
      field.value = options.get("source") ?? "";
      name();
      requestAnimationFrame(fit);
      show([]);
      run();
    },
  };
}

// What ranks it, and what that is made of.
function scored({ score, penalised }) {
  return [`score ${signed(penalised)}`, make("small", {}, ` sum ${signed(score)}`)];
}

const signed = (score) => score.toFixed(2).replace("-", "−");
