// Tints of words and tokens by their probability, which mean the same in all views: the less likely, the stronger.

import { make, percent } from "./dom.js";

const MIN_UNTINTED_PROBABILITY = 0.9; // probability from which nothing is tinted: training with label smoothing allows hardly more
const MIN_LIKELY_PROBABILITY = 0.5; // probability below which a word is underlined where colours are forced
const LEGEND_PROBABILITIES = [0.9, 0.5, 0.1, 0.01];

export function tint(element, probability) {
  element.style.setProperty("--doubt", Math.sqrt(Math.max(0, 1 - probability / MIN_UNTINTED_PROBABILITY))); // small doubts are visible, too
  element.classList.add("tint");
  element.classList.toggle("tint-unlikely", probability < MIN_LIKELY_PROBABILITY);
}

// A line with a tint for each of some probabilities.
export function createTintLegend() {
  const samples = LEGEND_PROBABILITIES.map((probability) => {
    const sample = make("span", {}, percent(probability));
    tint(sample, probability);
    return sample;
  });
  return make("p", { class: "tint-legend hint" }, "Tint by probability: ", ...samples);
}
