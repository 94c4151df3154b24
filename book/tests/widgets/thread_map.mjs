import assert from "node:assert/strict";
import { test } from "node:test";

import { fixture } from "#tests/fixture.mjs";
import { LANES, columnsOf, keyOf, memory, threadOfColumn, threadOfScore } from "#widgets/thread_map/model.js";

const { S, E, scores, columns, bytes } = fixture;
const number = ({ group, lane }) => group * LANES + lane;
const threads = Array.from({ length: LANES * LANES }, (_, i) => ({ group: Math.floor(i / LANES), lane: i % LANES }));

test("each score and each column has the thread that computed it in the kernel", () => {
  for (let row = 0; row < LANES; row++) {
    for (let key = 0; key < S; key++) assert.equal(number(threadOfScore({ row, key })), scores[row][key]);
    for (let column = 0; column < E; column++)
      assert.equal(number(threadOfColumn({ row, column })), columns[row][column]);
  }
});

test("a thread has the keys and the columns that it computed in the kernel, in its own row", () => {
  for (const thread of threads) {
    const tiles = Array.from({ length: Math.ceil(S / LANES) }, (_, tile) => keyOf(thread, tile, S));
    const keys = [...Array(S).keys()].filter((key) => scores[thread.group][key] === number(thread));
    assert.deepEqual(
      tiles.filter((key) => key !== null),
      keys,
    );
    const mine = [...Array(E).keys()].filter((column) => columns[thread.group][column] === number(thread));
    assert.deepEqual(columnsOf(thread, E), mine);
  }
});

test("the two arrays are the memory that the kernel has", () => {
  assert.equal(memory(E).bytes, bytes);
  assert.equal(memory(E).rows, LANES);
  assert.deepEqual(memory(256), { width: 256, bytes: 2 * bytes, rows: 16 });
});
