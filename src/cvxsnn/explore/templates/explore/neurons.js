"use strict";
// Its neurons: what each reads, when it fires and what it says; sorted and filtered.

const CARDS = 24;

function renderNeurons(section, model) {
  const { neurons } = model;
  const of = neurons.is_selection
    ? ", selected from a larger sample,"
    : neurons.n_sampled === null
      ? ""
      : ` of ${count(neurons.n_sampled)}`;
  const what = model.is_classifier ? "of the same answers as all of them" : "of the variance of its outputs";
  section.append(
    make(
      "p",
      {},
      `${plural(neurons.n_read, "neuron")}${of} are read. The ${count(neurons.n_enough)} that matter most ` +
        `give at least 95 % ${what}, if the others are replaced by their mean activity.`,
    ),
  );
  const points = neurons.sizes.map((size, place) => ({ size, share: neurons.agreement[place] }));
  section.append(
    chart(
      "How many neurons matter",
      "Agreement against the number of neurons",
      () => ({
        height: 206,
        grid: true,
        marginBottom: 36,
        x: { type: "log", label: "neurons that matter most", tickFormat: "~s" },
        y: { label: model.is_classifier ? "same answers (%)" : "variance (%)", percent: true, domain: [0, 100] },
        marks: [
          Plot.areaY(points, { x: "size", y: "share", fill: colourOf(0), fillOpacity: 0.15 }),
          Plot.line(points, { x: "size", y: "share", stroke: colourOf(0) }),
          Plot.ruleX([neurons.n_enough], { stroke: colourOf(2), strokeDasharray: "4 3" }),
          Plot.dot(points, {
            x: "size",
            y: "share",
            fill: colourOf(0),
            r: 2.5,
            tip: true,
            title: (point) => `${plural(point.size, "neuron")}: ${percent(point.share)}`,
          }),
        ],
      }),
      "The weights stay as they are; solving again for fewer neurons, as on the path, usually does better.",
    ),
  );

  const number = unpack(neurons.number);
  const weight = unpack(neurons.weight);
  const rate = unpack(neurons.rate);
  const [nColumns, nGroups] = [neurons.weight.shape[1], neurons.rate.shape[1]];
  const favourite = d3
    .range(neurons.n_listed)
    .map((place) => d3.maxIndex(d3.range(nColumns), (column) => weight[place * nColumns + column]));
  const meanRate = d3
    .range(neurons.n_listed)
    .map((place) => d3.mean(d3.range(nGroups), (group) => rate[place * nGroups + group]));
  const selectivity = d3.range(neurons.n_listed).map((place) => {
    const own = rate.subarray(place * nGroups, (place + 1) * nGroups);
    return d3.max(own) - d3.min(own);
  });
  const sort = select(`${model.key}-sort`, [
    ["importance", "importance"],
    ["selective", "difference of rates between classes"],
    ["rate", "mean rate"],
    ["number", "number"],
    ...model.columns.map((name, place) => [`${place}`, `weight for ${name}`]),
  ]);
  const filter = select(`${model.key}-filter`, [
    ["all", "all"],
    ...model.columns.map((name, place) => [`${place}`, `argue most for ${name}`]),
  ]);
  const search = make("input", {
    type: "search",
    id: `${model.key}-search`,
    inputmode: "numeric",
    placeholder: "such as 12",
    size: 8,
  });
  const grid = make("div", { class: "cards" });
  const tally = make("p", { class: "small soft", role: "status" });
  const more = make("button", { type: "button" }, "Show more");
  const detail = make("div", { class: "details", id: `${model.key}-neuron`, tabindex: "-1" });
  let order = [];
  let shown = 0;
  const extend = () => {
    const next = order.slice(shown, shown + CARDS);
    grid.append(...next.map((place) => card(model, place, number[place], nameOf(model, favourite[place]))));
    shown += next.length;
    more.hidden = shown >= order.length;
    const unlisted =
      neurons.n_read > neurons.n_listed
        ? ` The ${count(neurons.n_read - neurons.n_listed)} that matter least are not on this page.`
        : "";
    tally.textContent = `${count(shown)} of ${plural(order.length, "neuron")} shown.${unlisted}`;
  };
  const update = () => {
    order = d3.range(neurons.n_listed);
    if (filter.value !== "all" && nColumns > 1)
      order = order.filter((place) => favourite[place] === Number(filter.value));
    if (search.value.trim()) order = order.filter((place) => String(number[place]) === search.value.trim());
    const key =
      {
        importance: (place) => place,
        selective: (place) => -selectivity[place],
        rate: (place) => -meanRate[place],
        number: (place) => number[place],
      }[sort.value] || ((place) => -weight[place * nColumns + Number(sort.value)]);
    order = d3.sort(order, key);
    shown = 0;
    grid.replaceChildren();
    extend();
  };
  for (const control of [sort, filter]) control.addEventListener("change", update);
  search.addEventListener("input", update);
  more.addEventListener("click", extend);
  model.openNeuron = (place, jump = true) => {
    detail.replaceChildren(...describeNeuron(model, place, favourite[place]));
    announce(`Neuron ${number[place]} is shown`);
    if (jump) {
      detail.scrollIntoView({ block: "center" });
      detail.focus({ preventScroll: true });
    }
  };
  section.append(
    make("h3", {}, "One by one"),
    make(
      "p",
      { class: "controls" },
      labelled("Sort by ", sort),
      labelled("Show those that ", filter),
      labelled("Number ", search),
    ),
    detail,
    tally,
    grid,
    make("p", {}, more),
  );
  model.openNeuron(0, false);
  update();
}

