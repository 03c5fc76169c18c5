// The steps of decoding: a slider over them, which can play, and what else the model might have written at each.

import { bars } from "./bars.js";
import { make, standing } from "./parts.js";

const PAUSE = 900; // milliseconds that a step is shown while playing

export function stepping(steps, moved) {
  const slider = make("input", { type: "range", min: 1, max: steps.length, value: steps.length, "aria-label": "Step of decoding" });
  const play = make("button", { type: "button", class: "play" }, "▶ Play");
  const where = make("p", { class: "step-where" });
  const next = bars("The likeliest next tokens");
  const root = make("section", { class: "look-card steps", "aria-label": "Step by step" },
    make("h2", {}, "Step by step"), make("div", { class: "step-line" }, play, slider), where, next.list);
  let timer = null;

  function show(step) {
    const { token, top } = steps[step];
    slider.value = step + 1;
    slider.setAttribute("aria-valuetext", `step ${step + 1} of ${steps.length}: ${token}`);
    where.replaceChildren(`Step ${step + 1} of ${steps.length} writes `, make("b", {}, make("bdi", {}, standing(token))));
    next.show(top.map((each) => ({ token: standing(each.token), p: each.p })), standing(token));
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶ Play";
  }

  function toggle() {
    if (timer) return stop();
    play.textContent = "❚❚ Pause";
    if (slider.value === slider.max) moved(0);
    else moved(slider.value - 1);
    timer = setInterval(() => {
      moved(Number(slider.value));
      if (slider.value === slider.max) stop();
    }, PAUSE);
  }

  play.addEventListener("click", toggle);
  slider.addEventListener("input", () => {
    stop();
    moved(slider.value - 1);
  });
  show(steps.length - 1);
  return { root, show, close: stop };
}
