"use strict";
// One sequence: inputs, spikes, membranes and evidence over time, with a cursor that moves through all of them.

const MAX_LINES = 6;

function renderSequence(section, model) {
  const views = model.sequences;
  const kinds = model.is_classifier
    ? [
        ["all", "all"],
        ["wrong", "wrong answers"],
        ["right", "right answers"],
      ]
    : [["all", "all"]];
  const kind = select(`${model.key}-kind`, kinds);
  const choice = select(`${model.key}-choice`, []);
  const step = (by) => {
    const place = choice.selectedIndex + by;
    if (place >= 0 && place < choice.options.length) {
      choice.selectedIndex = place;
      draw();
    }
  };
  const before = make("button", { type: "button", "aria-label": "Previous sequence", onclick: () => step(-1) }, "‹");
  const after = make("button", { type: "button", "aria-label": "Next sequence", onclick: () => step(1) }, "›");
  const turn = make(
    "button",
    {
      type: "button",
      "aria-pressed": `${stepsRunDown}`,
      onclick: () => {
        stepsRunDown = !stepsRunDown;
        turn.setAttribute("aria-pressed", `${stepsRunDown}`);
        document.querySelectorAll(".thumbnail canvas, .card canvas, .heat.large").forEach((canvas) => canvas.redraw());
      },
    },
    "Turn small pictures",
  );
  const place = make("div", { id: `${model.key}-sequence`, tabindex: "-1" });
  const fill = () => {
    const shown = views.filter(
      (view) => kind.value === "all" || (view.truth === view.predicted) === (kind.value === "right"),
    );
    choice.replaceChildren(
      ...shown.map((view) => make("option", { value: view.sample }, `${view.sample}: ${verdict(model, view)}`)),
    );
    draw();
  };
  const draw = () => {
    const view = model.bySample.get(Number(choice.value));
    before.disabled = choice.selectedIndex <= 0;
    after.disabled = choice.selectedIndex >= choice.options.length - 1;
    place.replaceChildren(
      ...(view ? describeSequence(model, view) : [make("p", { class: "soft" }, "There are none on this page.")]),
    );
    if (view) model.onSequence(view.sample);
  };
  kind.addEventListener("change", fill);
  choice.addEventListener("change", draw);
  model.showSequence = (sample) => {
    if (!model.bySample.has(sample)) return;
    if (![...choice.options].some((option) => option.value === `${sample}`)) {
      kind.value = "all";
      fill();
    }
    choice.value = `${sample}`;
    draw();
  };
  model.openSequence = (sample) => {
    model.showSequence(sample);
    announce(`Sequence ${sample} is shown`);
    section.scrollIntoView({ block: "start" });
    place.focus({ preventScroll: true });
  };
  section.append(
    make("p", { class: "controls" }, labelled("Show ", kind), labelled("Sequence ", choice), before, after, turn),
    place,
  );
  const worst = model.quality.cells.find((cell) => cell.truth !== cell.predicted);
  const hardest = worst ? onPage(model, worst.samples)[0] : null;
  fill();
  if (hardest) model.showSequence(hardest.sample);
}

function describeSequence(model, view) {
  const nBins = view.evidence.shape[0];
  const last = Math.min(view.n_steps, nBins * view.bin);
  const evidence = unpack(view.evidence);
  const nColumns = view.evidence.shape[1];
  const at = (bin, column) => evidence[bin * nColumns + column];
  const parts = [
    make(
      "p",
      {},
      make("b", {}, `Sequence ${view.sample}`),
      `: ${verdict(model, view)}.`,
      view.settled === null
        ? ""
        : ` The answer is settled at step ${view.settled} of ${view.n_steps}: from there on, it does not change.`,
    ),
  ];
  const cursor = make("input", {
    type: "range",
    min: 0,
    max: nBins - 1,
    step: 1,
    value: nBins - 1,
    class: "wide",
    id: `${model.key}-step`,
    "aria-label": "Step",
  });
  const reading = make("p", { "aria-live": "off", class: "reading" });
  const final = d3.sort(d3.range(nColumns), (column) => -at(nBins - 1, column));
  const drawnColumns = [
    ...new Set([...(model.is_classifier ? [view.predicted, view.truth, view.rival] : []), ...final]),
  ].slice(0, MAX_LINES);
  const stepOf = (bin) => Math.min(last, (bin + 1) * view.bin);
  const panels = [
    inputPanel(model, view),
    rasterPanel(model, view),
    membranePanel(model, view),
    evidencePanel(model, view, drawnColumns, at, stepOf),
  ].filter((panel) => panel !== null);
  const update = () => {
    const bin = Number(cursor.value);
    const ranked = d3.sort(d3.range(nColumns), (column) => -at(bin, column));
    const values = ranked
      .slice(0, 4)
      .map((column) => `${nameOf(model, column)}: ${short(at(bin, column))}`)
      .join(", ");
    reading.textContent = `Step ${stepOf(bin)} of ${view.n_steps}: ${model.is_classifier ? `${quoted(model, ranked[0])} is ahead. Evidence: ` : ""}${values}.`;
    cursor.setAttribute("aria-valuetext", reading.textContent);
    panels.forEach((panel) => panel.mark(bin));
  };
  cursor.addEventListener("input", update);
  parts.push(
    make("p", { class: "control" }, make("label", { for: cursor.id }, "Step "), cursor),
    reading,
    make("div", { class: "panels-over-time" }, ...panels),
  );
  requestAnimationFrame(update);
  return parts;
}

