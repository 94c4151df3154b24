// Which thread of the readable Metal kernel computes what: the indices of flash_attention.metal.
// A thread is { group, lane }: the lane of a SIMD group. SIMD group r owns row r of the tile of queries.

export const LANES = 32; // also the SIMD groups of a threadgroup, the rows of its tile and the keys of a tile
export const COLUMNS = 128; // of the arrays q and o
export const LIMIT = 32768; // bytes of threadgroup memory

const FLOAT = 4; // bytes

// The key whose score a thread computes in a tile of keys; null beyond the last of S keys.
export function keyOf({ lane }, tile, S) {
  const key = tile * LANES + lane;
  return key < S ? key : null;
}

export function threadOfScore({ row, key }) {
  return { group: row, lane: key % LANES };
}

// The columns of its row of O that a thread computes.
export function columnsOf({ lane }, E) {
  const columns = [];
  for (let column = lane; column < E; column += LANES) columns.push(column);
  return columns;
}

export function threadOfColumn({ row, column }) {
  return { group: row, lane: column % LANES };
}

// The threadgroup memory of q and o for heads of E columns, and the rows of queries for which it suffices.
export function memory(E) {
  const width = Math.max(E, COLUMNS);
  return { width, bytes: 2 * LANES * width * FLOAT, rows: Math.min(LANES, LIMIT / (2 * width * FLOAT)) };
}
