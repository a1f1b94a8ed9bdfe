"use strict";
// What all sections use: decoded arrays, elements, formats, charts and heat maps. Text is only ever set as text.

const PAGE = JSON.parse(document.getElementById("data").textContent);
const TYPES = { u1: Uint8Array, i1: Int8Array, u2: Uint16Array, i2: Int16Array, i4: Int32Array, f4: Float32Array };

/** Return the typed array of a packed one, decoded at the first use. */
function unpack(packed) {
  if (packed === null) return null;
  if (!packed.values) {
    const bytes = Uint8Array.from(atob(packed.data), (character) => character.charCodeAt(0));
    packed.values = new TYPES[packed.type](bytes.buffer);
    packed.data = "";
  }
  return packed.values;
}

/** Return row `row` of a packed matrix. */
function rowOf(packed, row) {
  const width = packed.shape[1];
  return unpack(packed).subarray(row * width, (row + 1) * width);
}

/** Return a new element with attributes, listeners (on…) and children, which are elements or text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const count = (value) => Math.round(value).toLocaleString("en");
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)}\u00a0%`;
const short = (value) => (value === 0 ? "0" : Number(value.toPrecision(3)).toString());

/** Return an upper bound in two digits, rounded up, so that it stays one. */
function bound(value) {
  if (value <= 0) return "0";
  const size = 10 ** (Math.floor(Math.log10(value)) - 1);
  return (Math.ceil(Number((value / size).toFixed(9))) * size).toExponential(1).replace("e+", "e");
}

const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

function joules(value) {
  for (const [size, unit] of [
    [1e-12, "pJ"],
    [1e-9, "nJ"],
    [1e-6, "µJ"],
    [1e-3, "mJ"],
  ]) {
    if (value < 1000 * size) return `${short(value / size)}\u00a0${unit}`;
  }
  return `${short(value)} J`;
}

function bytes(value) {
  return value < 1e4 ? `${count(value)} bytes` : value < 1e7 ? `${count(value / 1e3)} kB` : `${short(value / 1e6)} MB`;
}

/** Tell screen readers what has changed. */
function announce(text) {
  document.getElementById("status").textContent = text;
}

const darkScreen = window.matchMedia("(prefers-color-scheme: dark)");
const redraws = new Set();
darkScreen.addEventListener("change", () => redraws.forEach((draw) => draw()));

const COLOURS = [
  "#4e79a7",
  "#f28e2c",
  "#e15759",
  "#76b7b2",
  "#59a14f",
  "#b07aa1",
  "#ff9da7",
  "#9c755f",
  "#edc949",
  "#8a8f98",
];
const colourOf = (place) => COLOURS[place % COLOURS.length];

const scaleOf = (...colours) => d3.piecewise(d3.interpolateRgb, colours);
const DIVERGING = {
  dark: scaleOf("#ff9b85", "#b5462f", "#22272c", "#2f76b8", "#93c9ff"),
  light: scaleOf("#8f1d14", "#e58267", "#f7f7f7", "#67a9cf", "#0b4a8f"),
};
const SEQUENTIAL = {
  dark: scaleOf("#191d21", "#33658a", "#9fd3ff", "#f4fbff"),
  light: scaleOf("#f7f9fb", "#9cc4e0", "#2b6ca3", "#0b2540"),
};
const scheme = () => (darkScreen.matches ? "dark" : "light");

/** Return a colour scale for values from −1 to 1: red is negative, blue positive, and zero is the background. */
const diverging = () => DIVERGING[scheme()];

/** Return a colour scale for values from 0 to 1. */
const sequential = () => SEQUENTIAL[scheme()];

const palettes = new Map();

/** Return 256 colours of a scale, which are computed once. */
function paletteOf(scale) {
  if (!palettes.has(scale))
    palettes.set(
      scale,
      d3.range(256).map((step) => d3.rgb(scale(step / 255))),
    );
  return palettes.get(scale);
}

/** Draw a matrix of n_rows × n_columns on a canvas, one pixel per entry; `at(row, column)` is a share of the scale. */
function paint(canvas, nRows, nColumns, at, scale) {
  canvas.width = nColumns;
  canvas.height = nRows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(nColumns, nRows);
  const palette = paletteOf(scale);
  for (let row = 0, place = 0; row < nRows; row += 1) {
    for (let column = 0; column < nColumns; column += 1, place += 4) {
      const share = at(row, column);
      const colour = palette[Math.max(0, Math.min(255, Math.round(255 * share)))];
      image.data[place] = colour.r;
      image.data[place + 1] = colour.g;
      image.data[place + 2] = colour.b;
      image.data[place + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
}

/** Return a canvas that is drawn now and again when the colours of the screen change. */
function heatMap(label, draw, className = "heat") {
  const canvas = make("canvas", { class: className, role: "img", "aria-label": label });
  draw(canvas);
  canvas.redraw = () => draw(canvas);
  const again = () => (canvas.isConnected ? draw(canvas) : redraws.delete(again));
  redraws.add(again);
  return canvas;
}

const observer = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    if (target.redraw && !(Math.abs(contentRect.width - target.drawnWidth) <= 8)) target.redraw();
  }
});

