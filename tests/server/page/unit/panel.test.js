// The text format of Prometheus, the numbers of the panel, and their lines.
import assert from "node:assert/strict";
import test from "node:test";
import { parseMetrics } from "../../../../src/tiny_llm/server/page/panel/parse.js";
import { Reading, Readings } from "../../../../src/tiny_llm/server/page/panel/rates.js";
import { paths } from "../../../../src/tiny_llm/server/page/panel/sparkline.js";

test("names, labels with escapes, and numbers of every form", () => {
  const text = String.raw`# HELP a_total Of something
# TYPE a_total counter
a_total 5
b{model_name="x",le="+Inf"} 1.5e3 1700000000
c{ q="say \"hi\", {you}\\\n" , } -Inf
d NaN

bad line here
e{x=1} 2
f{x="open} 3
`;
  assert.deepEqual(parseMetrics(text), [
    { name: "a_total", labels: {}, value: 5 },
    { name: "b", labels: { model_name: "x", le: "+Inf" }, value: 1500 },
    { name: "c", labels: { q: 'say "hi", {you}\\\n' }, value: -Infinity },
    { name: "d", labels: {}, value: NaN },
  ]);
  assert.deepEqual(parseMetrics(""), []);
});

function reading(time, { tokens = 0, first = [0, 0, 0], queries = 0, hits = 0, running = 0 } = {}) {
  const [quick, all, seconds] = first;
  const lines = [
    `num_requests_running{model_name="a"} ${running}`, `num_requests_running{model_name="b"} 1`,
    `kv_cache_usage_perc{model_name="a"} 0.25`, `kv_cache_usage_perc{model_name="b"} 0.5`,
    `generation_tokens_total{model_name="a"} ${tokens}`, `generation_tokens_total{model_name="b"} 7`,
    `prefix_cache_queries_total ${queries}`, `prefix_cache_hits_total ${hits}`,
    `time_to_first_token_seconds_bucket{le="0.1"} ${quick}`, `time_to_first_token_seconds_bucket{le="+Inf"} ${all}`,
    `time_to_first_token_seconds_count ${all}`, `time_to_first_token_seconds_sum ${seconds}`,
    `request_success_total{finished_reason="stop"} 3`, `request_success_total{finished_reason="error"} 2`,
  ];
  return new Reading(parseMetrics(lines.map((line) => `tiny_llm_${line}`).join("\n") + "\nother_running 9"), time);
}

test("the first reading has gauges and no rates", () => {
  const shown = new Readings().add(reading(0, { running: 2 }));
  assert.deepEqual([shown.running, shown.pages, shown.finished, shown.failed], [3, 0.5, 5, 2]);
  assert.deepEqual([shown.generated, shown.firstToken, shown.slowFirstToken, shown.cached], [null, null, null, null]);
});

test("rates and latencies are differences", () => {
  const readings = new Readings();
  readings.add(reading(10, { tokens: 100, first: [5, 5, 1], queries: 50, hits: 50 }));
  let shown = readings.add(reading(12, { tokens: 150, first: [14, 15, 3], queries: 150, hits: 75 }));
  assert.deepEqual([shown.generated, shown.firstToken, shown.slowFirstToken, shown.cached], [25, 0.2, 0.1, 0.25]);
  shown = readings.add(reading(14, { tokens: 150, first: [14, 25, 13], queries: 150, hits: 75 }));
  assert.deepEqual([shown.generated, shown.slowFirstToken], [0, Infinity]);
});

test("latencies are those of the last half minute", () => {
  const readings = new Readings();
  readings.add(reading(0));
  readings.add(reading(2, { first: [1, 1, 0.05] }));
  let shown;
  for (let time = 4; time <= 40; time += 2) shown = readings.add(reading(time, { first: [1, 1, 0.05] }));
  assert.equal(shown.firstToken, null);
});

test("a restart of the server begins anew", () => {
  const readings = new Readings();
  readings.add(reading(0, { tokens: 100 }));
  assert.equal(readings.add(reading(2, { tokens: 5 })).generated, null);
  assert.equal(readings.add(reading(4, { tokens: 25 })).generated, 10);
});

test("a line has gaps where no value is, and stays in its picture", () => {
  const { line, area } = paths([null, 1, 2, null, 4], 1);
  assert.equal(line.match(/M/g).length, 2);
  assert.equal(area.match(/Z/g).length, 2);
  const heights = [...line.matchAll(/[ML][\d.]+ ([\d.]+)/g)].map(([, y]) => Number(y));
  assert.deepEqual(heights.map((y) => y >= 0 && y <= 36), [true, true, true]);
  assert.ok(heights[0] > heights[1] && heights[1] > heights[2]);
  assert.deepEqual(paths([], 1), { line: "", area: "" });
  assert.deepEqual(paths([0, 0], 1).line.match(/NaN/), null);
});
