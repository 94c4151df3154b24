// The models of the widgets against the fixtures: node --test with FIXTURES naming a JSON file.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { divide, states } from "#widgets/online_softmax/model.js";
import { counts, tiles } from "#widgets/tile_map/model.js";
import { bytes, traffic } from "#widgets/traffic/model.js";

const fixtures = JSON.parse(readFileSync(process.env.FIXTURES));

function close(actual, expected) {
  assert.ok(Math.abs(actual - expected) <= 1e-12 * Math.max(1, Math.abs(expected)), `${actual} ${expected}`);
}

test("online softmax: each state is that of a plain softmax over the keys so far", () => {
  const found = states();
  assert.equal(found.length, fixtures.online_softmax.states.length);
  found.forEach((state, i) => {
    const wanted = fixtures.online_softmax.states[i];
    if (i === 0) return assert.deepEqual([state.m, state.l, state.alpha], [-Infinity, 0, null]);
    close(state.m, wanted.m);
    close(state.l, wanted.l);
    close(state.alpha, wanted.alpha);
    state.acc.forEach((x, c) => close(x, wanted.acc[c]));
  });
  const { output, lse } = divide(found.at(-1));
  output.forEach((x, c) => close(x, fixtures.online_softmax.output[c]));
  close(lse, fixtures.online_softmax.lse);
});

test("tile map: the counts are those of the pairs", () => {
  for (const { call, counts: wanted } of fixtures.tile_map) {
    assert.deepEqual(counts(tiles(call)), wanted, JSON.stringify(call));
  }
});

test("traffic: bytes are those of the arrays that move", () => {
  for (const { call, naive, flash, reread } of fixtures.traffic) {
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
