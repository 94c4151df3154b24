// Versions: what a tab takes over from another one, and that no turn is lost when both write at the same time.
import assert from "node:assert/strict";
import test from "node:test";
import * as talk from "../../../../src/tiny_llm/server/page/conversations/conversation.js";
import { renew, takeOver } from "../../../../src/tiny_llm/server/page/conversations/versions.js";

// A conversation in two tabs: each entry of the result is its object in one of them.
function inTwoTabs() {
  const first = talk.newConversation({}, 1000);
  answer(first, "a", 1000);
  renew(first, "tab 1");
  return [first, read(first)];
}
const read = (conversation) => talk.readConversation(JSON.stringify(conversation));
const texts = ({ turns }) => turns.map(({ text }) => text);

function answer(conversation, question, now, end = "stop") {
  return Object.assign(talk.ask(conversation, question, now), { text: question.toUpperCase(), end });
}

test("what another tab has added is taken over, once", () => {
  const [first, second] = inTwoTabs();
  answer(second, "b", 2000);
  renew(second, "tab 2");
  const shown = first.turns[0];
  assert.equal(takeOver(first, read(second)), "taken");
  assert.deepEqual(texts(first), ["a", "A", "b", "B"]);
  assert.equal(first.turns[0], shown, "a turn that is known stays the same object");
  assert.equal(takeOver(first, read(second)), "same");
});

test("a late event about an older version changes nothing", () => {
  const [first, second] = inTwoTabs();
  const older = read(first);
  answer(first, "b", 2000);
  renew(first, "tab 1");
  assert.equal(takeOver(first, older), "same");
  assert.deepEqual(texts(first), ["a", "A", "b", "B"]);
  assert.equal(takeOver(second, read(first)), "taken");
});

test("what another tab has removed is gone", () => {
  const [first, second] = inTwoTabs();
  talk.askInstead(second, 0, "z", 2000);
  renew(second, "tab 2");
  assert.equal(takeOver(first, read(second)), "taken");
  assert.deepEqual(texts(first), ["z", ""]);
});

test("what another tab has removed stays gone, however often it has stored the answer that came then", () => {
  const [first, second] = inTwoTabs();
  renew(second, "tab 2");
  takeOver(first, read(second));
  const turn = talk.askInstead(first, 0, "z", 2000);
  for (let seconds = 0; seconds < 100; seconds++) {
    turn.text += "Z";
    renew(first, "tab 1");
  }
  assert.equal(takeOver(second, read(first)), "taken");
  assert.deepEqual(texts(second), ["z", turn.text]);
});

test("a record names the tabs that have stored it last, each once", () => {
  const [conversation] = inTwoTabs();
  for (let tab = 2; tab < 100; tab++) for (let time = 0; time < 3; time++) renew(conversation, `tab ${tab}`);
  assert.equal(Object.keys(conversation.versions).length, 32);
  assert.equal(conversation.versions["tab 99"], 3);
  assert.deepEqual(read(conversation).versions, conversation.versions);
});

test("questions of the same moment are all kept, in the same order in both tabs, which then rest", () => {
  const [first, second] = inTwoTabs();
  answer(first, "b", 2000);
  answer(second, "c", 2001);
  renew(first, "tab 1");
  renew(second, "tab 2");
  const stored = [read(first), read(second)];
  const tabs = [first, second];
  tabs.forEach((tab, number) => {
    if (takeOver(tab, stored[1 - number]) === "merged") renew(tab, `tab ${number + 1}`);
  });
  for (let round = 0; round < 2; round++) {
    const [one, other] = [read(first), read(second)];
    assert.notEqual(takeOver(first, other), "merged");
    assert.notEqual(takeOver(second, one), "merged");
  }
  for (const tab of tabs) assert.deepEqual(texts(tab), ["a", "A", "b", "B", "c", "C"]);
});

test("the text of an answer that comes is that of its tab, and an end is never taken back", () => {
  const [first, second] = inTwoTabs();
  const turn = Object.assign(talk.ask(first, "b", 2000), { text: "B" });
  renew(first, "tab 1");
  takeOver(second, read(first));
  assert.equal(second.turns[3].end, "interrupted");
  turn.text = "B and more";
  talk.rename(second, "Mine");
  renew(second, "tab 2");
  assert.equal(takeOver(first, read(second)), "taken");
  assert.deepEqual([first.title, turn.text, turn.end], ["Mine", "B and more", "running"]);
  assert.equal(first.turns[3], turn);
  turn.end = "length";
  renew(first, "tab 1");
  renew(second, "tab 2"); // without having seen it
  assert.equal(takeOver(first, read(second)), "merged");
  assert.deepEqual([turn.text, turn.end], ["B and more", "length"]);
});

