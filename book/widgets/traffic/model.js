// Bytes between memory and the chip for one attention layer in 16 bit: forward, one sequence, no mask.

const BYTES = 2;

// tokens T, heads h, head size d, rows of a query tile.
export function traffic({ tokens, heads, size, tile }) {
  const row = BYTES * heads * size;
  const inputs = 4 * row * tokens; // Q, K and V are read, O is written
  const matrix = BYTES * heads * tokens ** 2;
  const naive = inputs + 4 * matrix; // scores and weights are each written and read
  // Q and O once; K and V once for each tile of queries.
  const reread = 2 * row * tokens * (1 + Math.ceil(tokens / tile));
  return { inputs, matrices: 4 * matrix, naive, flash: inputs, reread, ratio: naive / inputs };
}

// 8388608 -> "8.389 MB", with four digits.
export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) {
    count /= 1000;
    unit++;
  }
  return `${unit === 0 ? count : count.toPrecision(4)} ${units[unit]}`;
}
