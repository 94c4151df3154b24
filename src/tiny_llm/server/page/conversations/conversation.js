// A conversation as data, and what happens to it. Pure.
const TITLE_LENGTH = 48;

// How an answer ended: "stop" and "length" are the server's; "stopped" is the reader's; "interrupted" was cut by a reload.
const ENDS = ["running", "stop", "length", "stopped", "interrupted", "error", "tool_calls"];

// A name that no other tab chooses; it begins with the time. Not randomUUID, which browsers lack over plain HTTP
// from another machine.
export function newId(now = Date.now()) {
  return `${now.toString(36)}-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;
}

// When a turn was made.
export const timeOf = ({ id }) => Number.parseInt(id, 36);

export function newConversation({ model = "", system = "", settings = {} } = {}, now = Date.now()) {
  const start = { title: "", named: 0, chosen: 0, updated: now, versions: {}, turns: [] };
  return { id: newId(now), ...start, model, system, settings: { ...settings } };
}

export function newAnswer(now = Date.now()) {
  return { id: newId(now), role: "assistant", text: "", reasoning: "", end: "running", error: "", usage: null, times: null, others: [] };
}

// Add a question and an empty answer, which is returned. The first question becomes the title.
export function ask(conversation, text, now = Date.now()) {
  conversation.turns.push({ id: newId(now), role: "user", text });
  if (!conversation.named && conversation.turns.length === 1) conversation.title = titleOf(text);
  return answerAgain(conversation, conversation.turns.length, now);
}

// Remove the turns from `number` on, and add an empty answer. An answer that was there becomes one of its others.
export function answerAgain(conversation, number, now = Date.now()) {
  const answer = newAnswer(now);
  const replaced = conversation.turns[number];
  if (replaced) answer.others = versionsOf(replaced).filter(({ text }) => text);
  conversation.turns.splice(number, conversation.turns.length, answer);
  conversation.updated = now;
  return answer;
}

// Let an answer that has ended grow. Returns it.
export function goOn(conversation, answer, now = Date.now()) {
  conversation.updated = now;
  return Object.assign(answer, { end: "running", error: "" });
}

// All versions of an answer, the first one first. They have no others themselves.
export function versionsOf({ others, ...shown }) {
  return [...others, shown].sort((a, b) => timeOf(a) - timeOf(b));
}

// Show the version before (-1) or after (1) in the place of an answer. Returns it, or null if there is none.
export function showVersion({ turns }, answer, step) {
  const versions = versionsOf(answer);
  const at = versions.findIndex(({ id }) => id === answer.id) + step;
  const place = turns.indexOf(answer);
  if (place < 0 || !versions[at]) return null;
  const [chosen] = versions.splice(at, 1);
  turns[place] = { ...chosen, others: versions };
  return turns[place];
}

// Ask another question in the place of an earlier one; what came after it is gone.
export function askInstead(conversation, number, text, now = Date.now()) {
  conversation.turns.splice(number);
  return ask(conversation, text, now);
}

export function rename(conversation, title, now = Date.now()) {
  conversation.title = title.trim().slice(0, 200) || conversation.title;
  conversation.named = now;
}

// Choose some of the model, the system prompt and the settings.
export function configure(conversation, parts, now = Date.now()) {
  Object.assign(conversation, parts, { chosen: now });
}

export function titleOf(text) {
  const line = text.trim().replace(/\s+/g, " ");
  if (line.length <= TITLE_LENGTH) return line;
  const cut = [...line].slice(0, TITLE_LENGTH).join("");
  return `${cut.replace(/\s+\S{0,15}$/, "")}…`;
}

// What is sent: answers without their reasoning; none that is empty, and no question that failed: what the server
// refuses once, such as a question that does not fit, it would refuse with every later one.
export function messagesOf({ system, turns }) {
  const messages = system.trim() ? [{ role: "system", content: system }] : [];
  const sent = turns.filter(({ text }, number) => text && !hasFailed(turns[number + 1]));
  for (const { role, text } of sent) messages.push({ role, content: text });
  return messages;
}

// Whether a turn is an answer of which nothing has come but an error.
const hasFailed = (turn) => turn?.end === "error" && !turn.text;

// A conversation from its stored text; null if it is not one. Missing parts get their defaults.
export function readConversation(stored) {
  let record;
  try {
    record = JSON.parse(stored);
  } catch {
    return null;
  }
  if (typeof record?.id !== "string" || !Array.isArray(record.turns)) return null;
  const turns = record.turns.map(readTurn);
  if (turns.includes(null)) return null;
  const text = (value) => (typeof value === "string" ? value : "");
  const time = (value) => (Number.isFinite(value) ? value : 0);
  return {
    id: record.id,
    title: text(record.title),
    named: record.named === true ? 1 : time(record.named), // true in older versions of the page
    updated: time(record.updated),
    versions: readVersions(record.versions),
    chosen: time(record.chosen),
    model: text(record.model),
    system: text(record.system),
    settings: isRecord(record.settings) ? record.settings : {},
    turns,
  };
}

function readTurn(turn, number) {
  if (typeof turn?.text !== "string") return null;
  const id = typeof turn.id === "string" ? turn.id : `0-${number}`; // the same in all tabs
  if (turn.role === "user") return { id, role: "user", text: turn.text };
  if (turn.role !== "assistant") return null;
  const others = Array.isArray(turn.others) ? turn.others : [];
  const readable = others.filter((one) => typeof one?.id === "string" && typeof one.text === "string");
  return { ...readAnswer(turn, id), others: readable.map((one) => readAnswer(one, one.id)) };
}

function readAnswer(turn, id) {
  const end = ENDS.includes(turn.end) ? turn.end : "stop";
  return {
    id,
    role: "assistant",
    text: turn.text,
    reasoning: typeof turn.reasoning === "string" ? turn.reasoning : "",
    end: end === "running" ? "interrupted" : end,
    error: typeof turn.error === "string" ? turn.error : "",
    usage: hasNumbers(turn.usage, ["prompt", "generated", "cached"]),
    times: hasNumbers(turn.times, ["first", "rest", "pieces"]),
  };
}

function readVersions(versions) {
  if (!isRecord(versions)) return {};
  return Object.fromEntries(Object.entries(versions).filter(([, times]) => Number.isSafeInteger(times)));
}

const isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function hasNumbers(value, names) {
  return isRecord(value) && names.every((name) => Number.isFinite(value[name])) ? value : null;
}