function select(id, options) {
  return make("select", { id }, ...options.map(([value, text]) => make("option", { value }, text)));
}

function labelled(text, control) {
  return make("label", { for: control.id }, text, control);
}

/** Draw what a neuron reads: delays from left (oldest) to right (now), one row per input. */
function paintField(canvas, model, place) {
  const { fields } = model.neurons;
  const values = new Float32Array(fields.n_delays * fields.n_inputs);
  const weights = rowOf(fields.weight, place);
  const sources = fields.source && rowOf(fields.source, place);
  const delays = fields.delay && rowOf(fields.delay, place);
  weights.forEach((weight, tap) => {
    const source = sources ? sources[tap] : tap;
    const column = fields.n_delays - 1 - (delays && weight ? delays[tap] : 0);
    values[source * fields.n_delays + column] += weight / 127;
  });
  const at = (row, column) => 0.5 + 0.5 * values[row * fields.n_delays + column];
  if (stepsRunDown) paint(canvas, fields.n_delays, fields.n_inputs, (row, column) => at(column, row), diverging());
  else paint(canvas, fields.n_inputs, fields.n_delays, at, diverging());
}

function hasField(model, place) {
  return place < model.neurons.fields.weight.shape[0];
}

function card(model, place, number, favourite) {
  const { neurons } = model;
  const weights = rowOf(neurons.weight, place);
  const largest = d3.max(weights, Math.abs) || 1;
  const bars = make(
    "div",
    { class: "bars", "aria-hidden": "true" },
    ...Array.from(weights.length > 40 ? [] : weights, (weight) =>
      make("i", {
        style: `--height:${Math.round((50 * Math.abs(weight)) / largest)}%`,
        class: weight < 0 ? "below" : "",
      }),
    ),
  );
  const label = model.columns.length > 1 ? `argues for “${favourite}”` : "";
  return make(
    "button",
    { type: "button", class: "card", onclick: () => model.openNeuron(place) },
    hasField(model, place)
      ? heatMap(`What neuron ${number} reads`, (canvas) => paintField(canvas, model, place))
      : make("span", { class: "small soft" }, "weights are left out to keep the page small"),
    bars,
    make("b", { class: "small" }, `neuron ${number}`),
    make("span", { class: "small soft" }, label),
  );
}

