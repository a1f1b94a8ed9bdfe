#!/usr/bin/env node
// A second checker of proof files, written from docs/proof-files.md alone, without a look at the first one.
//
//     node second_checker.mjs [--limit OPERATIONS] file.json ...
//     node second_checker.mjs [--limit OPERATIONS] --batch
//
// Each file is answered by one line of JSON with a status: "accepted", "refused" (the file does not prove what it
// states) or "limit" (the file may be right, but is too much for this checker). With --batch, each line of standard
// input is a JSON string: the text of a proof file or, after an "@", the path of one.
//
// Everything that is decided is decided with BigInt; Numbers count and index, and nothing else. "Step" in the comments
// below refers to the steps of the page. A tree (step 3) is an object {sum, normal, silent, spike}: `sum`, one integer
// per output, is added in any case; then, unless normal is null, the event of that normal chooses how to go on.
// A normal is {head, last}: its last entry, the one of the threshold, is kept apart since step 4 treats it so.

import { readFileSync, statSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

class Refused extends Error {}
class Limit extends Error {}

function demand(isTrue, reason) {
  if (!isTrue) throw new Refused(reason);
}

const MAX_BYTES = 2 ** 28;
const MAX_VALUES = 2 ** 24; // of JSON, so that a file of 256 MiB cannot exhaust the heap, which Node does not survive
const MAX_DEPTH = 900;
const MAX_EVENTS = 2 ** 21;
const MAX_DECAY_BITS = 2 ** 16;
const MAX_MEMORY = 2 ** 30; // bytes of leaky sums
const OPERATIONS = 1e10;

let operationsLeft = 0;

function spend(operations) {
  operationsLeft -= operations;
  if (!(operationsLeft >= 0)) throw new Limit('the limit of operations');
}

// ------------------------------------------------------------------------------- exact numbers

const abs = (a) => (a < 0n ? -a : a);
const larger = (a, b) => (a > b ? a : b);
const ceilDiv = (a, b) => (a + b - 1n) / b; // of a ≥ 0 and b > 0
const bits = (a) => (a === 0n ? 0 : abs(a).toString(2).length);
const words = (a) => 1 + Math.floor(abs(a).toString(16).length / 16);
const plus = (a, b) => a.map((entry, k) => entry + b[k]);

// Fractions are pairs [numerator, denominator > 0], not reduced.
const add = ([a, b], [c, d]) => [a * d + c * b, b * d];
const isAtMost = ([a, b], [c, d]) => a * d <= c * b;

// Every finite float is a multiple of 2^-1074, and is kept as this multiple.
const FLOAT_SHIFT = 1074n;
const FLOAT_UNIT = 1n << FLOAT_SHIFT;
const asFraction = (float) => [float, FLOAT_UNIT];

// A fraction with 15 significant digits, rounded up or down: [3n, 8n] is 3.75000000000000e-1.
function decimal([numerator, denominator], isUp) {
  if (numerator === 0n) return '0';
  const away = numerator > 0n === isUp;
  const size = abs(numerator);
  let exponent = size.toString().length - denominator.toString().length;
  if (10n ** BigInt(Math.max(exponent, 0)) * denominator > size * 10n ** BigInt(Math.max(-exponent, 0))) exponent -= 1;
  const scaled = size * 10n ** BigInt(Math.max(14 - exponent, 0));
  const unit = denominator * 10n ** BigInt(Math.max(exponent - 14, 0));
  let digits = (away ? ceilDiv(scaled, unit) : scaled / unit).toString();
  if (digits.length > 15) exponent += 1; // 99…9 was rounded up to 100…0
  digits = digits.slice(0, 15);
  return `${numerator < 0n ? '-' : ''}${digits[0]}.${digits.slice(1)}e${exponent}`;
}

// ------------------------------------------------------------------------- logarithms and exponentials from above (10)
//
// All are integers in units of 2^-Q. Series of positive terms are summed with every operation rounded in one direction,
// so that each partial result is a bound by itself. What the rounding costs only matters for how sharp the bounds are:
// about 100 terms, each off by at most 2 units, and |k| < 2^13 times log 2 leave logarithms right to 2^-290; the
// squarings of the exponential, which double its relative error of less than 2^-310 eight times, leave it right to
// a relative 2^-300. The page asks for 60 digits, or 2^-199.

const Q = 320n;
const ONE = 1n << Q;

// log((1 + z) / (1 - z)) = 2·(z + z³/3 + z⁵/5 + …) of the fraction z from 0 to 1/3. Rounded up, powers of z shrink
// until they are at most one unit; the terms left out are then below 1 + 1/9 + 1/81 + … < 2 units in all.
function logOfRatio(numerator, denominator, isUp) {
  const divide = isUp ? ceilDiv : (a, b) => a / b;
  let power = divide(numerator << Q, denominator);
  const square = divide(power * power, ONE);
  let sum = isUp ? 2n : 0n;
  for (let k = 1n; power > 1n; k += 2n) {
    sum += divide(power, k);
    power = divide(power * square, ONE);
  }
  return 2n * sum;
}

const LOG_2_ABOVE = logOfRatio(1n, 3n, true);
const LOG_2_BELOW = logOfRatio(1n, 3n, false);

// log x of the fraction x > 0: with x = m·2^k and 1 ≤ m < 2, log x = log m + k·log 2, and z = (m - 1)/(m + 1) < ⅓.
// As on the page, the result is strictly larger than the logarithm, even at x = 1.
function logAbove(numerator, denominator) {
  spend(500);
  if (numerator === denominator) return 0n;
  let k = bits(numerator) - bits(denominator);
  const shifted = (k) => [numerator << BigInt(Math.max(-k, 0)), denominator << BigInt(Math.max(k, 0))];
  let [top, bottom] = shifted(k);
  if (top < bottom) [top, bottom] = shifted(--k);
  return logOfRatio(top - bottom, top + bottom, true) + BigInt(k) * (k < 0 ? LOG_2_BELOW : LOG_2_ABOVE);
}

// e^(-x) of the fraction x from 0 to 200, as 1/e^x with e^x = (e^(x/256))^256 from below.
function expAbove(numerator, denominator) {
  spend(500);
  const y = (numerator << Q) / (denominator << 8n);
  let sum = 0n;
  for (let k = 1n, term = ONE; term > 0n; k += 1n) {
    sum += term;
    term = (term * y) / (k << Q);
  }
  for (let i = 0; i < 8; i++) sum = (sum * sum) >> Q;
  return ceilDiv(ONE << Q, sum);
}

// ------------------------------------------------------------------------------- strict JSON
//
// Integers become BigInt; other numbers become the Number 0.5, which no field admits; objects become Maps.

const NUMBER = /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/y;
const FOUR_DIGITS = /[0-9a-fA-F]{4}/y;
const ESCAPES = { '"': '"', '\\': '\\', '/': '/', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };
const WORDS = [['true', true], ['false', false], ['null', null]];

function parseJson(text) {
  let at = 0;
  let values = 0;

  const wrong = () => new Refused(`no JSON at character ${at}`);
  const skip = () => {
    while (text[at] === ' ' || text[at] === '\n' || text[at] === '\r' || text[at] === '\t') at++;
  };
  const take = (character) => {
    skip();
    if (text[at] !== character) return false;
    at++;
    return true;
  };
  const matchAt = (pattern) => {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (!match) throw wrong();
    at = pattern.lastIndex;
    return match;
  };

  function string() {
    if (!take('"')) throw wrong();
    let result = '';
    for (let start = at; ; at++) {
      const character = text[at];
      if (character === undefined || character < ' ') throw wrong();
      if (character !== '"' && character !== '\\') continue;
      result += text.slice(start, at++);
      if (character === '"') return result;
      const escape = text[at++];
      if (escape === 'u') result += String.fromCharCode(Number.parseInt(matchAt(FOUR_DIGITS)[0], 16));
      else if (Object.hasOwn(ESCAPES, escape ?? '')) result += ESCAPES[escape];
      else throw wrong();
      start = at--;
    }
  }

  function number() {
    const [all, whole, fraction, exponent] = matchAt(NUMBER);
    if (fraction !== undefined || exponent !== undefined) return 0.5;
    demand(whole.length <= 4300, 'an integer of more than 4300 digits');
    return BigInt(all);
  }

  function value(depth) {
    if (depth > MAX_DEPTH) throw new Limit('nesting of lists and objects');
    if (++values > MAX_VALUES) throw new Limit('number of JSON values');
    skip();
    if (text[at] === '"') return string();
    if (take('[')) {
      const list = [];
      if (take(']')) return list;
      do list.push(value(depth + 1)); while (take(','));
      if (!take(']')) throw wrong();
      return list;
    }
    if (take('{')) {
      const object = new Map();
      if (take('}')) return object;
      do {
        const name = string();
        demand(!object.has(name), `the name ${JSON.stringify(name)} twice in one object`);
        if (!take(':')) throw wrong();
        object.set(name, value(depth + 1));
      } while (take(','));
      if (!take('}')) throw wrong();
      return object;
    }
    for (const [word, meaning] of WORDS) {
      if (!text.startsWith(word, at)) continue;
      at += word.length;
      return meaning;
    }
    return number();
  }

  const result = value(1);
  skip();
  if (at < text.length) throw wrong();
  return result;
}

// ------------------------------------------------------------------------------- the fields

const FIELDS = [
  'format', 'decay', 'bias', 'negative_threshold', 'has_intercept', 'readout', 'loss', 'penalty', 'strength', 'inputs',
  'targets', 'neurons', 'coef', 'intercept', 'primal', 'lower_bound', 'dual', 'dual_exponent', 'price_bound', 'proofs',
];
const OPTIONAL_FIELDS = ['resets', 'generated', 'violators', 'pending', 'is_finished'];
const SEARCH_FIELDS = ['columns', 'basis', 'levels', 'code', 'closer'];
const INTEGER_END = 1n << 2048n;

function readObject(value, name, needed, optional) {
  demand(value instanceof Map, `${name} is no object`);
  for (const field of needed) demand(value.has(field), `${name} has no ${field}`);
  for (const field of value.keys()) {
    demand(needed.includes(field) || optional.includes(field), `${name} has a field ${JSON.stringify(field)}`);
  }
  return value;
}

function readInteger(value, name, low = 1n - INTEGER_END, high = INTEGER_END - 1n) {
  demand(typeof value === 'bigint' && abs(value) < INTEGER_END, `${name}: no integer of at most 2048 bits`);
  demand(low <= value && value <= high, `${name}: an integer out of range`);
  return value;
}

const readSmall = (value, name, low, high) => Number(readInteger(value, name, BigInt(low), BigInt(high)));

function readBoolean(value, name) {
  demand(typeof value === 'boolean', `${name}: no boolean`);
  return value;
}

function readChoice(value, name, choices) {
  demand(typeof value === 'string' && choices.includes(value), `${name}: not one of ${choices}`);
  return value;
}

// float.hex of Python has always 13 digits, but for the two zeros; the exponent of subnormal numbers is -1022.
function readFloat(value, name) {
  demand(typeof value === 'string', `${name}: no float`);
  if (value === '0x0.0p+0' || value === '-0x0.0p+0') return 0n;
  const match = /^(-?)0x([01])\.([0-9a-f]{13})p(\+(?:0|[1-9][0-9]{0,3})|-[1-9][0-9]{0,3})$/.exec(value);
  demand(match, `${name}: not a float as float.hex writes it`);
  const [, sign, lead, digits, power] = match;
  const fraction = BigInt(`0x${lead}${digits}`);
  const exponent = Number(power);
  const isNormal = lead === '1' && exponent >= -1022 && exponent <= 1023;
  demand(isNormal || (lead === '0' && exponent === -1022 && fraction > 0n), `${name}: not a float of float.hex`);
  const size = fraction << (BigInt(exponent) - 52n + FLOAT_SHIFT);
  return sign ? -size : size;
}

function readList(value, name, length, readEntry) {
  demand(Array.isArray(value), `${name}: no list`);
  demand(length === undefined || value.length === length, `${name}: a list of wrong length`);
  return readEntry ? value.map((entry) => readEntry(entry, name)) : value;
}

const readMatrix = (value, name, rows, columns, readEntry) =>
  readList(value, name, rows, (row) => readList(row, name, columns, readEntry));

function readSearch(value, place, width) {
  const name = `proofs[${place}]`;
  const fields = readObject(value, name, SEARCH_FIELDS, []);
  const columns = readList(fields.get('columns'), `${name}.columns`, undefined, (entry, at) =>
    readSmall(entry, at, 0, width - 1));
  demand(columns.length >= 1, `${name}.columns: none`);
  for (let i = 1; i < columns.length; i++) demand(columns[i - 1] < columns[i], `${name}.columns: not increasing`);
  const basis = readMatrix(fields.get('basis'), `${name}.basis`, columns.length, columns.length, readInteger);
  const levels = readSmall(fields.get('levels'), `${name}.levels`, 1, 64);
  const code = fields.get('code');
  demand(typeof code === 'string', `${name}.code: no string`);
  const closer = readList(fields.get('closer'), `${name}.closer`, undefined, (pair, at) => {
    const [factor, number] = readList(pair, at, 2);
    return { factor: readInteger(factor, at, 1n), number: readSmall(number, at, -1, place - 1) };
  });
  return { columns, basis, levels, code, closer };
}

function readProof(text) {
  const fields = readObject(parseJson(text), 'the file', FIELDS, OPTIONAL_FIELDS);
  const read = (name, reader, ...rest) => reader(fields.get(name), name, ...rest);
  const proof = {};

  read('format', readChoice, ['cvxsnn complete certificate 1']);
  read('penalty', readChoice, ['l1']);
  const [p, q] = read('decay', readList, 2, readInteger);
  demand(p >= 0n && p <= q && q >= 1n, 'decay: not from 0 to 1');
  Object.assign(proof, { p, q });
  for (const name of ['bias', 'negative_threshold', 'has_intercept']) proof[name] = read(name, readBoolean);
  proof.resets = fields.has('resets') ? read('resets', readBoolean) : true;
  proof.readout = read('readout', readChoice, ['last', 'mean', 'all']);
  proof.loss = read('loss', readChoice, ['squared', 'logistic']);
  proof.strength = read('strength', readFloat);
  demand(proof.strength > 0n, 'strength: not positive');

  const raw = read('inputs', readList);
  const first = readList(raw[0], 'inputs');
  const features = readList(first[0], 'inputs').length;
  demand(features >= 1, 'inputs: no features');
  proof.inputs = raw.map((sequence) => readMatrix(sequence, 'inputs', first.length, features, readInteger));
  proof.steps = first.length;
  proof.width = features + (proof.bias ? 2 : 1);
  proof.wall = !proof.negative_threshold;

  proof.rows = raw.length * (proof.readout === 'all' ? proof.steps : 1);
  const outputs = readList(read('targets', readList)[0], 'targets').length;
  demand(outputs >= 1, 'targets: no outputs');
  proof.outputs = outputs;
  proof.targets = read('targets', readMatrix, proof.rows, outputs, readFloat);
  if (proof.loss === 'logistic') {
    const isSign = (target) => abs(target) === FLOAT_UNIT;
    demand(proof.targets.every((row) => row.every(isSign)), 'targets: not -1 or 1');
  }

  proof.neurons = read('neurons', readMatrix, undefined, proof.width, readInteger);
  const isAllowed = (neuron) => !proof.wall || neuron[proof.width - 1] >= 0n;
  demand(proof.neurons.every(isAllowed), 'neurons: a negative threshold');
  proof.coef = read('coef', readMatrix, proof.neurons.length, outputs, readFloat);
  proof.intercept = read('intercept', readList, outputs, readFloat);
  demand(proof.has_intercept || proof.intercept.every((entry) => entry === 0n), 'intercept: not zero');
  proof.primal = read('primal', readFloat);
  proof.lower_bound = read('lower_bound', readFloat);

  proof.dual = read('dual', readMatrix, proof.rows, outputs, readInteger);
  if (proof.has_intercept) {
    const total = proof.dual.reduce(plus);
    demand(total.every((entry) => entry === 0n), 'dual: a column does not sum to zero');
  }
  proof.dual_exponent = read('dual_exponent', readInteger, -2000n, 2000n);
  proof.price_bound = read('price_bound', readInteger, 0n);
  const searches = read('proofs', readList);
  proof.proofs = searches.map((search, place) => readSearch(search, place, proof.width));
  return proof;
}

// ------------------------------------------------------------------------------- the objective (1)

// The sums a¹, …, a^T of each sequence, with a last entry for the ones if there is a bias.
function leakySums({ inputs, steps, p, q, bias, width }) {
  if (bits(q) * steps > MAX_DECAY_BITS) throw new Limit('bits of the decay times steps');
  const largest = inputs.flat(2).reduce((most, entry) => larger(most, abs(entry)), 1n);
  const growth = bits(q - 1n); // q^t has at most growth·t + 1 bits
  const bytes = (inputs.length * steps * width * (growth * steps * 0.5 + bits(largest) + 200)) / 8;
  if (bytes > MAX_MEMORY) throw new Limit('memory for the sums of the inputs');
  return inputs.map((sequence) => {
    let scale = 1n; // q^(t-1)
    let before = Array(width - 1).fill(0n);
    return sequence.map((x, t) => {
      spend(width * (1 + Math.floor((growth * t) / 64)));
      const entries = bias ? [...x, 1n] : x;
      before = entries.map((entry, j) => p * before[j] + scale * entry);
      scale *= q;
      return before;
    });
  });
}

// The column ψ of a neuron, times T for the read-out "mean".
function column({ p, q, resets, readout, steps, width }, sums, neuron) {
  const threshold = neuron[width - 1];
  return sums.flatMap((sequence) => {
    let scale = 1n;
    let resetSum = 0n; // r^t
    let isSpike = false;
    const spikes = sequence.map((a, t) => {
      spend(width * (1 + Math.floor((t * bits(q)) / 64)));
      resetSum = p * resetSum + (resets && isSpike ? scale : 0n);
      scale *= q;
      const drive = a.reduce((sum, entry, j) => sum + entry * neuron[j], 0n);
      isSpike = drive - resetSum * threshold >= 0n;
      return isSpike ? 1n : 0n;
    });
    if (readout === 'all') return spikes;
    return readout === 'last' ? [spikes[steps - 1]] : [spikes.reduce((a, b) => a + b)];
  });
}

// An upper bound of the objective of the network in the file.
function primalValue(proof, sums) {
  const { neurons, coef, intercept, targets, rows, outputs, loss, strength } = proof;
  const scale = proof.readout === 'mean' ? BigInt(proof.steps) : 1n;
  const unit = scale << FLOAT_SHIFT; // of the outputs and of what follows from them
  const values = targets.map(() => intercept.map((entry) => scale * entry));
  neurons.forEach((neuron, j) => {
    column(proof, sums, neuron).forEach((spikes, i) => {
      spend(20 * outputs);
      if (spikes !== 0n) coef[j].forEach((weight, k) => { values[i][k] += spikes * weight; });
    });
  });
  const pairs = values.flatMap((row, i) => row.map((value, k) => [value, targets[i][k]]));
  let total;
  if (loss === 'squared') {
    const squares = pairs.reduce((sum, [value, y]) => sum + (value - scale * y) ** 2n, 0n);
    total = [squares, 2n * unit * unit];
  } else {
    let linear = 0n; // log(1 + e^(-m)) = max(0, -m) + log(1 + e^(-|m|)) of the margins m = y·f
    let curved = 0n;
    for (const [value, y] of pairs) {
      const margin = y > 0n ? value : -value;
      linear += larger(0n, -margin);
      const size = abs(margin) > 200n * unit ? 200n * unit : abs(margin);
      curved += logAbove(ONE + expAbove(size, unit), ONE);
    }
    total = add([linear, unit], [curved, ONE]);
  }
  const weights = coef.flat().reduce((sum, weight) => sum + abs(weight), 0n);
  return add([total[0], total[1] * BigInt(rows)], [strength * weights, FLOAT_UNIT * FLOAT_UNIT]);
}

// ------------------------------------------------------------------------------- the bound (2)

// A lower bound of the right-hand side of weak duality for λ = ratio·d with ratio = min(2^e, s/B).
function dualValue({ dual, dual_exponent: exponent, price_bound: price, targets, rows, loss, strength }) {
  let [top, bottom] = exponent < 0n ? [1n, 1n << -exponent] : [1n << exponent, 1n];
  if (price * top * FLOAT_UNIT > strength * bottom) [top, bottom] = [strength, price * FLOAT_UNIT];
  const n = BigInt(rows);
  const pairs = dual.flatMap((row, i) => row.map((d, k) => [d, targets[i][k]]));
  spend(100 * pairs.length);
  if (loss === 'squared') {
    // With u = -n·λ, the terms -(u²/2 + u·y)/n are λ·y - n·λ²/2.
    const linear = pairs.reduce((sum, [d, y]) => sum + d * y, 0n);
    const squares = pairs.reduce((sum, [d]) => sum + d * d, 0n);
    return add([top * linear, bottom * FLOAT_UNIT], [-n * top * top * squares, 2n * bottom * bottom]);
  }
  let entropy = 0n; // an upper bound of the sum of ℓ*, in units of 1 / (bottom·2^Q)
  for (const [d, y] of pairs) {
    const chance = n * top * (y > 0n ? d : -d); // p = -u·y, in units of 1 / bottom
    demand(chance >= 0n && chance <= bottom, 'dual: outside of the domain of the logistic loss');
    for (const part of [chance, bottom - chance]) {
      if (part > 0n) entropy += part * logAbove(part, bottom);
    }
  }
  return [-entropy, n * bottom * ONE];
}

// ------------------------------------------------------------------------------- trees (3, 4, 5)

function growTrees(proof, sums) {
  const { dual, readout, steps, resets, outputs, p, q } = proof;
  const zero = Array(outputs).fill(0n);
  const isZero = (weight) => weight.every((entry) => entry === 0n);
  const weightOf = (i, t) => {
    if (readout === 'all') return dual[i * steps + t];
    return readout === 'mean' || t === steps - 1 ? dual[i] : zero;
  };

  // Without resets, every step is a sequence of one step. Sequences of the same sums are one tree.
  const sequences = new Map();
  const include = (a, weights) => {
    spend(a.length * (proof.width + outputs));
    const key = a.map((entries) => entries.map((entry) => entry.toString(16)).join()).join(';');
    const known = sequences.get(key);
    if (known) known.weights = known.weights.map((weight, t) => plus(weight, weights[t]));
    else sequences.set(key, { a, weights });
  };
  sums.forEach((a, i) => {
    if (resets) include(a, a.map((_, t) => weightOf(i, t)));
    else a.forEach((entries, t) => { if (!isZero(weightOf(i, t))) include([entries], [weightOf(i, t)]); });
  });

  let events = 0;
  const trees = [];
  for (const { a, weights } of sequences.values()) {
    let depth = a.length; // events at which and after which nothing is added are left out
    while (depth > 0 && isZero(weights[depth - 1])) depth--;
    if (depth === 0) continue;
    events += 2 ** depth - 1;
    if (events > MAX_EVENTS) throw new Limit('number of events');
    const normals = a.slice(0, depth).map(() => new Map()); // equal normals are one object, for speed only
    const grow = (t, resetSum, sum) => {
      spend(10);
      if (t === depth) return { sum, normal: null };
      let normal = normals[t].get(resetSum);
      if (!normal) normals[t].set(resetSum, (normal = { head: a[t], last: -resetSum }));
      const silent = grow(t + 1, p * resetSum, zero);
      return { sum, normal, silent, spike: grow(t + 1, p * resetSum + q ** BigInt(t + 1), weights[t]) };
    };
    trees.push(grow(0, 0n, zero));
  }
  return trees;
}

const sameList = (a, b) => a.length === b.length && a.every((entry, j) => entry === b[j]);

function isSameTree(a, b) {
  if (a === b) return true;
  spend(5);
  if (!sameList(a.sum, b.sum)) return false;
  if (!a.normal || !b.normal) return a.normal === b.normal;
  if (a.normal.last !== b.normal.last || !sameList(a.normal.head, b.normal.head)) return false;
  return isSameTree(a.silent, b.silent) && isSameTree(a.spike, b.spike);
}

// Step 4: the side of ν (true is a spike) that follows from the side of μ, or null. The heads must be positive
// multiples of each other, a·ν = b·μ + c·(0, …, 0, 1); a and b are read off at an entry of μ that is not zero.
function decides(mu, isSpike, nu, wall) {
  spend(mu.head.length);
  const j = mu.head.findIndex((entry) => entry !== 0n);
  if (j < 0 || mu.head[j] > 0n !== nu.head[j] > 0n || nu.head[j] === 0n) return null;
  const a = abs(mu.head[j]);
  const b = abs(nu.head[j]);
  if (!mu.head.every((entry, i) => a * nu.head[i] === b * entry)) return null;
  const c = a * nu.last - b * mu.last;
  return c === 0n || (wall && c > 0n === isSpike) ? isSpike : null;
}

const isTouched = (tree, fact, wall) =>
  tree.normal !== null && (decides(fact.normal, fact.isSpike, tree.normal, wall) !== null ||
    isTouched(tree.silent, fact, wall) || isTouched(tree.spike, fact, wall));

// Step 4: an equal tree with fewer events, where `facts` hold (events above it, and their sides).
function simplify(tree, facts, wall) {
  spend(5);
  let { sum } = tree;
  while (tree.normal) {
    let side = null;
    for (let i = 0; i < facts.length && side === null; i++) {
      side = decides(facts[i].normal, facts[i].isSpike, tree.normal, wall);
    }
    if (side === null) break;
    tree = side ? tree.spike : tree.silent;
    sum = plus(sum, tree.sum);
  }
  const { normal } = tree;
  if (!normal) return { sum, normal };
  const onSilence = { normal, isSpike: false };
  const onSpike = { normal, isSpike: true };
  const silent = simplify(tree.silent, [...facts, onSilence], wall);
  const spike = simplify(tree.spike, [...facts, onSpike], wall);
  // What is left in these two is not decided by `facts`, so that only the new fact matters; and where that decides
  // nothing either, simplifying again would change nothing.
  const under = (side, fact) => (isTouched(side, fact, wall) ? simplify(side, [fact], wall) : side);
  if (isSameTree(under(spike, onSilence), silent)) return { ...spike, sum: plus(sum, spike.sum) };
  if (isSameTree(under(silent, onSpike), spike)) return { ...silent, sum: plus(sum, silent.sum) };
  return { sum, normal, silent, spike };
}

// Step 5: whether ties can be avoided.
function hasLift({ bias }, sums) {
  if (bias) return true;
  const steps = sums.flat();
  if (steps.every((a) => a.reduce((x, y) => x + y) > 0n)) return true;
  return steps[0].some((_, j) => steps.every((a) => a[j] > 0n));
}

// ------------------------------------------------------------------------------- searches (6 to 9)

// The columns that are no linear combinations of columns before them, which are the places of the first entries that
// are not zero of vectors in the row space. Elimination after Bareiss: all divisions are exact.
function pivots(vectors, width) {
  const rows = [];
  for (const vector of vectors) {
    if (rows.length === width) break;
    let rest = vector;
    let divisor = 1n;
    for (const { row, lead, size } of rows) {
      spend(width * size * size);
      const factor = rest[lead];
      const divide = divisor;
      rest = rest.map((entry, j) => (row[lead] * entry - factor * row[j]) / divide);
      divisor = row[lead];
    }
    const lead = rest.findIndex((entry) => entry !== 0n);
    if (lead >= 0) rows.push({ row: rest, lead, size: words(rest[lead]) });
  }
  return rows.map(({ lead }) => lead);
}

// Steps 6 to 9. `family` has what is the same for all searches; the sums of `base` and `trees` are to be shown to be at
// most family.limit in size, with search `number` of the file, which must have fewer columns than `maxColumns`.
function prove(family, base, trees, number, maxColumns) {
  const { wall, lift, width, limit } = family;
  const outputs = base.length;
  const search = number < 0 ? null : family.proofs[number];
  demand(!search || search.columns.length < maxColumns, 'closer: a search with as many columns');
  const isWithin = (sums) => sums.every((sum) => abs(sum) <= limit);

  // What is known about the event of each normal: see `look`.
  const views = new Map();
  const collect = (tree) => {
    if (!tree.normal) return;
    spend(5);
    if (!views.has(tree.normal)) {
      const { head, last } = tree.normal;
      views.set(tree.normal, { vector: [...head, last], time: 0 });
    }
    collect(tree.silent);
    collect(tree.spike);
  };
  trees.forEach(collect);

  // Steps 6 and 7: zero normals, or c = 0, where every event fires.
  let fired = base;
  for (let tree of trees) {
    for (; tree.normal; tree = tree.spike) fired = plus(fired, tree.sum);
    fired = plus(fired, tree.sum);
  }
  demand(isWithin(fired), 'a sum beyond the limit where all events fire');
  const vectors = [...views.values()].map((view) => view.vector);
  if (vectors.every((vector) => vector.every((entry) => entry === 0n))) return;

  // Step 6: coordinates.
  demand(search, 'no search for normals that are not zero');
  const { columns, basis, code, closer } = search;
  const count = columns.length;
  demand(pivots(vectors, width).every((pivot) => columns.includes(pivot)), 'columns: a pivot is missing');
  demand(pivots(basis, count).length === count, 'basis: linearly dependent');
  const hasWall = wall && columns[count - 1] === width - 1; // then the last coordinate is not negative, as is θ
  if (hasWall) {
    const isSplit = basis.every((row, i) => row.every((entry, j) =>
      (i < count - 1 && j < count - 1) || (i === count - 1 && j === count - 1 ? entry > 0n : entry === 0n)));
    demand(isSplit, 'basis: does not keep the threshold apart');
  }
  for (const view of views.values()) {
    view.entries = basis.map((row) => row.reduce((sum, entry, j) => sum + entry * view.vector[columns[j]], 0n));
    view.sizes = view.entries.map(abs);
    view.cost = view.entries.reduce((sum, entry) => sum + words(entry), 0);
    spend(count * view.cost);
  }

  // Step 9: the side of an event on the box of centre m and half sides h, or null if it is open. Views of events are
  // valid for the box of their time.
  const m = Array(count);
  const h = Array(count);
  let time = 0;
  const look = (normal) => {
    const view = views.get(normal);
    if (view.time === time) return view.side;
    spend(view.cost);
    view.time = time;
    view.centre = 0n;
    view.reach = 0n;
    for (let i = 0; i < count; i++) {
      view.centre += view.entries[i] * m[i];
      view.reach += view.sizes[i] * h[i];
    }
    view.side = null;
    if (view.centre >= view.reach) view.side = true;
    else if (view.centre < -view.reach || (lift && view.centre === -view.reach)) view.side = false;
    return view.side;
  };

  // The tree from its first open event on (or its leaf), and the sum up to there.
  const follow = (tree) => {
    let { sum } = tree;
    while (tree.normal) {
      const side = look(tree.normal);
      if (side === null) break;
      tree = side ? tree.spike : tree.silent;
      sum = plus(sum, tree.sum);
      spend(1);
    }
    return [sum, tree];
  };

  // The least and the largest sums of a tree.
  const range = (tree) => {
    const [sum, open] = follow(tree);
    if (!open.normal) return [sum, sum];
    spend(outputs);
    const [least0, largest0] = range(open.silent);
    const [least1, largest1] = range(open.spike);
    const least = sum.map((entry, k) => entry - larger(-least0[k], -least1[k]));
    return [least, sum.map((entry, k) => entry + larger(largest0[k], largest1[k]))];
  };

  const fits = () => {
    let [least, largest] = [base, base];
    for (const tree of trees) {
      const [low, high] = range(tree);
      least = plus(least, low);
      largest = plus(largest, high);
    }
    return isWithin(least) && isWithin(largest);
  };

  // The linear bound, in units of 2^-96. The negative sums are treated as sums of their own.
  const fitsTilted = () => {
    let rest = base;
    const parts = [];
    for (const tree of trees) {
      const [sum, open] = follow(tree);
      rest = plus(rest, sum);
      if (open.normal) parts.push([views.get(open.normal), range(open.silent), range(open.spike)]);
    }
    for (let k = 0; k < outputs; k++) {
      for (const isNegative of [false, true]) {
        const largest = ([low, high]) => (isNegative ? -low[k] : high[k]);
        let flat = isNegative ? -rest[k] : rest[k];
        let tilted = flat << 96n;
        const slope = Array(count).fill(0n);
        for (const [view, onSilence, onSpike] of parts) {
          spend(view.cost + count);
          const a0 = largest(onSilence);
          const a1 = largest(onSpike);
          flat += larger(a0, a1);
          tilted += larger(a0, a1) << 96n;
          let kappa = 0n;
          if (a1 > a0 && view.centre < 0n) kappa = ((a1 - a0) << 96n) / (view.reach - view.centre);
          if (a1 < a0 && view.centre > 0n) kappa = -(((a0 - a1) << 96n) / (view.reach + view.centre));
          if (kappa !== 0n) view.entries.forEach((entry, i) => { slope[i] += kappa * entry; });
        }
        if (flat <= limit) continue;
        slope.forEach((entry, i) => { tilted += entry * m[i] + abs(entry) * h[i]; });
        if (tilted > limit << 96n) return false;
      }
    }
    return true;
  };

  // A closer look: the same sums without the events that are decided on the enlarged box, and without the trees whose
  // least and largest sums are the same there.
  let closerUsed = 0;
  const lookCloser = () => {
    demand(closerUsed < closer.length, 'closer: too short');
    const { factor, number: next } = closer[closerUsed++];
    const sides = [...h];
    h.forEach((side, i) => { if (side === 1n) h[i] = factor; });
    time++;
    let rest = base;
    const parts = [];
    const strip = (tree) => {
      const [sum, open] = follow(tree);
      spend(5);
      const { normal } = open;
      return normal ? { sum, normal, silent: strip(open.silent), spike: strip(open.spike) } : { sum, normal };
    };
    for (const tree of trees) {
      const [least, largest] = range(tree);
      if (least.every((entry, k) => entry === largest[k])) rest = plus(rest, least);
      else parts.push(strip(tree));
    }
    sides.forEach((side, i) => { h[i] = side; });
    prove(family, rest, parts, next, count);
  };

  // Steps 7 and 8: the boxes of each face. Instead of a list of the boxes that wait, `halved` has the coordinates along
  // which the present box was halved: i while in the lower half, and -1 - i in the upper one.
  let at = 0;
  const searchFace = () => {
    const halved = [];
    for (;;) {
      demand(at < code.length, 'code: too short');
      const character = code.codePointAt(at);
      at += character > 0xffff ? 2 : 1;
      time++;
      family.boxes++;
      spend(count);
      const i = character - 97;
      if (i >= 0 && i < count) {
        demand(h[i] >= 2n && h[i] % 2n === 0n, 'code: halves a side that cannot be halved');
        h[i] /= 2n;
        m[i] -= h[i];
        halved.push(i);
        continue;
      }
      if (character === 46) demand(fits(), `a box of search ${number} that does not fit (.)`);
      else if (character === 44) demand(fitsTilted(), `a box of search ${number} that does not fit (,)`);
      else if (character === 33) lookCloser();
      else demand(false, 'code: an unknown character');
      while (halved.length && halved.at(-1) < 0) {
        const j = -1 - halved.pop();
        m[j] -= h[j];
        h[j] *= 2n;
      }
      if (!halved.length) return;
      const j = halved.pop();
      m[j] += 2n * h[j];
      halved.push(-1 - j);
    }
  };
  const side = 1n << BigInt(search.levels);
  for (let i = 0; i < count; i++) {
    for (const end of [side, -side]) {
      if (hasWall && i === count - 1 && end < 0n) continue;
      m.fill(0n);
      h.fill(side);
      if (hasWall) m[count - 1] = h[count - 1] = side / 2n;
      m[i] = end;
      h[i] = 0n;
      searchFace();
    }
  }
  demand(at === code.length, 'code: too long');
  demand(closerUsed === closer.length, 'closer: not used up');
}

// ------------------------------------------------------------------------------- the whole file

function checkProof(text) {
  const proof = readProof(text);
  const sums = leakySums(proof);
  demand(isAtMost(primalValue(proof, sums), asFraction(proof.primal)), 'primal: below the objective');
  demand(isAtMost(asFraction(proof.lower_bound), dualValue(proof)), 'lower_bound: above the bound');
  const trees = growTrees(proof, sums).map((tree) => simplify(tree, [], proof.wall));
  const { wall, width, outputs, proofs } = proof;
  const limit = proof.price_bound * (proof.readout === 'mean' ? BigInt(proof.steps) : 1n);
  const family = { wall, width, proofs, limit, lift: hasLift(proof, sums), boxes: 0 };
  prove(family, Array(outputs).fill(0n), trees, proofs.length - 1, Infinity); // the last search is the one of all trees
  return {
    status: 'accepted',
    reason: '',
    primal: decimal(asFraction(proof.primal), true),
    bound: decimal(asFraction(proof.lower_bound), false),
    boxes: family.boxes,
  };
}

// Any other error than a refusal is not expected. RangeErrors are stacks, lists or integers that became too large.
function verdict(load, operations) {
  operationsLeft = operations;
  try {
    return checkProof(load());
  } catch (error) {
    const isLimit = error instanceof Limit || error instanceof RangeError;
    const reason = error instanceof Limit || error instanceof Refused ? error.message : `unexpected: ${error}`;
    return { status: isLimit ? 'limit' : 'refused', reason };
  }
}

// A byte order mark is kept, for the parser to refuse.
function decode(bytes) {
  if (bytes.length > MAX_BYTES) throw new Limit('size of the file');
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (error) {
    throw error instanceof TypeError ? new Refused('not UTF-8') : error;
  }
}

function loadFile(path) {
  if (statSync(path).size > MAX_BYTES) throw new Limit('size of the file');
  return decode(readFileSync(path));
}

function loadLine(line) {
  const text = JSON.parse(decode(line));
  demand(typeof text === 'string', 'the line is no JSON string');
  if (text.startsWith('@')) return loadFile(text.slice(1));
  demand(!/\p{Surrogate}/u.test(text), 'not Unicode');
  if (Buffer.byteLength(text) > MAX_BYTES) throw new Limit('size of the file');
  return text;
}

export const check = (text, operations = OPERATIONS) => verdict(() => text, operations);

async function main(names) {
  let operations = OPERATIONS;
  const answer = (load) => process.stdout.write(`${JSON.stringify(verdict(load, operations))}\n`);
  if (names[0] === '--limit') operations = Number(names.splice(0, 2)[1]);
  if (names[0] !== '--batch') {
    for (const name of names) answer(() => loadFile(name));
    return;
  }
  let pieces = []; // of the present line
  for await (let chunk of process.stdin) {
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10)) {
      const line = Buffer.concat([...pieces, chunk.subarray(0, end)]);
      answer(() => loadLine(line));
      pieces = [];
      chunk = chunk.subarray(end + 1);
    }
    if (chunk.length) pieces.push(chunk);
  }
  if (pieces.length) answer(() => loadLine(Buffer.concat(pieces)));
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) await main(process.argv.slice(2));
