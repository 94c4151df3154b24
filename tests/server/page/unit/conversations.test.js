// Conversations: their changes, what is sent, and a storage that is full, closed or broken.
import assert from "node:assert/strict";
import test from "node:test";
import * as talk from "../../../../src/tiny_llm/server/page/conversations/conversation.js";
import { PREFIX, Store } from "../../../../src/tiny_llm/server/page/conversations/store.js";

class Memory {
  constructor(room = Infinity) {
    this.map = new Map();
    this.room = room;
  }
  get length() {
    return this.map.size;
  }
  key(number) {
    return [...this.map.keys()][number] ?? null;
  }
  getItem(name) {
    return this.map.get(name) ?? null;
  }
  setItem(name, text) {
    if (text.length > this.room) throw new DOMException("full", "QuotaExceededError");
    this.map.set(name, text);
  }
  removeItem(name) {
    this.map.delete(name);
  }
}

function answered(...pairs) {
  const conversation = talk.newConversation();
  for (const [question, answer] of pairs) Object.assign(talk.ask(conversation, question), { text: answer, end: "stop" });
  return conversation;
}
const texts = ({ turns }) => turns.map(({ text }) => text);

test("an earlier question is replaced with what came after it", () => {
  const conversation = answered(["a", "A"], ["b", "B"], ["c", "C"]);
  const answer = talk.askInstead(conversation, 2, "b2");
  assert.deepEqual(texts(conversation), ["a", "A", "b2", ""]);
  assert.equal(conversation.turns.at(-1), answer);
});

test("another answer takes the place of the last", () => {
  const conversation = answered(["a", "A"], ["b", "B"]);
  talk.answerAgain(conversation, 3);
  assert.deepEqual(texts(conversation), ["a", "A", "b", ""]);
  assert.equal(conversation.turns[3].end, "running");
});

test("an answer that is replaced stays as a version, unless it is empty", () => {
  const conversation = answered(["a", "A1"]);
  const again = (text) => Object.assign(talk.answerAgain(conversation, 1), { text, end: "stop" });
  again("A2");
  again("");
  const last = again("A3");
  const versions = (answer) => talk.versionsOf(answer).map(({ text }) => text).sort();
  assert.deepEqual(versions(last), ["A1", "A2", "A3"]);
  const shown = talk.showVersion(conversation, last, -1);
  assert.equal(conversation.turns[1], shown);
  assert.deepEqual(versions(shown), ["A1", "A2", "A3"]);
  assert.ok(shown.others.every((one) => !("others" in one)));
  assert.equal(talk.showVersion(conversation, last, -1), null, "it is no longer there");
  assert.deepEqual(talk.readConversation(JSON.stringify(conversation)), conversation);
});

test("what is sent has the system prompt, and no reasoning and no empty answer", () => {
  const conversation = answered(["a", "A"]);
  conversation.turns[1].reasoning = "hidden";
  talk.ask(conversation, "b");
  const messages = [{ role: "user", content: "a" }, { role: "assistant", content: "A" }, { role: "user", content: "b" }];
  assert.deepEqual(talk.messagesOf(conversation), messages);
  conversation.system = "Be brief.";
  assert.deepEqual(talk.messagesOf(conversation), [{ role: "system", content: "Be brief." }, ...messages]);
  conversation.system = "  ";
  assert.deepEqual(talk.messagesOf(conversation), messages);
});

test("a question without an answer but an error is sent once, and with no later one", () => {
  const conversation = answered(["a", "A"]);
  Object.assign(talk.ask(conversation, "too long"), { end: "error" });
  Object.assign(talk.ask(conversation, "half"), { end: "error", text: "has come" });
  talk.ask(conversation, "c");
  assert.deepEqual(talk.messagesOf(conversation).map(({ content }) => content), ["a", "A", "half", "has come", "c"]);
  talk.answerAgain(conversation, 3);
  assert.deepEqual(talk.messagesOf(conversation).map(({ content }) => content), ["a", "A", "too long"]);
});

test("the first question is the title, unless there is a name", () => {
  const conversation = answered(["  What\nis it? ", "A"], ["b", "B"]);
  assert.equal(conversation.title, "What is it?");
  talk.askInstead(conversation, 0, "Other");
  assert.equal(conversation.title, "Other");
  talk.rename(conversation, " Mine ");
  talk.askInstead(conversation, 0, "Third");
  assert.equal(conversation.title, "Mine");
  talk.rename(conversation, "  ");
  assert.equal(conversation.title, "Mine");
  assert.ok([...talk.titleOf("😀".repeat(500))].length <= 49);
});

test("what is stored comes back, and a running answer was interrupted", () => {
  const conversation = answered(["a", "A"]);
  Object.assign(conversation.turns[1], { usage: { prompt: 9, generated: 3, cached: 2 }, times: { first: 0.1, rest: 1, pieces: 3 } });
  talk.ask(conversation, "b").text = "half";
  const back = talk.readConversation(JSON.stringify(conversation));
  assert.equal(back.turns[3].end, "interrupted");
  back.turns[3].end = "running";
  assert.deepEqual(back, conversation);
});

const BROKEN = [
  "", "{", "null", "5", "[]", '"text"', "{}", '{"id":"x"}', '{"id":5,"turns":[]}', '{"id":"x","turns":{}}', '{"id":"x","turns":[null]}',
  '{"id":"x","turns":[{"role":"user"}]}', '{"id":"x","turns":[{"role":"system","text":"a"}]}', '{"id":"x","turns":[{"role":"user","text":5}]}',
];
for (const stored of BROKEN) {
  test(`not a conversation: ${stored || "nothing"}`, () => assert.equal(talk.readConversation(stored), null));
}

test("parts of a wrong type get their defaults", () => {
  const stored = '{"id":"x","title":5,"settings":[],"updated":"now","turns":[{"role":"assistant","text":"a","usage":{"prompt":"1"},"end":"nope"}]}';
  const { title, settings, updated, turns } = talk.readConversation(stored);
  assert.deepEqual([title, settings, updated], ["", {}, 0]);
  assert.deepEqual([turns[0].usage, turns[0].end], [null, "stop"]);
});

test("broken records are named, and the others are there, the latest first", () => {
  const store = new Store(new Memory());
  const [older, newer] = [answered(["a", "A"]), answered(["b", "B"])];
  [older.updated, newer.updated] = [1, 2];
  store.save(older);
  store.save(newer);
  store.write(`${PREFIX}broken`, "{");
  store.write(`${PREFIX}moved`, JSON.stringify(older));
  store.write("another page's", "{");
  const { conversations, broken } = store.load();
  assert.deepEqual(conversations.map(({ id }) => id), [newer.id, older.id]);
  assert.deepEqual(broken, [`${PREFIX}broken`, `${PREFIX}moved`]);
  assert.deepEqual(store.find(older.id), older);
  store.remove(PREFIX + older.id);
  assert.equal(store.find(older.id), null);
});

test("a full or closed storage refuses without an exception", () => {
  assert.equal(new Store(new Memory(10)).save(answered(["a", "A"])), false);
  const refuse = () => {
    throw new DOMException("closed", "SecurityError");
  };
  const closed = new Store({ get length() { return refuse(); }, key: refuse, getItem: refuse, setItem: refuse, removeItem: refuse });
  assert.deepEqual(closed.load(), { conversations: [], broken: [] });
  assert.equal(closed.save(answered(["a", "A"])), false);
  assert.equal(closed.read("x"), null);
  assert.doesNotThrow(() => closed.remove("x"));
});
