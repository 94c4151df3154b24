import assert from "node:assert/strict";
import { test } from "node:test";

import { fixture } from "#tests/fixture.mjs";
import { bytes, traffic } from "#widgets/traffic/model.js";

test("traffic: bytes are those of the arrays that move", () => {
  for (const { call, naive, flash, reread } of fixture) {
    const found = traffic(call);
    assert.deepEqual([found.naive, found.flash, found.reread], [naive, flash, reread], JSON.stringify(call));
    assert.equal(found.ratio, 1 + call.tokens / call.size);
  }
});

test("bytes are shown with four digits", () => {
  assert.equal(bytes(8388608), "8.389 MB");
  assert.equal(bytes(17448304640), "17.45 GB");
  assert.equal(bytes(12), "12 B");
});
