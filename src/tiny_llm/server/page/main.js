// The page: conversations, the answers that are coming, and what the buttons do.
import { listModels } from "./chat/client.js";
import { Composer } from "./chat/composer.js";
import { AnswerError, sentenceOf } from "./chat/errors.js";
import { Log } from "./chat/log.js";
import { Run } from "./chat/run.js";
import { answerAgain, ask, askInstead, rename } from "./conversations/conversation.js";
import { Shelf } from "./conversations/shelf.js";
import { Sidebar } from "./conversations/sidebar.js";
import { addDrawer, closeOverlays, isNarrow, startDrawers } from "./drawers.js";
import { announce, notify } from "./notices.js";
import { LivePanel } from "./panel/panel.js";
import { SettingsForm } from "./settings/form.js";
import { ModelChoice } from "./settings/models.js";
import { startTheme } from "./settings/theme.js";

const LEAVE_SECONDS = 3;
const SPOKEN = 500; // characters of an answer that a screen reader is told

startTheme();
let leaving = false;
const runs = new Map(); // the answers that are coming, by the id of their conversation
const shelf = new Shelf(changedElsewhere);
const sidebar = new Sidebar({ choose, rename: renameOne, remove });
const log = new Log({ edit, again });
const composer = new Composer({ onSend: send, onStop: () => stop(shelf.current) });
const form = new SettingsForm(changeCurrent);
const models = new ModelChoice((model) => changeCurrent({ model }));
const panel = new LivePanel();

function showAll() {
  const { current } = shelf;
  log.show(current);
  form.show(current);
  current.model = models.show(current.model);
  showState();
}

// Everything outside of the turns.
function showState() {
  const { current, conversations } = shelf;
  composer.setRunning(runs.has(current.id));
  sidebar.show(conversations, current, ({ id }) => runs.has(id));
  document.title = current.title ? `${current.title} – tiny-llm` : "tiny-llm";
}

function send(text) {
  const { current } = shelf;
  start(current, ask(current, text));
}

function edit(number, text) {
  const { current } = shelf;
  stop(current);
  start(current, askInstead(current, number, text));
  composer.focus();
}

function again(number) {
  const { current } = shelf;
  stop(current);
  start(current, answerAgain(current, number));
}

// Let the server answer with the last turn of a conversation.
async function start(conversation, turn) {
  const run = new Run(conversation, turn, () => {
    if (runs.get(conversation.id) !== run || leaving) return; // replaced by another question, or cut
    shelf.saveSometimes(conversation);
    if (shelf.current === conversation) log.update(turn);
  });
  runs.set(conversation.id, run);
  shelf.save(conversation);
  shelf.choose(conversation);
  showAll();
  await run.finished();
  if (runs.get(conversation.id) !== run) return;
  runs.delete(conversation.id);
  if (leaving && turn.end === "error") turn.end = "interrupted";
  shelf.save(conversation);
  showState();
  if (shelf.current !== conversation) return;
  log.update(turn);
  announce(turn.text.slice(0, SPOKEN)); // errors announce themselves
}

function stop({ id }) {
  runs.get(id)?.stop();
}

// Keep what has come of running answers. Leaving cuts their connections, which is no error of the server.
function leave() {
  for (const { conversation } of runs.values()) shelf.save(conversation);
  leaving = true;
  setTimeout(() => (leaving = false), LEAVE_SECONDS * 1000); // the reader has stayed
}

function choose(conversation) {
  shelf.choose(conversation);
  showAll();
  if (isNarrow()) closeOverlays();
  else composer.focus();
}

function begin() {
  choose(shelf.current.turns.length > 0 ? shelf.fresh() : shelf.current);
}

function renameOne(conversation, title) {
  rename(conversation, title);
  shelf.save(conversation);
  showState();
}

function remove(conversation) {
  stop(conversation);
  runs.delete(conversation.id);
  shelf.remove(conversation, showState);
  showAll();
}

function changeCurrent(parts) {
  const { current } = shelf;
  Object.assign(current, parts);
  shelf.save(current);
  shelf.keepDefaults(current);
}

function changedElsewhere(id) {
  if (runs.has(id)) return;
  const isShown = shelf.current.id === id; // before it may be gone
  shelf.reload(id);
  if (isShown) showAll();
  else showState();
}

async function loadModels() {
  try {
    models.fill(await listModels());
    shelf.current.model = models.show(shelf.current.model);
  } catch (error) {
    if (!(error instanceof AnswerError)) throw error;
    const action = error.status === 401 ? "Enter it" : "Try again";
    notify(sentenceOf(error), { key: "models", action, onAction: loadModels, stays: true });
  }
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (runs.has(shelf.current.id)) stop(shelf.current);
  else closeOverlays();
});
window.addEventListener("beforeunload", leave);
window.addEventListener("pagehide", leave);
for (const button of document.querySelectorAll(".new-conversation")) button.addEventListener("click", begin);
for (const button of document.querySelectorAll(".suggestion")) {
  button.addEventListener("click", () => send(button.textContent));
}
addDrawer("conversations", "left");
addDrawer("settings", "right");
addDrawer("live", "right", (open) => panel.show(open));
startDrawers();
showAll();
if (!isNarrow()) composer.focus();
loadModels();