/** Return a figure with a chart of Observable Plot that follows the width of the page; `options(width)` describes it. */
function chart(title, label, options, caption = null) {
  const place = make("div", { class: "plot" });
  const figure = make(
    "figure",
    { class: "chart" },
    title ? make("h3", {}, title) : null,
    place,
    caption ? make("figcaption", { class: "small soft" }, caption) : null,
  );
  place.redraw = () => {
    const width = Math.max(220, place.clientWidth || 600);
    place.drawnWidth = place.clientWidth;
    const drawn = Plot.plot({
      width,
      style: { background: "none", fontSize: "12px" },
      ariaLabel: label,
      ...options(width),
    });
    figure.plot = drawn.querySelector ? drawn : null;
    place.replaceChildren(drawn);
    if (figure.afterDraw) figure.afterDraw();
  };
  const again = () => (place.isConnected ? place.redraw() : redraws.delete(again));
  redraws.add(again);
  observer.observe(place);
  figure.redraw = place.redraw;
  figure.place = place;
  return figure;
}

/** Return a table; cells are text or elements. */
function table(label, columns, rows) {
  const head = make("tr", {}, ...columns.map((name) => make("th", { scope: "col" }, name)));
  const body = rows.map((row) =>
    make("tr", {}, ...row.map((cell, place) => (place ? make("td", {}, cell) : make("th", { scope: "row" }, cell)))),
  );
  return make(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    make("table", { class: "numbers" }, make("thead", {}, head), make("tbody", {}, ...body)),
  );
}

/** Return a strip of large numbers with a line below each. */
function strip(facts) {
  return make(
    "ul",
    { class: "strip facts" },
    ...facts.map(([value, text, note]) =>
      make(
        "li",
        {},
        make("b", {}, value),
        make("span", {}, text),
        note ? make("span", { class: "small soft" }, note) : null,
      ),
    ),
  );
}

/** Whether steps run downwards, as the rows of an image do. */
let stepsRunDown = PAGE.models[0].n_steps === PAGE.models[0].features.length && PAGE.models[0].n_steps > 3;

/** Draw packed inputs of n_steps × n_rows; the first step is at the left, or on top if steps run down. */
function paintInputs(canvas, inputs, [low, high] = [0, 255]) {
  const [nSteps, nRows] = inputs.shape;
  const values = unpack(inputs);
  const at = (step, row) => (values[step * nRows + row] - low) / (high - low || 1);
  if (stepsRunDown) paint(canvas, nSteps, nRows, at, sequential());
  else paint(canvas, nRows, nSteps, (row, step) => at(step, row), sequential());
}

const nameOf = (model, place) => model.columns[place];

/** Return the name of a class in quotation marks, for sentences: names may be any words. */
const quoted = (model, place) => `“${model.columns[place]}”`;

/** Return what was right and what was answered, in words. */
function verdict(model, view) {
  if (!model.is_classifier) return `${short(view.truth)}, predicted ${short(view.predicted)}`;
  const sure = view.confidence === null ? "" : ` (${percent(view.confidence, 0)})`;
  const truth = nameOf(model, view.truth);
  return view.truth === view.predicted
    ? `${truth}, right${sure}`
    : `${truth}, answered ${nameOf(model, view.predicted)}${sure}`;
}

/** Return a button with a small picture of a sequence, which opens it. */
function thumbnail(model, view) {
  const isWrong = model.is_classifier && view.truth !== view.predicted;
  const words = verdict(model, view);
  return make(
    "button",
    { type: "button", class: `thumbnail${isWrong ? " wrong" : ""}`, onclick: () => model.openSequence(view.sample) },
    heatMap(`Inputs of sequence ${view.sample}`, (canvas) => paintInputs(canvas, view.inputs)),
    make("span", { class: "small" }, words),
    make("span", { class: "small soft" }, `sequence ${view.sample}`),
  );
}

/** Return those of some sequences that are on the page. */
const onPage = (model, samples) =>
  samples.map((sample) => model.bySample.get(sample)).filter((view) => view !== undefined);

/** Return buttons for those of some sequences that are on the page. */
function thumbnails(model, samples) {
  const shown = onPage(model, samples);
  return make("div", { class: "thumbnails" }, ...shown.map((view) => thumbnail(model, view)));
}
