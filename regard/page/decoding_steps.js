// The steps of decoding: a slider with a Play button, and the most likely tokens at each step.

import { make, visibleToken } from "./dom.js";
import { createBars } from "./probability_bars.js";

const STEP_MS = 900; // duration of a step while playing

export function createSteps(steps, onStep) {
  const slider = make("input", { type: "range", min: 1, max: steps.length, value: steps.length, "aria-label": "Decoding step" });
  const play = make("button", { type: "button", class: "play" }, "▶ Play");
  const position = make("p", { class: "step-where" });
  const bars = createBars("Most likely next tokens");
  const root = make("section", { class: "attention-card steps", "aria-label": "Step by step" },
    make("h2", {}, "Step by step"), make("div", { class: "step-line" }, play, slider), position, bars.list);
  let timer = null;

  function show(step) {
    const { token, top } = steps[step];
    slider.value = step + 1;
    slider.setAttribute("aria-valuetext", `step ${step + 1} of ${steps.length}: ${token}`);
    position.replaceChildren(`Step ${step + 1} of ${steps.length}: `, make("b", {}, make("bdi", {}, visibleToken(token))));
    bars.show(top.map((candidate) => ({ token: visibleToken(candidate.token), p: candidate.p })), visibleToken(token));
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶ Play";
  }

  function toggle() {
    if (timer) return stop();
    play.textContent = "❚❚ Pause";
    onStep(slider.value === slider.max ? 0 : slider.value - 1);
    timer = setInterval(() => {
      onStep(Number(slider.value));
      if (slider.value === slider.max) stop();
    }, STEP_MS);
  }

  play.addEventListener("click", toggle);
  slider.addEventListener("input", () => {
    stop();
    onStep(slider.value - 1);
  });
  show(steps.length - 1);
  return { root, show, close: stop };
}
