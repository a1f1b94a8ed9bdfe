"use strict";
// What it does: accuracy, confusion matrix, calibration, hardest cases.

const MAX_CLASSES = 20;

function renderQuality(section, model) {
  const { quality } = model;
  const data = model.is_training ? "the training data" : "these data";
  const name = model.is_classifier ? "accuracy" : "R²";
  section.append(
    make(
      "p",
      {},
      model.is_classifier
        ? `${count(quality.score * quality.n_samples)} of ${plural(quality.n_samples, "sequence")} are answered correctly: ` +
            `${percent(quality.score, 2)}. Always answering with the largest class would give ${percent(quality.baseline)}.`
        : `R² is ${quality.score.toFixed(4)} on ${plural(quality.n_samples, "sequence")}: 1 is perfect, 0 is as good as the mean.`,
    ),
  );
  if (model.is_training) {
    section.append(
      make(
        "p",
        { class: "notice" },
        `This ${name} is on the data that the model was trained on. Expect less on new data.`,
      ),
    );
  }
  if (!model.is_classifier) {
    const points = quality.truth.map((truth, place) => ({ truth, predicted: quality.predicted[place] }));
    section.append(
      chart(
        "Predicted against true",
        `Predicted against true values of ${data}`,
        () => ({
          height: 320,
          grid: true,
          x: { label: "true" },
          y: { label: "predicted" },
          marks: [
            Plot.dot(points, { x: "truth", y: "predicted", r: 2, fill: colourOf(0), fillOpacity: 0.5 }),
            Plot.link([1], {
              x1: d3.min(quality.truth),
              y1: d3.min(quality.truth),
              x2: d3.max(quality.truth),
              y2: d3.max(quality.truth),
              stroke: "currentColor",
              strokeDasharray: "4 3",
            }),
          ],
        }),
        "On the dashed line, both are equal.",
      ),
    );
  } else {
    section.append(make("h3", {}, "Which class is confused with which"), confusion(model));
  }
  const columns = make("div", { class: "columns" });
  if (quality.calibration) columns.append(calibration(quality.calibration));
  else if (model.is_classifier)
    section.append(
      make(
        "p",
        { class: "soft" },
        "This model has scores and no probabilities, so its confidence cannot be compared with its accuracy.",
      ),
    );
  columns.append(
    make(
      "div",
      {},
      make("h3", {}, "Hardest cases"),
      make(
        "p",
        { class: "small soft" },
        model.is_classifier
          ? "Sequences with the most evidence against their class. Select one to see why."
          : "Sequences with the largest errors. Select one to see why.",
      ),
      thumbnails(model, quality.hardest),
    ),
  );
  section.append(columns);
}

function confusion(model) {
  const { quality } = model;
  const total = quality.confusion.map((row) => d3.sum(row));
  const mistakes = quality.confusion.map(
    (row, place) =>
      total[place] - row[place] + d3.sum(quality.confusion, (other, from) => (from === place ? 0 : other[place])),
  );
  let shown = d3.range(model.columns.length);
  if (shown.length > MAX_CLASSES) {
    shown = d3
      .sort(shown, (place) => -mistakes[place])
      .slice(0, MAX_CLASSES)
      .sort((a, b) => a - b);
  }
  const details = make("div", { class: "details", id: `${model.key}-cell` });
  const behind = new Map(quality.cells.map((cell) => [`${cell.truth} ${cell.predicted}`, cell]));
  let chosen = null;
  const open = (cell, button) => {
    if (chosen) chosen.setAttribute("aria-pressed", "false");
    chosen = button;
    button.setAttribute("aria-pressed", "true");
    details.replaceChildren(...describeCell(model, cell));
    announce(details.firstChild.textContent);
  };
  const buttons = new Map();
  const body = shown.map((truth) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, nameOf(model, truth)),
      ...shown.map((predicted) => {
        const number = quality.confusion[truth][predicted];
        const isRight = truth === predicted;
        const share = number / Math.max(1, total[truth]);
        const style = `--share:${Math.round(100 * Math.sqrt(share))}%`;
        const cell = behind.get(`${truth} ${predicted}`);
        if (!number || !cell)
          return make("td", { class: number ? "wrong" : "empty", style }, number ? count(number) : "·");
        const label = isRight
          ? `${plural(number, "sequence")} of ${quoted(model, truth)} answered correctly`
          : `${plural(number, "sequence")} of ${quoted(model, truth)} answered ${quoted(model, predicted)}`;
        const button = make(
          "button",
          {
            type: "button",
            "aria-label": label,
            title: label,
            "aria-pressed": "false",
            onclick: () => open(cell, button),
          },
          count(number),
        );
        buttons.set(cell, button);
        return make("td", { class: `${isRight ? "right" : "wrong"}${share > 0.3 ? " strong" : ""}`, style }, button);
      }),
      make("td", { class: "soft" }, percent(quality.confusion[truth][truth] / Math.max(1, total[truth]))),
    ),
  );
  const head = make(
    "tr",
    {},
    make("td", {}),
    ...shown.map((place) => make("th", { scope: "col" }, nameOf(model, place))),
    make("th", { scope: "col" }, "correct"),
  );
  const worst = quality.cells.find((cell) => cell.truth !== cell.predicted) || quality.cells[0];
  const matrix = make(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Confusion matrix" },
    make(
      "table",
      { class: `confusion${shown.some((place) => nameOf(model, place).length > 3) ? " long" : ""}` },
      make("thead", {}, head),
      make("tbody", {}, ...body),
    ),
  );
  if (buttons.has(worst)) open(worst, buttons.get(worst));
  const left =
    shown.length < model.columns.length
      ? make(
          "p",
          { class: "small soft" },
          `The ${MAX_CLASSES} classes with the most mistakes, of ${model.columns.length}.`,
        )
      : null;
  return make(
    "div",
    { class: "confusion-and-cell" },
    make(
      "div",
      {},
      matrix,
      left,
      make(
        "p",
        { class: "small soft" },
        "Rows are true classes, columns are answers. Select a cell to see the sequences behind it.",
      ),
    ),
    details,
  );
}

