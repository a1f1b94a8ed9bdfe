"use strict";
// Why it is optimal, and the path: what other strengths of the penalty give.

function renderOptimality(section, model) {
  const { optimality } = model;
  section.append(make("p", {}, optimality.proven));
  if (optimality.not_proven) section.append(make("p", {}, optimality.not_proven));
  if (!optimality.certificate) return;
  const { primal, dual, scope } = optimality.certificate;
  section.append(
    strip([
      [short(primal), "objective of this model"],
      [short(dual), "no read-out can be below this"],
      [bound(optimality.relative_gap), "gap, as a share of the objective"],
      [scope, "neurons that the proof is about"],
    ]),
  );
  if (!optimality.moments.length) {
    section.append(make("p", { class: "soft" }, optimality.source));
    return;
  }
  const lines = optimality.moments.flatMap((moment) => [
    { iterations: moment.iterations, value: moment.primal, kind: "objective" },
    { iterations: moment.iterations, value: Math.max(0, moment.dual), kind: "lower bound" },
  ]);
  section.append(
    chart(
      "Objective and lower bound meet",
      "Objective and lower bound against iterations of the solver",
      () => ({
        height: 290,
        grid: true,
        marginTop: 28,
        marginBottom: 36,
        x: {
          label: "iterations of the solver",
          type: "sqrt",
          ticks: optimality.moments.map((moment) => moment.iterations),
          tickFormat: "d",
        },
        y: { label: null, zero: true },
        marks: [
          Plot.ruleY([primal], { stroke: "currentColor", strokeDasharray: "4 3", strokeOpacity: 0.6 }),
          Plot.areaY(optimality.moments, {
            x: "iterations",
            y1: "primal",
            y2: (moment) => Math.max(0, moment.dual),
            fill: "currentColor",
            fillOpacity: 0.08,
          }),
          Plot.line(lines, {
            x: "iterations",
            y: "value",
            z: "kind",
            stroke: (line) => colourOf(line.kind === "objective" ? 2 : 0),
            strokeWidth: 2,
          }),
          Plot.dot(lines, {
            x: "iterations",
            y: "value",
            fill: (line) => colourOf(line.kind === "objective" ? 2 : 0),
            r: 3,
            title: (line) => `${line.kind} ${line.value.toPrecision(8)} after ${plural(line.iterations, "iteration")}`,
            tip: true,
          }),
          ...[
            [lines[0], -10],
            [lines[1], -10],
          ].map(([line, dy]) =>
            Plot.text([line], {
              x: "iterations",
              y: "value",
              text: "kind",
              dx: 12,
              dy,
              textAnchor: "start",
              fill: colourOf(line.kind === "objective" ? 2 : 0),
              fontWeight: 600,
            }),
          ),
        ],
      }),
      `${optimality.source} Where both meet, nothing is left to gain. The dashed line is the objective of this model.`,
    ),
  );
  section.append(
    make(
      "details",
      {},
      make("summary", {}, "The numbers of this figure"),
      table(
        "Certificates",
        ["iterations", "objective", "lower bound", "gap"],
        optimality.moments.map((moment) => [
          count(moment.iterations),
          moment.primal.toPrecision(10),
          moment.dual.toPrecision(10),
          bound(Math.max(0, moment.primal - moment.dual)),
        ]),
      ),
    ),
  );
}

function renderPath(section, model) {
  const { path } = model;
  if (!path.points.length) {
    section.append(make("p", { class: "soft" }, path.note));
    return;
  }
  const own = path.points.findIndex((point) => point.is_own);
  const score = model.is_classifier ? "accuracy" : "R²";
  section.append(
    make(
      "p",
      {},
      "A stronger L1 penalty usually reads fewer of the same neurons, which costs less energy. Each point is a " +
        "certified optimum of its own. Move the slider to compare.",
    ),
  );
  const slider = make("input", {
    type: "range",
    min: 0,
    max: path.points.length - 1,
    step: 1,
    value: own,
    id: `${model.key}-strength`,
    class: "wide",
  });
  const facts = make("div", { "aria-live": "polite" });
  const recipe = make("div", { class: "details" });
  const charts = [
    ["score", model.is_classifier ? "accuracy (%)" : score, false],
    ["n_neurons", "neurons read", false],
    ["relative_gap", "certified gap", true],
    ["energy", "energy per answer (nJ)", false],
  ].map(([key, label, isLog]) => pathChart(path, key, label, isLog, slider));
  const update = () => {
    const point = path.points[Number(slider.value)];
    facts.replaceChildren(
      strip([
        [
          model.is_classifier ? percent(point.score) : point.score.toFixed(3),
          score,
          `on ${plural(path.n_samples, "sequence")}`,
        ],
        [count(point.n_neurons), "neurons read"],
        [bound(point.relative_gap), "certified gap"],
        [joules(point.energy), "energy per answer", "arithmetic alone"],
      ]),
    );
    slider.setAttribute(
      "aria-valuetext",
      `strength ${short(point.l1_strength)}: ${score} ${short(point.score)}, ` + `${count(point.n_neurons)} neurons`,
    );
    charts.forEach((figure) => figure.afterDraw());
    recipe.replaceChildren(...describeStrength(model, point));
  };
  slider.addEventListener("input", update);
  const back = make(
    "button",
    {
      type: "button",
      onclick: () => {
        slider.value = own;
        update();
      },
    },
    "Back to this model",
  );
  section.append(
    make(
      "p",
      { class: "control" },
      make("label", { for: slider.id }, "Strength"),
      make("span", { class: "ends" }, "strong", slider, "weak"),
      back,
    ),
    facts,
    make("div", { class: "quarter" }, ...charts),
    recipe,
  );
  if (path.note) section.append(make("p", { class: "small soft" }, path.note));
  update();
}

