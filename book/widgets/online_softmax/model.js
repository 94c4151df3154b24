// One query row meets four tiles of eight keys: the online softmax, step by step, in float64.
// All inputs are small binary fractions, so that scores are exact. q is already multiplied by 1/sqrt(d).

export const KEYS = 32;
export const SIZE = 8; // of the head
export const TILE = 8; // keys

const columns = Array.from({ length: SIZE }, (_, c) => c);

export const query = columns.map((c) => (((3 * c + 1) % 8) - 4) / 8);
export const keys = rows((j, c) => (((4 * j + 2 * c + 3 * j * c) % 31) - 15) / 16);
export const values = rows((j, c) => (((5 * j + 3 * c) % 13) - 6) / 8);

function rows(element) {
  return Array.from({ length: KEYS }, (_, j) => columns.map((c) => element(j, c)));
}

function dot(a, b) {
  return a.reduce((sum, x, i) => sum + x * b[i], 0);
}

// The state before the first tile.
export function start() {
  return { m: -Infinity, l: 0, acc: columns.map(() => 0), alpha: null, scores: [], p: [] };
}

// The state after one more tile, whose first key is `begin`.
export function addTile(state, begin) {
  const tile = Array.from({ length: TILE }, (_, i) => begin + i);
  const scores = tile.map((j) => dot(query, keys[j]));
  const m = Math.max(state.m, ...scores);
  const alpha = Math.exp(state.m - m);
  const p = scores.map((s) => Math.exp(s - m));
  const l = alpha * state.l + p.reduce((sum, x) => sum + x, 0);
  const acc = state.acc.map((x, c) => alpha * x + dot(p, tile.map((j) => values[j][c])));
  return { m, l, acc, alpha, scores, p };
}

// All states: before the first tile, and after each.
export function states() {
  const all = [start()];
  for (let begin = 0; begin < KEYS; begin += TILE) all.push(addTile(all.at(-1), begin));
  return all;
}

// The only division.
export function divide(state) {
  return { output: state.acc.map((x) => x / state.l), lse: state.m + Math.log(state.l) };
}