function describeCell(model, cell) {
  const truth = quoted(model, cell.truth);
  const predicted = quoted(model, cell.predicted);
  const isRight = cell.truth === cell.predicted;
  const parts = [
    make(
      "p",
      {},
      make(
        "b",
        {},
        isRight
          ? `${plural(cell.count, "sequence")} of ${truth} answered correctly`
          : `${plural(cell.count, "sequence")} of ${truth} answered ${predicted}`,
      ),
    ),
  ];
  if (!isRight) parts.push(...averages(model, cell));
  if (cell.drivers.length) {
    parts.push(
      make(
        "p",
        { class: "small" },
        `These neurons are the cause: they give more evidence for ${predicted} over ${truth} than they do on ` +
          `sequences of ${truth} that are answered correctly. The number is how much more, on average.`,
      ),
    );
    parts.push(
      make(
        "p",
        { class: "chips" },
        ...cell.drivers.map(([place, push]) =>
          make(
            "button",
            { type: "button", class: "chip", onclick: () => model.openNeuron(place) },
            `neuron ${unpack(model.neurons.number)[place] ?? place} `,
            make("b", {}, `+${short(push)}`),
          ),
        ),
      ),
    );
  }
  const nShown = onPage(model, cell.samples).length;
  const of = nShown < cell.count ? `, ${isRight ? "the hardest" : "the worst"} ${nShown} of them that differ` : "";
  parts.push(
    make("p", { class: "small soft" }, nShown ? `Sequences${of}:` : "None of them is on this page."),
    thumbnails(model, cell.samples),
  );
  return parts;
}

/** Return average inputs: of the mistakes, between those of both classes that are answered correctly. */
function averages(model, cell) {
  const right = (place) => model.quality.cells.find((own) => own.truth === place && own.predicted === place);
  const shown = [
    [right(cell.truth), `${quoted(model, cell.truth)}, right`],
    [cell, "these mistakes"],
    [right(cell.predicted), `${quoted(model, cell.predicted)}, right`],
  ].filter(([own]) => own && own.average);
  if (shown.length < 2) return [];
  const limits = d3.extent(shown.flatMap(([own]) => Array.from(unpack(own.average))));
  return [
    make("p", { class: "small" }, "Why: compare their inputs, on average, with those of right answers. Colours are stretched."),
    make(
      "div",
      { class: "thumbnails averages" },
      ...shown.map(([own, words]) =>
        make(
          "figure",
          {},
          heatMap(`Average inputs: ${words}`, (canvas) => paintInputs(canvas, own.average, limits)),
          make("figcaption", { class: "small" }, words),
        ),
      ),
    ),
  ];
}

function calibration(values) {
  const points = values.confidence.map((confidence, place) => ({
    confidence,
    accuracy: values.accuracy[place],
    count: values.count[place],
  }));
  return chart(
    "Does it know when it is right?",
    "Accuracy against confidence",
    () => ({
      height: 260,
      grid: true,
      marginBottom: 38,
      r: { range: [2, 14] },
      x: { label: "confidence", domain: [0, 100], percent: true },
      y: { label: "correct (%)", domain: [0, 100], percent: true },
      marks: [
        Plot.link([1], {
          x1: 0,
          y1: 0,
          x2: 1,
          y2: 1,
          stroke: "currentColor",
          strokeDasharray: "4 3",
          strokeOpacity: 0.6,
        }),
        Plot.line(points, { x: "confidence", y: "accuracy", stroke: colourOf(0) }),
        Plot.dot(points, {
          x: "confidence",
          y: "accuracy",
          r: "count",
          fill: colourOf(0),
          fillOpacity: 0.7,
          title: (point) =>
            `${plural(point.count, "answer")}: confidence ${percent(point.confidence)}, ` +
            `${percent(point.accuracy)} correct`,
          tip: true,
        }),
      ],
    }),
    `On the dashed line, confidence equals accuracy. The mean distance is ${percent(values.error)}. Larger dots stand for more answers.`,
  );
}
