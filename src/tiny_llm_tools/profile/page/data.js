// The data of the page: packed numbers, and what is chosen at the moment. Nothing here computes attention.
const data = JSON.parse(document.getElementById("data").textContent);
const tokens = data.tokens;
const length = tokens.length;

function bytes(text) {
  const raw = atob(text);
  const found = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) found[i] = raw.charCodeAt(i);
  return found.buffer;
}

const scores = new Float32Array(bytes(data.scores));
const weights = new Uint16Array(bytes(data.weights));
const entropies = new Float32Array(bytes(data.entropy));
const states = new Float32Array(bytes(data.states));
const results = new Float32Array(bytes(data.results));
const lses = new Float32Array(bytes(data.lse));

const view = { ...data.first, column: data.first.row, step: 0 };
const redraws = [];

// Change what is chosen, then redraw every part of the page.
function choose(changes) {
  Object.assign(view, changes);
  for (const redraw of redraws) redraw(changes);
}

const headNumber = () => view.layer * data.heads + view.head;
const pairs = (length * (length + 1)) / 2;
// Row i holds the keys 0 to i.
const pairAt = (row, key) => headNumber() * pairs + (row * (row + 1)) / 2 + key;
const weightAt = (row, key) => weights[pairAt(row, key)] / data.weight_steps;
const scoreAt = (row, key) => scores[pairAt(row, key)];
const entropyAt = (row) => entropies[headNumber() * length + row];
const lseAt = (row) => lses[headNumber() * length + row];

const stepsOf = (row) => Math.floor(row / data.step) + 1;
const stateStarts = [0];
for (let row = 0; row < length; row++) stateStarts.push(stateStarts[row] + stepsOf(row));

// m, l, alpha and O' of a row after the tile with this number.
function stateAt(row, tile) {
  const width = 3 + data.outputs;
  const start = (headNumber() * stateStarts[length] + stateStarts[row] + tile) * width;
  const [m, l, alpha, ...output] = states.subarray(start, start + width);
  return { m, l, alpha, output };
}

function resultAt(row) {
  const start = (headNumber() * length + row) * data.outputs;
  return Array.from(results.subarray(start, start + data.outputs));
}

// A token with its spaces and line breaks visible.
function shown(token) {
  return token.replace(/ /g, "·").replace(/\n/g, "⏎").replace(/\t/g, "⇥") || "∅";
}

function number(value) {
  if (value === -Infinity) return "−∞";
  const size = Math.abs(value);
  const text = size !== 0 && size < 1e-3 ? value.toExponential(2) : value.toFixed(4);
  return text.replace(/-/g, "−");
}

const element = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const found = Object.assign(document.createElement(tag), properties);
  found.append(...children);
  return found;
}
