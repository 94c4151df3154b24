// Events are the same however their bytes are cut.
import assert from "node:assert/strict";
import test from "node:test";
import { EventReader } from "../../../../src/tiny_llm/server/page/chat/sse.js";

const STREAM = 'data: {"a": "ä€😀"}\n\n: keep-alive\n\ndata: one\r\ndata:two\r\n\r\nevent: x\nid: 3\n\nretry: 5\ndata\rdata:  z\r\rdata: [DONE]\n\ndata: not ended';
const EVENTS = ['{"a": "ä€😀"}', "one\ntwo", "\n z", "[DONE]"];
const BYTES = new TextEncoder().encode(STREAM);

for (const size of [1, 2, 3, 5, 7, 16, BYTES.length]) {
  test(`pieces of ${size} bytes`, () => {
    const reader = new EventReader();
    const events = [];
    for (let at = 0; at < BYTES.length; at += size) events.push(...reader.read(BYTES.slice(at, at + size)));
    assert.deepEqual(events, EVENTS);
  });
}

test("two pieces, cut at every place", () => {
  for (let cut = 0; cut <= BYTES.length; cut++) {
    const reader = new EventReader();
    assert.deepEqual([...reader.read(BYTES.slice(0, cut)), ...reader.read(BYTES.slice(cut))], EVENTS);
  }
});