/** Return a panel with a canvas whose columns are steps, and a line that marks one of them. */
function canvasPanel(title, caption, label, nBins, draw, rows = null) {
  const line = make("i", { class: "line" });
  const body = make("div", { class: "over-time" }, heatMap(label, draw, "heat stretched"), line);
  const names = rows ? make("div", { class: "row-names small" }, ...rows) : null;
  const panel = make(
    "figure",
    { class: "chart" },
    make("h3", {}, title),
    make("div", { class: "with-names" }, names, body),
    make("figcaption", { class: "small soft" }, caption),
  );
  panel.mark = (bin) => {
    line.style.left = `${(100 * (bin + 0.5)) / nBins}%`;
  };
  return panel;
}

function inputPanel(model, view) {
  const [nBins, nRows] = view.inputs.shape;
  const values = unpack(view.inputs);
  const rows =
    nRows === model.features.length
      ? `one row per input, ${model.features[0]} on top`
      : `${nRows} groups of ${model.features.length} inputs`;
  return canvasPanel(
    "What comes in",
    `Time runs to the right; ${rows}. ${darkScreen.matches ? "Lighter" : "Darker"} is higher.`,
    `Inputs of sequence ${view.sample}`,
    nBins,
    (canvas) => paint(canvas, nRows, nBins, (row, column) => values[column * nRows + row] / 255, sequential()),
  );
}

function rasterPanel(model, view) {
  const [nBins, nShown] = view.spikes.shape;
  if (!nShown) return null;
  const values = unpack(view.spikes);
  const places = unpack(view.neurons);
  const push = unpack(view.push);
  const number = unpack(model.neurons.number);
  const rival = model.is_classifier ? ` over ${quoted(model, view.rival)}` : "";
  const answer = model.is_classifier ? quoted(model, view.predicted) : "a higher output";
  const names = Array.from(places, (place, row) =>
    make(
      "button",
      {
        type: "button",
        class: push[row] < 0 ? "against" : "for",
        title: `neuron ${number[place]}: ${short(push[row])}`,
        onclick: () => model.openNeuron(place),
      },
      `${number[place]}`,
    ),
  );
  return canvasPanel(
    "Which neurons fire",
    `The neurons that decide, those that push most on top. Blue ones favour ${answer}${rival} on this sequence, ` +
      "red ones speak against it, compared with an average sequence. Select a number to see the neuron.",
    `Spikes of ${nShown} neurons on sequence ${view.sample}`,
    nBins,
    (canvas) => {
      const [blue, red] = [diverging()(0.9), diverging()(0.1)];
      const back = sequential()(0);
      const mixed = [d3.interpolateRgb(back, blue), d3.interpolateRgb(back, red)];
      const height = 6; // rows with a line between them
      canvas.width = nBins * 4;
      canvas.height = nShown * height;
      const context = canvas.getContext("2d");
      context.fillStyle = back;
      context.fillRect(0, 0, canvas.width, canvas.height);
      for (let row = 0; row < nShown; row += 1) {
        for (let bin = 0; bin < nBins; bin += 1) {
          const spikes = values[bin * nShown + row];
          if (!spikes) continue;
          context.fillStyle = mixed[push[row] < 0 ? 1 : 0](0.4 + (0.6 * spikes) / view.bin);
          context.fillRect(bin * 4 + 1, row * height, 2, height - 1);
        }
      }
    },
    names,
  );
}

