"use strict";
// Puts the sections together, for one model or for two side by side.

const SECTIONS = [
  ["quality", "What it does", renderQuality],
  ["optimality", "Why it is optimal", renderOptimality],
  ["path", "The path", renderPath],
  ["neurons", "Its neurons", renderNeurons],
  ["sequence", "One sequence", renderSequence],
  ["health", "Health", renderHealth],
  ["costs", "Cost", renderCosts],
];

PAGE.models.forEach((model, place) => {
  model.key = `model-${place}`;
  model.n_layers = model.health.layers.length;
  model.bySample = new Map(model.sequences.map((view) => [view.sample, view]));
  model.onSequence = () => {};
});

const waiting = [];
for (const [name, , render] of SECTIONS) {
  const section = document.getElementById(name);
  const holders = PAGE.models.map((model) => {
    const holder = make(
      "div",
      { class: "model" },
      PAGE.models.length > 1 ? make("p", { class: "model-name" }, model.name) : null,
    );
    waiting.push(() => render(holder, model));
    return holder;
  });
  section.append(make("div", { class: `models of-${holders.length}` }, ...holders));
}
if (PAGE.comparison) waiting.unshift(() => renderComparison(document.getElementById("comparison-body"), PAGE));

/** Render what is left, all at once or one section after the other, so that the page answers in between. */
function renderNext(all) {
  do {
    const next = waiting.shift();
    if (!next) break;
    next();
  } while (all);
  if (waiting.length) setTimeout(renderNext, 0, false);
  else document.documentElement.dataset.ready = "yes";
}

// Two models side by side show the same sequence.
if (PAGE.models.length > 1) {
  PAGE.models.forEach((model, place) => {
    model.onSequence = (sample) => {
      const other = PAGE.models[1 - place];
      const shown = document.getElementById(`${other.key}-choice`);
      if (other.showSequence && shown && shown.value !== `${sample}`) other.showSequence(sample);
    };
  });
}

const links = [...document.querySelectorAll("nav.sections a")];
links.forEach((link) => link.addEventListener("click", () => renderNext(true)));
window.addEventListener("beforeprint", () => renderNext(true));
const spy = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      links.forEach((link) => link.toggleAttribute("aria-current", link.hash === `#${entry.target.id}`));
    }
  },
  { rootMargin: "-30% 0px -60% 0px" },
);
document.querySelectorAll("main > section").forEach((section) => spy.observe(section));
renderNext(false);
if (location.hash) renderNext(true);
