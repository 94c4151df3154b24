// Versions of a conversation: two tabs may change it, and nothing that either has added is lost. Pure.
import { newId } from "./conversation.js";

const KEPT = 32; // versions that a record names, the newest first
const OPEN = ["running", "interrupted"]; // another tab may still add to such an answer

// The conversation is about to be stored with changes.
export function renew(conversation, now = Date.now()) {
  conversation.versions = [newId(now), ...conversation.versions].slice(0, KEPT);
}

// Bring a conversation of this tab to what another tab has stored. Returns "same" if that is not new; "taken"; or
// "merged" if both have changed it at the same time, and the stored one lacks something: then store it again.
export function takeOver(conversation, stored) {
  const [mine] = conversation.versions;
  const [theirs] = stored.versions;
  if (theirs === mine || conversation.versions.includes(theirs)) return "same";
  const knowsMine = mine === undefined || stored.versions.includes(mine);
  const known = new Map(conversation.turns.map((turn) => [turn.id, turn]));
  let lacks = false;
  // The same object for the same turn: it is shown already, and its answer may be coming.
  const turns = stored.turns.map((turn) => {
    const own = known.get(turn.id);
    if (!own) return turn;
    known.delete(turn.id);
    if (isFurther(own, turn)) lacks = true;
    else if (own.end !== "running") Object.assign(own, turn);
    return own;
  });
  const versions = knowsMine ? stored.versions : [...new Set([...stored.versions.slice(0, 1), mine, ...stored.versions])].slice(0, KEPT);
  if (!knowsMine && known.size > 0) {
    lacks = true;
    turns.push(...known.values());
    turns.sort((a, b) => timeOf(a) - timeOf(b)); // a question and its answer have the same
  }
  Object.assign(conversation, stored, { versions, turns });
  return lacks && !knowsMine ? "merged" : "taken";
}

// Whether a turn has more than another state of it: answers grow, and then end.
function isFurther(turn, other) {
  if (turn.role === "user") return false;
  const [ended, otherEnded] = [!OPEN.includes(turn.end), !OPEN.includes(other.end)];
  if (ended !== otherEnded) return ended;
  return turn.text.length + turn.reasoning.length > other.text.length + other.reasoning.length;
}

const timeOf = ({ id }) => Number.parseInt(id, 36);