test("an answer that another tab continues is taken over while it grows, and its end", () => {
  const [first, second] = inTwoTabs();
  const turn = first.turns[1];
  turn.end = "length";
  Object.assign(talk.goOn(second, second.turns[1]), { text: "A and" });
  renew(second, "tab 2");
  assert.equal(takeOver(first, read(second)), "taken");
  assert.deepEqual([turn.text, turn.end], ["A and", "interrupted"]);
  second.turns[1].end = "stop";
  renew(second, "tab 2");
  assert.equal(takeOver(first, read(second)), "taken");
  assert.deepEqual([turn.text, turn.end], ["A and", "stop"]);
});

test("the begin of an answer does not replace what a tab has continued", () => {
  const [first, second] = inTwoTabs();
  Object.assign(talk.goOn(first, first.turns[1]), { text: "A and more", end: "stopped" });
  renew(first, "tab 1");
  answer(second, "b", 2000);
  renew(second, "tab 2");
  assert.equal(takeOver(first, read(second)), "merged");
  assert.deepEqual(texts(first), ["a", "A and more", "b", "B"]);
});

test("versions of an answer that two tabs have made and chosen at the same time are all kept", () => {
  const [first, second] = inTwoTabs();
  const again = (conversation, text, now) => Object.assign(talk.answerAgain(conversation, 1, now), { text, end: "stop" });
  const made = again(first, "A2", 2000);
  talk.showVersion(first, made, -1);
  renew(first, "tab 1");
  talk.rename(second, "Mine", 2001);
  renew(second, "tab 2");
  assert.equal(takeOver(first, read(second)), "merged");
  assert.deepEqual(talk.versionsOf(first.turns[1]).map(({ text }) => text), ["A", "A2"]);
  again(second, "A3", 2002);
  renew(second, "tab 2");
  takeOver(first, read(second));
  assert.deepEqual(texts(first), ["a", "A3"], "the shown one has not become a turn of its own");
});

test("conversations of older versions of the page have turns that all tabs know by the same names", () => {
  const stored = '{"id":"x","turns":[{"role":"user","text":"a"},{"role":"assistant","text":"A","end":"stop"}]}';
  const [first, second] = [talk.readConversation(stored), talk.readConversation(stored)];
  assert.equal(takeOver(first, second), "same");
  answer(first, "b", 2000);
  answer(second, "c", 2001);
  renew(first, "tab 1");
  renew(second, "tab 2");
  assert.equal(takeOver(first, read(second)), "merged");
  assert.deepEqual(texts(first), ["a", "A", "b", "B", "c", "C"]);
});

test("a name and settings of the same moment as another tab's question are kept, in both tabs", () => {
  const [first, second] = inTwoTabs();
  talk.rename(first, "Mine", 2000);
  renew(first, "tab 1");
  talk.configure(second, { system: "Be brief.", settings: { seed: 1 } }, 2001);
  answer(second, "b", 2002);
  renew(second, "tab 2");
  const [one, other] = [read(first), read(second)];
  assert.equal(takeOver(first, other), "merged");
  renew(first, "tab 1");
  assert.equal(takeOver(second, one), "merged");
  renew(second, "tab 2");
  assert.notEqual(takeOver(first, read(second)), "merged");
  for (const { title, system, settings, turns } of [first, second, read(first)])
    assert.deepEqual([title, system, settings, turns.length], ["Mine", "Be brief.", { seed: 1 }, 4]);
});

test("of two names the later one stays", () => {
  const [first, second] = inTwoTabs();
  talk.rename(second, "Later", 2001);
  renew(second, "tab 2");
  talk.rename(first, "Earlier", 2000);
  renew(first, "tab 1");
  const [one, other] = [read(first), read(second)];
  assert.equal(takeOver(second, one), "merged");
  takeOver(first, other);
  assert.deepEqual([first.title, second.title], ["Later", "Later"]);
});

test("a name that follows another one counts, even if the clock was set back", () => {
  const [first, second] = inTwoTabs();
  talk.rename(first, "Mine", 2000);
  renew(first, "tab 1");
  takeOver(second, read(first));
  talk.rename(second, "Yours", 1000);
  renew(second, "tab 2");
  assert.equal(takeOver(first, read(second)), "taken");
  assert.equal(first.title, "Yours");
});

test("a name of an older version of the page was given, too", () => {
  const conversation = talk.readConversation('{"id":"x","title":"Mine","named":true,"turns":[]}');
  talk.ask(conversation, "a");
  assert.equal(conversation.title, "Mine");
});
