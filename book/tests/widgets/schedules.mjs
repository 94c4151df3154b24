import assert from "node:assert/strict";
import { test } from "node:test";

import { fixture } from "#tests/fixture.mjs";
import { BYTES, KINDS, counts, steps } from "#widgets/schedules/model.js";

test("schedules: every step computes and moves what the Python schedule does", () => {
  for (const { call, orders } of fixture) {
    for (const [order, wanted] of Object.entries(orders)) {
      const found = steps(order, call);
      const name = `${order} ${JSON.stringify(call)}`;
      assert.deepEqual(found.map(({ visit }) => visit), wanted.map(({ visit }) => visit), name);
      wanted.forEach(({ read, written }, t) => {
        const so = counts(found.slice(0, t + 1));
        assert.deepEqual([so.read, so.written], [read, written], `${name} step ${t + 1}`);
      });
    }
  }
});

test("schedules: the bytes are those of pdm bench schedules", () => {
  for (const { call, kvBytes, stateBytes } of fixture) {
    for (const order of ["V1", "V2"]) {
      const all = counts(steps(order, call));
      const moved = (kind) => (all.read[kind] + all.written[kind]) * BYTES[kind];
      assert.equal(moved("K") + moved("V"), kvBytes[order]);
      // The benchmark counts the loop alone: V1 also fills its states before, and divides them afterwards.
      const around = order === "V1" ? 2 * call.queryTiles * BYTES.state : 0;
      assert.equal(moved("state") - around, stateBytes[order]);
      assert.equal(all.bytes, KINDS.map(moved).reduce((sum, bytes) => sum + bytes));
    }
  }
});
