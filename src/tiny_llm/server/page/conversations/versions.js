// Versions of a conversation: two tabs may change it, and nothing that either has added is lost. Pure.
// A version is how often each tab has stored the conversation: an answer that grows is stored many times, and a tab
// that wakes after it still sees that the stored version came from its own.
import { timeOf } from "./conversation.js";

const KEPT = 32; // tabs that a record names, those that have stored it last
const OPEN = ["running", "interrupted"]; // another tab may still add to such an answer
// What a reader sets, by the time when it was set: of two tabs that set it at the same time, the later one counts.
const SET = { named: ["title"], chosen: ["model", "system", "settings"] };

// The conversation is about to be stored with changes, by the tab of this name. Objects keep the order of such names,
// because they are no numbers: the last one has stored last.
export function renew(conversation, tab) {
  const { [tab]: times = 0, ...others } = conversation.versions;
  conversation.versions = Object.fromEntries([...Object.entries(others), [tab, times + 1]].slice(-KEPT));
}

// Bring a conversation of this tab to what another tab has stored. Returns "same" if that is not new; "taken"; or
// "merged" if both have changed it at the same time, and the stored one lacks something: then store it again.
export function takeOver(conversation, stored) {
  if (includes(conversation.versions, stored.versions)) return "same";
  const knowsMine = includes(stored.versions, conversation.versions);
  const known = new Map(conversation.turns.map((turn) => [turn.id, turn]));
  let lacks = false;
  // The same object for the same turn: it is shown already, and its answer may be coming.
  const turns = stored.turns.map((turn) => {
    const own = known.get(turn.id);
    if (!own) return turn;
    known.delete(turn.id);
    const others = joined(own, turn);
    if (isFurther(own, turn) || others.length > (turn.others ?? []).length) lacks = true;
    if (!isFurther(own, turn) && own.end !== "running") Object.assign(own, turn);
    if (own.role !== "user") own.others = others;
    return own;
  });
  for (const { others = [] } of turns) for (const { id } of others) known.delete(id); // shown in another's place
  const versions = latest(conversation.versions, stored.versions);
  if (!knowsMine && known.size > 0) {
    lacks = true;
    turns.push(...known.values());
    turns.sort((a, b) => timeOf(a) - timeOf(b)); // a question and its answer have the same
  }
  const own = knowsMine ? {} : setLater(conversation, stored); // clocks can be set back
  if (Object.keys(own).length > 0) lacks = true;
  Object.assign(conversation, stored, own, { versions, turns });
  return lacks && !knowsMine ? "merged" : "taken";
}

// Whether a version came from another one, or is the same.
const includes = (version, other) => Object.entries(other).every(([tab, times]) => version[tab] >= times);

// The version that came from both.
function latest(version, other) {
  const both = { ...version };
  for (const [tab, times] of Object.entries(other)) {
    delete both[tab]; // in the order of the other version
    both[tab] = Math.max(version[tab] ?? 0, times);
  }
  return both;
}

// What was set later in a conversation than in another version of it.
function setLater(conversation, other) {
  const times = Object.keys(SET).filter((time) => conversation[time] > other[time]);
  const parts = times.flatMap((time) => [time, ...SET[time]]);
  return Object.fromEntries(parts.map((part) => [part, conversation[part]]));
}

// Whether a turn has more than another state of it: answers grow, and then end; one that has ended may be continued.
function isFurther(turn, other) {
  if (turn.role === "user") return false;
  const more = turn.text.length + turn.reasoning.length - other.text.length - other.reasoning.length;
  return more > 0 || (more === 0 && !OPEN.includes(turn.end) && OPEN.includes(other.end));
}

// The other versions of an answer that either of its states has.
function joined({ others: own = [] }, { others: stored = [] }) {
  const ids = new Set(stored.map(({ id }) => id));
  return [...stored, ...own.filter(({ id }) => !ids.has(id))];
}
