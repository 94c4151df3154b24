import assert from "node:assert/strict";
import { test } from "node:test";

import { close, fixture } from "#tests/fixture.mjs";
import { divide, states } from "#widgets/online_softmax/model.js";

test("online softmax: each state is that of a plain softmax over the keys so far", () => {
  const found = states();
  assert.equal(found.length, fixture.states.length);
  found.forEach((state, i) => {
    const wanted = fixture.states[i];
    if (i === 0) return assert.deepEqual([state.m, state.l, state.alpha], [-Infinity, 0, null]);
    close(state.m, wanted.m);
    close(state.l, wanted.l);
    close(state.alpha, wanted.alpha);
    state.acc.forEach((x, c) => close(x, wanted.acc[c]));
  });
  const { output, lse } = divide(found.at(-1));
  output.forEach((x, c) => close(x, fixture.output[c]));
  close(lse, fixture.lse);
});
