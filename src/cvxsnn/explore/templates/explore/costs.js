"use strict";
// Health of the neurons, and what an answer costs.

const KINDS = [
  ["distinct", 0],
  ["duplicate", 1],
  ["saturated", 3],
  ["dead", 9],
];

function renderHealth(section, model) {
  const { health } = model;
  section.append(
    make(
      "p",
      {},
      `${model.neurons.is_selection ? "The neurons that were selected" : health.is_sampled ? "All hidden neurons" : "The neurons of the network"}, judged on some of the sequences. ` +
        "A dead neuron is never active, a saturated one always; a duplicate is as active as another on every sequence. They add nothing that the distinct ones do not have.",
    ),
  );
  const parts = health.layers.flatMap((layer) =>
    KINDS.map(([kind, colour]) => ({ layer: `layer ${layer.layer}`, kind, colour, share: layer.shares[kind] })),
  );
  section.append(
    chart("", "Shares of distinct, duplicate, saturated and dead neurons", () => ({
      height: 50 + 44 * health.layers.length,
      marginLeft: 70,
      marginBottom: 34,
      x: { label: "share of neurons (%)", percent: true, domain: [0, 100] },
      y: { label: null },
      marks: [
        Plot.barX(parts, {
          x: "share",
          y: "layer",
          fill: (part) => colourOf(part.colour),
          title: (part) => `${part.kind}: ${percent(part.share)}`,
          tip: true,
        }),
      ],
    })),
  );
  section.append(
    make(
      "p",
      { class: "legend small" },
      ...KINDS.map(([kind, colour]) => make("span", {}, make("i", { style: `background:${colourOf(colour)}` }), kind)),
    ),
  );
  section.append(
    table(
      "Health of the layers",
      ["layer", "neurons", "distinct", "duplicate", "saturated", "dead", "mean activity", "judged by"],
      health.layers.map((layer) => [
        `${layer.layer}`,
        count(layer.n_neurons),
        percent(layer.shares.distinct),
        percent(layer.shares.duplicate),
        percent(layer.shares.saturated),
        percent(layer.shares.dead),
        percent(layer.density),
        `${layer.what} of ${plural(layer.n_samples, "sequence")}`,
      ]),
    ),
  );
}

function renderCosts(section, model) {
  const { costs } = model;
  section.append(
    make(
      "p",
      {},
      `Counted on ${plural(costs.n_samples, "sequence")}. Energy is that of the arithmetic alone, in 45 nm CMOS; ` +
        "memory, which costs more on most hardware, is left out.",
    ),
  );
  section.append(
    strip([
      [count(costs.spikes), "spikes per answer"],
      [count(costs.synaptic), "synaptic operations per answer", `${count(costs.synaptic_per_step)} per step`],
      [
        bytes(costs.n_bytes),
        "weights and parameters",
        costs.buffer_bytes ? `and ${bytes(costs.buffer_bytes)} of past inputs` : "",
      ],
      [joules(costs.targets[0].energy), "energy per answer", costs.targets[0].name],
    ]),
  );
  section.append(
    make("h3", {}, "By target"),
    table(
      "Energy and size by kind of arithmetic",
      ["arithmetic of the target", "energy per answer", "the same network without spikes", "ratio", "weights and parameters"],
      costs.targets.map((target) => [
        target.name,
        joules(target.energy),
        joules(target.dense),
        `${short(target.dense / target.energy)}\u00a0times`,
        bytes(target.n_bytes),
      ]),
    ),
  );
  section.append(
    make("h3", {}, "By layer"),
    table(
      "Costs of the layers",
      [
        "layer",
        "neurons",
        "spikes",
        "weights added for spikes",
        "weights multiplied",
        "membrane updates",
        "bytes",
        "bits per weight",
      ],
      costs.layers.map((layer) => [
        layer.name,
        count(layer.n_neurons),
        count(layer.spikes),
        count(layer.accumulates),
        count(layer.multiplications),
        count(layer.updates),
        count(layer.n_bytes),
        `${layer.bits}`,
      ]),
    ),
  );
  section.append(
    barChart(
      model.is_classifier ? "Synaptic operations by class" : "Synaptic operations by target",
      costs.groups.map((group) => group.name),
      costs.groups.map((group) => group.synaptic),
      "per answer",
    ),
  );
}
