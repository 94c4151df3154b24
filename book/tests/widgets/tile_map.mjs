import assert from "node:assert/strict";
import { test } from "node:test";

import { fixture } from "#tests/fixture.mjs";
import { counts, tiles } from "#widgets/tile_map/model.js";

test("tile map: the counts are those of the pairs", () => {
  for (const { call, counts: wanted } of fixture) {
    assert.deepEqual(counts(tiles(call)), wanted, JSON.stringify(call));
  }
});
