// Files: conversations as JSON, texts in a question; the share of the context; and what a search finds.
import assert from "node:assert/strict";
import test from "node:test";
import { contextOf } from "../../../../src/tiny_llm/server/page/chat/context.js";
import { quoteFile } from "../../../../src/tiny_llm/server/page/chat/file.js";
import { readArchive, writeArchive } from "../../../../src/tiny_llm/server/page/conversations/archive.js";
import * as talk from "../../../../src/tiny_llm/server/page/conversations/conversation.js";
import { isFound } from "../../../../src/tiny_llm/server/page/conversations/search.js";

function answered(question, answer) {
  const conversation = talk.newConversation();
  Object.assign(talk.ask(conversation, question), { text: answer, end: "stop" });
  return conversation;
}

test("conversations come back from a file as they were", () => {
  const conversations = [answered("a", "A"), answered("b", "B")];
  assert.deepEqual(readArchive(writeArchive(conversations)), { conversations, broken: 0 });
});

test("what is no file of conversations, and conversations that are none", () => {
  for (const text of ["", "{", "null", "[]", '{"conversations": []}', '{"format": "tiny-llm conversations"}']) assert.equal(readArchive(text), null);
  const text = '{"format": "tiny-llm conversations", "conversations": [null, 5, {"id": "x"}, {"id": "y", "turns": []}]}';
  const { conversations, broken } = readArchive(text);
  assert.deepEqual([conversations.map(({ id }) => id), broken], [["y"], 3]);
});

test("a file in a question cannot end its block of code", () => {
  assert.equal(quoteFile("a.py", "x\n"), "File `a.py`:\n\n```py\nx\n```");
  assert.equal(quoteFile("`b`\n.", "````\n```"), "File ` b .`:\n\n`````\n````\n```\n`````");
});

test("the share of the context is that of the last answer with numbers", () => {
  const { turns } = answered("a", "A");
  assert.equal(contextOf(turns, 100), null);
  turns[1].usage = { prompt: 80, generated: 9, cached: 0 };
  assert.deepEqual(contextOf(turns, 100), { sentence: "89 % of the context used", nearly: false });
  assert.equal(contextOf([...turns, ...answered("b", "").turns], 98).nearly, true);
  assert.equal(contextOf(turns, undefined), null);
});

test("a search finds all words, anywhere", () => {
  const conversation = answered("About Lighthouses", "They are tall.");
  for (const query of ["", "light", "TALL about", "they  are"]) assert.ok(isFound(conversation, query), query);
  for (const query of ["tall ships", "*"]) assert.ok(!isFound(conversation, query), query);
});
