import assert from "node:assert/strict";
import { test } from "node:test";

import { close, fixture } from "#tests/fixture.mjs";
import { bars, budgetSteps, figures, fit, rowsOf, staticSteps, stepAt } from "#widgets/batch_timeline/model.js";

function equal(found, wanted, label) {
  assert.equal(found.length, wanted.length, label);
  found.forEach((step, i) => {
    assert.deepEqual(step.rows, wanted[i].rows, `${label}, step ${i}`);
    assert.equal(step.padding, wanted[i].padding, `${label}, step ${i}`);
    close(step.ms, wanted[i].ms);
  });
}

const made = ({ requests, places, budget }) => ({
  budget: budgetSteps(requests, places, budget, fixture.cost),
  static: staticSteps(requests, places, fixture.cost),
});

test("batches: the steps are those of the scheduler, and of a rectangle", () => {
  for (const load of fixture.loads) {
    for (const [name, steps] of Object.entries(made(load))) equal(steps, load.runs[name].steps, name);
  }
});

test("batches: the figures are those of the times of all tokens", () => {
  for (const load of fixture.loads) {
    for (const { steps, figures: wanted } of Object.values(load.runs)) {
      const found = figures(load.requests, steps);
      assert.deepEqual(found.output, wanted.output);
      for (const key of ["duration", "rate", "meanFirst", "lastFirst", "largestGap", "padding"]) close(found[key], wanted[key]);
    }
  }
});

test("batches: the bars of a request follow each other, and have one decode for each further token", () => {
  for (const load of fixture.loads) {
    for (const steps of Object.values(made(load))) {
      bars(load.requests, steps).forEach((row, number) => {
        row.forEach((bar, i) => assert.ok(bar.to > bar.from && (i === 0 || bar.from >= row[i - 1].to - 1e-9)));
        const kinds = row.map(({ kind }) => kind);
        assert.equal(kinds.filter((kind) => kind === "decode").length, load.requests[number].output - 1);
        assert.ok(kinds.includes("prompt"));
        assert.ok(row[0].from === 0);
      });
    }
  }
});

test("batches: the line is that of least squares", () => {
  const found = fit(fixture.steps);
  assert.ok(Math.abs(found.base - fixture.fit.base) < 1e-9);
  assert.ok(Math.abs(found.perToken - fixture.fit.perToken) < 1e-9);
});

test("batches: a time is in the step that runs then", () => {
  const steps = [{ ms: 2 }, { ms: 3 }];
  assert.deepEqual([0, 1.9, 2, 4.9, 5].map((ms) => stepAt(steps, ms)), [0, 0, 1, 1, null]);
  assert.equal(rowsOf([[0, 4, 0], [1, 1, 1]]), 5);
});
