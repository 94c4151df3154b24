import assert from "node:assert/strict";
import { test } from "node:test";

import { close, fixture } from "#tests/fixture.mjs";
import { axis, decades, extent, roof, share } from "#widgets/roofline/model.js";

test("a share is that of the record", () => {
  assert.ok(fixture.length > 200);
  for (const { point, share: recorded } of fixture) close(share(point), recorded);
});

test("the limit is the lower ceiling", () => {
  const row = { flops: 2e9, bytes: 1e9, peak: 100, bandwidth: 30 };
  assert.deepEqual(roof(row), { intensity: 2, ceiling: 60, limit: "memory" });
  assert.deepEqual(roof({ ...row, flops: 4e9 }), { intensity: 4, ceiling: 100, limit: "arithmetic" });
  assert.deepEqual(roof({ ...row, bandwidth: null }), { intensity: 2, ceiling: 100, limit: "arithmetic" });
});

test("axes go from power to power of ten", () => {
  assert.deepEqual(extent([3, 40, 999]), [1, 1000]);
  assert.deepEqual(extent([1, 1000]), [1, 1000]);
  assert.deepEqual(extent([1, 900], 1.5), [1, 10000]);
  assert.deepEqual(decades([0.1, 100]), [0.1, 1, 10, 100]);
  const x = axis([1, 100], 10, 30);
  assert.deepEqual([1, 10, 100].map(x).map(Math.round), [10, 20, 30]);
});