function describeNeuron(model, place, favourite) {
  const { neurons } = model;
  const { fields } = neurons;
  const number = unpack(neurons.number)[place];
  const weights = rowOf(neurons.weight, place);
  const rates = rowOf(neurons.rate, place);
  const what = model.n_layers > 1 ? "neuron below" : "input";
  const loudest = d3.maxIndex(rates);
  const parts = [
    make(
      "p",
      {},
      make("b", {}, `Neuron ${number}`),
      model.columns.length > 1
        ? ` argues most for ${quoted(model, favourite)} and is most active on “${model.groups[loudest]}”. `
        : ` is most active on the ${model.groups[loudest]}. `,
      make("span", { class: "soft" }, `It is number ${count(place + 1)} of ${count(neurons.n_read)} by importance.`),
    ),
  ];
  const columns = make("div", { class: "thirds" });
  if (hasField(model, place)) {
    const axis =
      fields.n_delays > 1
        ? stepsRunDown
          ? `delays run down to the present step; columns are ${what}s`
          : `left: ${plural(fields.n_delays - 1, "step")} ago, right: now; rows are ${what}s`
        : `one row per ${what}`;
    columns.append(
      make(
        "figure",
        { class: "chart" },
        make("h3", {}, "What it reads"),
        heatMap(
          `Weights of neuron ${number} by ${what} and delay`,
          (canvas) => paintField(canvas, model, place),
          "heat large",
        ),
        make(
          "figcaption",
          { class: "small soft" },
          `Blue excites, red inhibits; ${axis}. ${tapsInWords(model, place)}`,
        ),
      ),
    );
  }
  columns.append(
    barChart(
      "How active it is",
      model.groups,
      Array.from(rates, (own) => own / 255),
      "mean activity",
    ),
    barChart("What it says", model.columns, Array.from(weights), "output weight"),
  );
  parts.push(columns);
  const samples = Array.from(rowOf(neurons.exciting, place));
  const shown = thumbnails(model, samples);
  parts.push(
    make(
      "p",
      { class: "small soft" },
      `Sequences that excite it most: ${samples.join(", ")}${
        shown.childElementCount === 0
          ? " (none of them is on this page)"
          : shown.childElementCount < samples.length
            ? " (those that are on this page can be opened)"
            : ""
      }.`,
    ),
    shown,
  );
  return parts;
}

/** Return the strongest taps of a neuron in words. */
function tapsInWords(model, place) {
  const { fields } = model.neurons;
  const weights = Array.from(rowOf(fields.weight, place));
  const sources = fields.source && rowOf(fields.source, place);
  const delays = fields.delay && rowOf(fields.delay, place);
  const scale = unpack(fields.scale)[place] / 127;
  const order = d3
    .sort(d3.range(weights.length), (tap) => -Math.abs(weights[tap]))
    .slice(0, 3)
    .filter((tap) => weights[tap]);
  return `Strongest: ${order
    .map((tap) => {
      const source = sources ? sources[tap] : tap;
      const name = model.n_layers > 1 ? `neuron ${source} below` : model.features[source];
      const when = delays && delays[tap] ? ` ${plural(delays[tap], "step")} ago` : "";
      return `${short(weights[tap] * scale)} × ${name}${when}`;
    })
    .join(", ")}.`;
}

function barChart(title, names, values, label) {
  const bars = names.map((name, place) => ({ name: `${name}`, place, value: values[place] })).slice(0, 60);
  const longest = bars.length <= 4 ? 16 : 8;
  const isLong = bars.length > 12 || d3.sum(bars, (bar) => Math.min(longest, bar.name.length)) > 30;
  return chart(title, `${title}: ${label}`, () => ({
    height: isLong ? 220 : 200,
    marginBottom: isLong ? 54 : 34,
    marginLeft: 52,
    x: {
      label: null,
      type: "band",
      domain: bars.map((bar) => bar.place),
      tickFormat: (place) => {
        const { name } = bars[place];
        return name.length > longest ? `${name.slice(0, longest - 1)}…` : name;
      },
      tickRotate: isLong ? -55 : 0,
    },
    y: {
      label,
      grid: true,
      ticks: 4,
      tickFormat: d3.max(values, Math.abs) >= 1e4 ? d3.format("~s") : undefined,
      zero: true,
      nice: true,
    },
    marks: [
      Plot.barY(bars, {
        x: "place",
        y: "value",
        fill: (bar) => (bar.value < 0 ? colourOf(2) : colourOf(0)),
        title: (bar) => `${bar.name}: ${short(bar.value)}`,
        tip: true,
      }),
      Plot.ruleY([0]),
    ],
  }));
}
