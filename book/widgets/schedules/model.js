// What FlashAttention's two loop orders move between memory and chip, one score tile a step. Both compute the
// same tiles. V1 has the loop over keys outside, V2 the loop over queries.

const ROWS = 64; // of a tile, queries or keys
const SIZE = 64; // of the head
const FLOAT = 4;

// Bytes of one tile of each kind. A state has m, l and O' of its rows.
export const BYTES = {
  Q: ROWS * SIZE * FLOAT,
  K: ROWS * SIZE * FLOAT,
  V: ROWS * SIZE * FLOAT,
  state: ROWS * (SIZE + 2) * FLOAT,
  O: ROWS * SIZE * FLOAT,
};
export const KINDS = Object.keys(BYTES);

// Whether a query of tile i sees a key of tile j. The last query is at the position of the last key.
export function sees(i, j, { queryTiles, keyTiles, causal }) {
  return !causal || j <= i + keyTiles - queryTiles;
}

const numbers = (count) => Array.from({ length: count }, (_, i) => i);
const move = (way) => (kind, tile) => ({ way, kind, tile });
const read = move("read");
const write = move("write");

// The steps of a loop order: the tile [i, j] that is computed, and what is moved for it. In the last step no
// tile is left. A loop order has as many steps as the other.
export function steps(order, call) {
  return order === "V1" ? stepsV1(call) : stepsV2(call);
}

function stepsV1(call) {
  const queries = numbers(call.queryTiles);
  const all = [];
  let moves = queries.map((i) => write("state", i)); // empty states
  for (const j of numbers(call.keyTiles)) {
    moves.push(read("K", j), read("V", j));
    for (const i of queries.filter((i) => sees(i, j, call))) {
      moves.push(read("Q", i), read("state", i), write("state", i));
      all.push({ visit: [i, j], moves });
      moves = [];
    }
  }
  all.push({ visit: null, moves: queries.flatMap((i) => [read("state", i), write("O", i)]) });
  return all;
}

function stepsV2(call) {
  const all = [];
  let before = []; // outputs of queries that see no key
  for (const i of numbers(call.queryTiles)) {
    const keys = numbers(call.keyTiles).filter((j) => sees(i, j, call));
    if (keys.length === 0) before.push(write("O", i));
    for (const j of keys) {
      const moves = [...before, ...(j === keys[0] ? [read("Q", i)] : []), read("K", j), read("V", j)];
      if (j === keys.at(-1)) moves.push(write("O", i));
      all.push({ visit: [i, j], moves });
      before = [];
    }
  }
  all.push({ visit: null, moves: [] });
  return all;
}

// Tiles read and written by some steps, by kind, and the bytes of all.
export function counts(done) {
  const result = { read: {}, written: {}, bytes: 0 };
  for (const kind of KINDS) result.read[kind] = result.written[kind] = 0;
  for (const { way, kind } of done.flatMap((step) => step.moves)) {
    result[way === "read" ? "read" : "written"][kind]++;
    result.bytes += BYTES[kind];
  }
  return result;
}
