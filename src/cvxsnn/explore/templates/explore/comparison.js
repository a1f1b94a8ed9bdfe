"use strict";
// Two models side by side.

function renderComparison(section, page) {
  const [first, second] = page.models;
  const { comparison } = page;
  const score = first.is_classifier ? "accuracy" : "R²";
  const gap = (model) => (model.optimality.certificate ? bound(model.optimality.relative_gap) : "none");
  const rows = [
    [
      score,
      ...page.models.map((model) =>
        first.is_classifier ? percent(model.quality.score, 2) : model.quality.score.toFixed(4),
      ),
    ],
    [
      "mean distance of confidence and accuracy",
      ...page.models.map((model) => (model.quality.calibration ? percent(model.quality.calibration.error) : "–")),
    ],
    ["neurons read", ...page.models.map((model) => count(model.neurons.n_read))],
    ["certified gap", ...page.models.map(gap)],
    ["spikes per answer", ...page.models.map((model) => count(model.costs.spikes))],
    ["synaptic operations per answer", ...page.models.map((model) => count(model.costs.synaptic))],
    ["energy per answer", ...page.models.map((model) => joules(model.costs.targets[0].energy))],
    ["weights and parameters", ...page.models.map((model) => bytes(model.costs.n_bytes))],
  ];
  const details = make("div", { class: "details" });
  const titles = first.is_classifier
    ? ["both are right", `only ${first.name} is right`, `only ${second.name} is right`, "both are wrong"]
    : [`${first.name} is closer`, `${second.name} is closer`];
  const show = (kind) => {
    details.replaceChildren(
      make("p", {}, make("b", {}, `${plural(comparison.counts[kind], "sequence")}: ${titles[kind]}`)),
      thumbnails(first, comparison.samples[kind]),
      make("p", { class: "small soft" }, `Pictures say what ${first.name} answers. Select one to see both below.`),
    );
    announce(details.firstChild.textContent);
  };
  const cells = titles.map((title, kind) =>
    make("button", { type: "button", onclick: () => show(kind) }, `${count(comparison.counts[kind])}`),
  );
  const luck =
    comparison.p_value === null
      ? ""
      : ` If both were equally good, a difference at least as large would have a probability of ${short(comparison.p_value)} (sign test).`;
  section.append(
    table("The two models", ["", first.name, second.name], rows),
    make(
      "p",
      {},
      first.is_classifier
        ? `They give the same answer on ${percent(comparison.agreement)} of the sequences.${luck}`
        : `The correlation of their outputs is ${comparison.agreement.toFixed(4)}.`,
    ),
    make("div", { class: "outcomes" }, table("Who is right", titles, [cells])),
    details,
  );
  show(first.is_classifier && comparison.counts[1] ? 1 : 0);
  const points = page.models.flatMap((model) => model.path.points.map((point) => ({ ...point, model: model.name })));
  if (points.length) {
    section.append(
      chart(
        `${score} against neurons read`,
        `${score} against neurons read, for both models`,
        () => ({
          height: 260,
          grid: true,
          x: { type: "sqrt", label: "neurons read", ticks: 6 },
          marginBottom: 36,
          y: { label: score },
          color: { legend: true, domain: [first.name, second.name], range: [colourOf(0), colourOf(1)] },
          marks: [
            Plot.line(points, { x: "n_neurons", y: "score", stroke: "model", sort: "n_neurons" }),
            Plot.dot(points, { x: "n_neurons", y: "score", fill: "model", r: (point) => (point.is_own ? 5 : 2.5) }),
          ],
        }),
        "Large dots are the models themselves.",
      ),
    );
  }
}