function pathChart(path, key, label, isLog, slider) {
  const points = path.points.map((point, place) => ({
    place,
    value:
      key === "energy"
        ? 1e9 * point.energy
        : label === "accuracy (%)"
          ? 100 * point.score
          : isLog
            ? Math.max(point[key], 1e-16)
            : point[key],
    point,
  }));
  const [lowest, highest] = d3.extent(points, (point) => point.value);
  const margin = Math.abs(lowest) / 20 || 1;
  const flat = label === "accuracy (%)" ? [lowest - margin, Math.min(100, highest + margin)] : [lowest - margin, highest + margin];
  const figure = chart("", `${label} along the path`, () => ({
    height: 176,
    grid: true,
    marginLeft: 54,
    marginBottom: 36,
    x: { label: "← stronger · weaker →", ticks: 0 },
    y: {
      label,
      domain: lowest === highest && key === "score" ? flat : undefined,
      type: isLog ? "log" : "linear",
      zero: !isLog && key !== "score",
      ticks: isLog ? 3 : 4,
      tickFormat: isLog ? "~e" : "~s",
    },
    marks: [
      Plot.line(points, { x: "place", y: "value", stroke: colourOf(0) }),
      Plot.dot(points, {
        x: "place",
        y: "value",
        fill: (own) => (own.point.is_own ? colourOf(2) : colourOf(0)),
        r: (own) => (own.point.is_own ? 5 : 2.5),
      }),
    ],
  }));
  figure.afterDraw = () => {
    const drawn = figure.plot;
    if (!drawn) return;
    const chosen = points[Number(slider.value)];
    const x = drawn.scale("x").apply(chosen.place);
    const y = drawn.scale("y").apply(chosen.value);
    const svg = d3.select(drawn.tagName === "svg" ? drawn : drawn.querySelector("svg"));
    const marker = svg.selectAll("g.marker").data([1]).join("g").attr("class", "marker");
    marker
      .selectAll("line")
      .data([1])
      .join("line")
      .attr("x1", x)
      .attr("x2", x)
      .attr("y1", 15)
      .attr("y2", 140)
      .attr("stroke", "currentColor")
      .attr("stroke-opacity", 0.6);
    marker
      .selectAll("circle")
      .data([1])
      .join("circle")
      .attr("cx", x)
      .attr("cy", y)
      .attr("r", 6)
      .attr("fill", "none")
      .attr("stroke", "currentColor")
      .attr("stroke-width", 2);
  };
  return figure;
}

function describeStrength(model, point) {
  const { path } = model;
  if (point.is_own) return [make("p", {}, make("b", {}, "This is the model of this page."))];
  const strengths = { loss: path.loss, penalty: path.penalty, l1_strength: point.l1_strength };
  if (point.l2_strength) strengths.l2_strength = point.l2_strength;
  const kind = model.is_classifier ? "SpikingClassifier" : "SpikingRegressor";
  const options = Object.entries(strengths).map(
    ([name, value]) => `${name}=${typeof value === "string" ? `"${value}"` : value}`,
  );
  const code =
    `import cvxsnn as cs\n\nmodel = cs.load("model.safetensors")\nsame = model.proof_\n` +
    `sparse = cs.${kind}(witnesses=same.witnesses, readout="${model.readout}", ${options.join(", ")})\nsparse.fit(X, y)`;
  const state = make("span", { class: "small soft", role: "status" });
  const copy = make(
    "button",
    {
      type: "button",
      onclick: async () => {
        try {
          await navigator.clipboard.writeText(code);
          state.textContent = " copied";
        } catch {
          state.textContent = " select the text and copy it: the browser does not allow pages to do so";
        }
      },
    },
    "Copy",
  );
  const save = make(
    "button",
    {
      type: "button",
      onclick: () => {
        const url = URL.createObjectURL(new Blob([JSON.stringify(strengths, null, 2)], { type: "application/json" }));
        make("a", { href: url, download: "strength.json" }).click();
        URL.revokeObjectURL(url);
        state.textContent = " saved as strength.json";
      },
    },
    "Save this strength",
  );
  return [
    make("p", {}, make("b", {}, "To train this one"), ", read the same neurons at this strength:"),
    make("pre", { tabindex: "0", class: "code" }, make("code", {}, code)),
    make("p", {}, copy, " ", save, state),
  ];
}
