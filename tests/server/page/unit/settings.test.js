// Sampling settings: ranges, and the fields of a request; the sentence below an answer.
import assert from "node:assert/strict";
import test from "node:test";
import { statsOf } from "../../../../src/tiny_llm/server/page/chat/stats.js";
import { FIELDS, readField, requestFields } from "../../../../src/tiny_llm/server/page/settings/fields.js";

const field = (name) => FIELDS.find((one) => one.name === name);

const ALLOWED = { temperature: ["0", "2", "0.7", " 1,5 "], top_p: ["1", "0.01"], max_tokens: ["1", "2147483647"], seed: ["-1", "0", "9007199254740991"], top_k: ["1"], min_p: ["0", "1"], repetition_penalty: ["0.5", "1.1"] };
const REFUSED = { temperature: ["-0.1", "2.1", "x", "NaN", "1 2", "Infinity"], top_p: ["0", "1.1"], max_tokens: ["0", "1.5", "2147483648", "-1"], seed: ["1.5", "9007199254740993", "1e30"], top_k: ["0", "-1"], min_p: ["-1"], repetition_penalty: ["0"] };

for (const { name } of FIELDS) {
  test(`${name}: what is allowed`, () => {
    for (const text of ALLOWED[name]) assert.equal(readField(field(name), text).value, Number(text.replace(",", ".")), text);
    assert.deepEqual(readField(field(name), " "), { value: undefined });
  });
  test(`${name}: what is refused, with what is expected`, () => {
    for (const text of REFUSED[name]) assert.match(readField(field(name), text).problem ?? "", /^Expected a (whole )?number .+\d.*\.$/, text);
  });
}

test("a request has the chosen fields only, and no stored nonsense", () => {
  assert.deepEqual(requestFields({}), {});
  const settings = { temperature: 0, top_p: 0.9, seed: 5, max_tokens: -3, top_k: "x", min_p: null, other: 1, thinking: true };
  assert.deepEqual(requestFields(settings), { temperature: 0, top_p: 0.9, seed: 5, chat_template_kwargs: { enable_thinking: true } });
});

test("an answer's length, speed and share of the cache", () => {
  const usage = { prompt: 50, generated: 41, cached: 32 };
  const times = { first: 0.25, rest: 2, pieces: 41 };
  assert.deepEqual(statsOf({ end: "stop", usage, times }), ["41 tokens", "20 tokens/s", "first token after 250 ms", "64 % of the prompt from the cache"]);
  assert.deepEqual(statsOf({ end: "stopped", usage: null, times }), ["first token after 250 ms", "stopped"]);
  const atOnce = { usage, times: { first: 0.4, rest: 0.01, pieces: 1 } };
  assert.equal(statsOf({ end: "stop", ...atOnce })[1], "100 tokens/s");
  const one = { usage: { ...usage, generated: 1 }, times: { ...times, first: 2.5, rest: 0 } };
  assert.deepEqual(statsOf({ end: "length", ...one }), ["1 token", "first token after 2.5 s", "64 % of the prompt from the cache", "reached the maximum length"]);
  assert.deepEqual(statsOf({ end: "error", usage: null, times: null }), []);
});
