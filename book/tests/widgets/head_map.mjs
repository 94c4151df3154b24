import assert from "node:assert/strict";
import { test } from "node:test";

import { fixture } from "#tests/fixture.mjs";
import { cacheBytes, divisors, foreign, kvHead } from "#widgets/head_map/model.js";

test("head map: every query head reads the KV head of the attention in Python", () => {
  for (const { call, reads, dealt, others } of fixture.maps) {
    const heads = reads.map((_, h) => h);
    assert.deepEqual(heads.map((h) => kvHead(h, call)), reads);
    assert.deepEqual(heads.map((h) => kvHead(h, call, true)), dealt);
    assert.deepEqual(foreign(call), others);
  }
});

test("head map: the cache has the bytes of the arrays", () => {
  for (const { kvHeads, size, bytes } of fixture.caches) assert.equal(cacheBytes(kvHeads, size), bytes);
});

test("head map: KV heads to choose from divide the query heads", () => {
  for (const [n, wanted] of fixture.divisors) assert.deepEqual(divisors(n), wanted);
});