function membranePanel(model, view) {
  if (!view.membranes || !view.membranes.shape[1]) return null;
  const [nBins, nShown] = view.membranes.shape;
  const values = unpack(view.membranes);
  const spikes = unpack(view.spikes);
  const number = unpack(model.neurons.number);
  const places = unpack(view.neurons);
  const choice = select(
    `${model.key}-membrane`,
    d3.range(nShown).map((row) => [`${row}`, `neuron ${number[places[row]]}`]),
  );
  const shown = { row: 0 };
  const figure = chart(
    "",
    "Membrane over time",
    () => {
      const points = d3
        .range(nBins)
        .map((bin) => ({
          step: Math.min(view.n_steps, (bin + 1) * view.bin),
          value: values[bin * nShown + shown.row],
          fires: spikes[bin * view.spikes.shape[1] + shown.row] > 0,
        }));
      return {
        height: 168,
        grid: true,
        marginLeft: 54,
        marginBottom: 36,
        x: { label: "step", tickFormat: "d" },
        y: { label: "membrane", ticks: 4 },
        marks: [
          Plot.ruleY([0], { stroke: colourOf(2), strokeDasharray: "4 3" }),
          Plot.line(points, { x: "step", y: "value", stroke: colourOf(4), strokeWidth: 1.5 }),
          Plot.dot(
            points.filter((point) => point.fires),
            { x: "step", y: "value", fill: colourOf(2), r: 3 },
          ),
        ],
      };
    },
    "A neuron fires (a dot) where its membrane reaches the dashed line, its threshold.",
  );
  const panel = make("div", {}, make("h3", {}, "Membrane of ", choice), figure);
  choice.addEventListener("change", () => {
    shown.row = Number(choice.value);
    figure.redraw();
  });
  panel.mark = markOf(figure, (bin) => Math.min(view.n_steps, (bin + 1) * view.bin), 132);
  return panel;
}

function evidencePanel(model, view, columns, at, stepOf) {
  const nBins = view.evidence.shape[0];
  const lines = columns.flatMap((column, place) =>
    d3.range(nBins).map((bin) => ({ step: stepOf(bin), value: at(bin, column), column, place })),
  );
  const wanted =
    { mean: "the rates so far", last: "the spikes of the step" }[model.readout] ||
    "the spikes so far; windows to come count as silent";
  const figure = chart(
    "How the evidence grows",
    "Evidence for the classes over time",
    () => ({
      height: 246,
      grid: true,
      marginLeft: 54,
      marginBottom: 36,
      x: { label: "step", tickFormat: "d" },
      y: { label: model.is_classifier ? "evidence" : "output" },
      marks: [
        view.settled === null ? null : Plot.ruleX([view.settled], { stroke: "currentColor", strokeDasharray: "4 3" }),
        Plot.line(lines, {
          x: "step",
          y: "value",
          z: "column",
          stroke: (line) => colourOf(line.place),
          strokeWidth: (line) => (line.column === view.predicted ? 3 : 1.5),
        }),
        nBins > 1 ? null : Plot.dot(lines, { x: "step", y: "value", fill: (line) => colourOf(line.place) }),
      ],
    }),
    `Computed from ${wanted}.${view.settled === null ? "" : " From the dashed line on, the answer does not change."}${model.is_classifier ? " ✓ is the right class." : ""}`,
  );
  figure.insertBefore(
    make(
      "p",
      { class: "legend small" },
      ...columns.map((column, place) =>
        make(
          "span",
          {},
          make("i", { style: `background:${colourOf(place)}` }),
          nameOf(model, column) +
            (column === view.predicted && model.is_classifier ? ", the answer" : "") +
            (model.is_classifier && column === view.truth ? " ✓" : ""),
        ),
      ),
    ),
    figure.place,
  );
  figure.mark = markOf(figure, stepOf, 212);
  return figure;
}

/** Return a function that marks a bin of a chart over time by a line. */
function markOf(figure, stepOf, bottom) {
  let current = null;
  const draw = () => {
    if (current === null || !figure.plot) return;
    const x = figure.plot.scale("x").apply(stepOf(current));
    const svg = d3.select(figure.plot.tagName === "svg" ? figure.plot : figure.plot.querySelector("svg"));
    svg
      .selectAll("line.cursor")
      .data([1])
      .join("line")
      .attr("class", "cursor")
      .attr("x1", x)
      .attr("x2", x)
      .attr("y1", 15)
      .attr("y2", bottom)
      .attr("stroke", "currentColor")
      .attr("stroke-opacity", 0.55);
  };
  figure.afterDraw = draw;
  return (bin) => {
    current = bin;
    draw();
  };
}
