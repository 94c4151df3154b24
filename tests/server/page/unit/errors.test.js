// Errors of the server as sentences.
import assert from "node:assert/strict";
import test from "node:test";
import { AnswerError, errorOf, sentenceOf } from "../../../../src/tiny_llm/server/page/chat/errors.js";

const answer = (status, body, headers = {}) => new Response(body, { status, headers });

test("the parts of an answer that is not 200", async () => {
  const body = '{"error": {"message": "too many", "type": "rate_limit_error", "param": null, "code": "queue_full"}}';
  const error = await errorOf(answer(429, body, { "retry-after": "3", "x-request-id": "req_1" }));
  assert.deepEqual([error.status, error.code, error.message, error.wait, error.requestId], [429, "queue_full", "too many", 3, "req_1"]);
  assert.match(sentenceOf(error), /Too many requests/);
});

test("an answer of something else than the server, such as a proxy", async () => {
  for (const body of ["<html>502</html>", "", "null", "[]", '{"error": null}', '{"error": {"message": null, "code": null}}']) {
    assert.equal(sentenceOf(await errorOf(answer(502, body))), "The server failed to answer.");
    assert.equal(sentenceOf(await errorOf(answer(418, body))), "The server answered 418.");
  }
});

test("a refusal has the server's words, a failure the id of its log", () => {
  assert.match(sentenceOf(new AnswerError({ status: 400, code: "invalid_value", message: "top_p: expected 1" })), /top_p: expected 1/);
  assert.match(sentenceOf(new AnswerError({ status: 500, code: "internal_error", requestId: "req_7" })), /req_7/);
  assert.match(sentenceOf(new AnswerError({ code: "unreachable" })), /cannot be reached/);
  assert.match(sentenceOf(new TypeError("x is not a function")), /x is not a function/);
});
