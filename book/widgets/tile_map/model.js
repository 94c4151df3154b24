// Which tiles of the score matrix attention computes. The last query is at the position of the last key.

export const HIDDEN = "hidden"; // no pair of the tile is visible: skipped
export const BOUNDARY = "boundary"; // some pairs are: the mask is applied
export const WHOLE = "whole"; // all pairs are: no mask is needed

// The first and the last key that query i sees; first > last: none. A window without causal is centred.
export function visible(i, { L, S, causal, window }) {
  const at = i + S - L; // the key at the query's own position
  const left = window ? (causal ? window - 1 : Math.floor(window / 2)) : Infinity;
  const right = causal ? 0 : window ? Math.floor((window - 1) / 2) : Infinity;
  return [Math.max(at - left, 0), Math.min(at + right, S - 1)];
}

// The state of each tile, as rows of tiles of queries.
export function tiles(call) {
  const { L, S, rows, columns } = call;
  const map = [];
  for (let top = 0; top < L; top += rows) {
    const queries = Array.from({ length: Math.min(rows, L - top) }, (_, i) => visible(top + i, call));
    const line = [];
    for (let left = 0; left < S; left += columns) {
      const end = Math.min(left + columns, S) - 1;
      const some = queries.some(([first, last]) => first <= last && first <= end && last >= left);
      const whole = queries.every(([first, last]) => first <= left && last >= end);
      line.push(whole ? WHOLE : some ? BOUNDARY : HIDDEN);
    }
    map.push(line);
  }
  return map;
}

export function counts(map) {
  const all = map.flat();
  const boundary = all.filter((tile) => tile === BOUNDARY).length;
  const visited = all.filter((tile) => tile !== HIDDEN).length;
  return { visited, boundary, skipped: all.length - visited, total: all.length };
}
