import assert from "node:assert/strict";
import { test } from "node:test";

import { fixture } from "#tests/fixture.mjs";
import { distribution, draw, uniforms } from "#widgets/sampling/model.js";

test("sampling: probabilities and draws are those of the sampler", () => {
  for (const { example, parameters, probabilities, draws } of fixture.cases) {
    const what = JSON.stringify(parameters);
    const found = distribution(fixture.examples[example], parameters);
    const wanted = new Float64Array(found.probabilities.length);
    for (const [token, p] of probabilities) wanted[token] = p;
    // The sampler computes in float32, and MLX's exp is good to 3e-5; a low temperature enlarges errors of scores.
    const relative = 5e-5 / Math.min(parameters.temperature || 1, 1);
    found.probabilities.forEach((p, token) => {
      assert.ok(Math.abs(p - wanted[token]) <= 1e-7 + relative * wanted[token], `${what}: ${token}: ${p} ${wanted[token]}`);
      if (wanted[token] > 0) assert.equal(found.removedBy[token], "", what);
      if (found.removedBy[token] === "" && wanted[token] === 0) assert.ok(p < 1e-30, `${what}: ${token}`);
    });
    for (const [uniform, token] of draws) assert.equal(draw(found, uniform), token, `${what} at ${uniform}`);
  }
});

test("sampling: a seed gives the same numbers, evenly spread", () => {
  const take = (seed, count) => {
    const next = uniforms(seed);
    return Array.from({ length: count }, next);
  };
  assert.deepEqual(take(3, 5), take(3, 5));
  assert.notDeepEqual(take(3, 5), take(4, 5));
  const tenths = new Array(10).fill(0);
  for (const u of take(1, 10000)) tenths[Math.floor(10 * u)]++;
  for (const count of tenths) assert.ok(Math.abs(count - 1000) < 160, String(tenths)); // 5 standard deviations
});
