// What a test of a model compares with: FIXTURE names a JSON file that the test in Python wrote.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

export const fixture = JSON.parse(readFileSync(process.env.FIXTURE));

export function close(actual, expected) {
  assert.ok(Math.abs(actual - expected) <= 1e-12 * Math.max(1, Math.abs(expected)), `${actual} ${expected}`);
}
