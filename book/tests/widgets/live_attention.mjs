import assert from "node:assert/strict";
import { test } from "node:test";

import { close, fixture } from "#tests/fixture.mjs";
import { entropy, hiddenPath, label, looksAt } from "#widgets/live_attention/model.js";

test("live attention: the largest weights and the entropy of a row", () => {
  for (const { row, largest, bits } of fixture.rows) {
    const found = looksAt(row, 4).map(({ key }) => key);
    assert.deepEqual(found, largest);
    close(entropy(row), bits);
  }
});

// The corners of a path of horizontal and vertical lines.
function corners(path) {
  let x = 0;
  let y = 0;
  return Array.from(path.matchAll(/([MHV])([\d.]+)(?: ([\d.]+))?/g), ([, kind, first, second]) => {
    if (kind !== "V") x = Number(first);
    if (kind === "V") y = Number(first);
    if (second) y = Number(second);
    return [x, y];
  });
}

test("live attention: the hidden area has a cell for each pair of a query and a later key", () => {
  for (const { length, hidden } of fixture.areas) {
    const points = corners(hiddenPath(length, 10));
    const twice = points.reduce((sum, [x, y], i) => {
      const [nextX, nextY] = points[(i + 1) % points.length];
      return sum + x * nextY - nextX * y;
    }, 0);
    assert.equal(Math.abs(twice) / 200, hidden);
    for (const [x, y] of points) assert.ok(x >= y, `${x} ${y}`); // on or above the diagonal
  }
});

test("live attention: labels show spaces and breaks, and stay short", () => {
  for (const [token, shown] of Object.entries(fixture.labels)) assert.equal(label(token), shown);
});
