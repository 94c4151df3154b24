// The page: conversations, the answers that are coming, and what the buttons do.
import { startAttach } from "./chat/attach.js";
import { listModels } from "./chat/client.js";
import { Composer } from "./chat/composer.js";
import { contextOf } from "./chat/context.js";
import { AnswerError, sentenceOf } from "./chat/errors.js";
import { Log } from "./chat/log.js";
import { Run } from "./chat/run.js";
import { answerAgain, ask, askInstead, configure, goOn, rename, showVersion } from "./conversations/conversation.js";
import { Shelf } from "./conversations/shelf.js";
import { Sidebar } from "./conversations/sidebar.js";
import { startTransfer } from "./conversations/transfer.js";
import { byId } from "./dom.js";
import { addDrawer, closeOverlays, isNarrow, startDrawers } from "./drawers.js";
import { startHelp } from "./help.js";
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
const log = new Log({ edit, again, goOn: more, showOther });
const composer = new Composer({ onSend: send, onStop: () => stop(shelf.current) });
const form = new SettingsForm(changeCurrent);
const models = new ModelChoice((model) => changeCurrent({ model }));
const panel = new LivePanel();

// Show another conversation.
function showAll() {
  log.show(shelf.current);
  showForm();
  showState();
}

function showForm() {
  const { current } = shelf;
  form.show(current);
  current.model = models.show(current.model);
}

// What the form shows: it is left alone while that stays, as the reader may be writing into it.
const formOf = ({ model, system, settings }) => JSON.stringify([model, system, settings]);

// Everything outside of the turns.
function showState() {
  const { current, conversations } = shelf;
  composer.setRunning(runs.has(current.id));
  sidebar.show(conversations, current, ({ id }) => runs.has(id));
  const context = contextOf(current.turns, models.context(current.model));
  byId("context").textContent = context?.sentence ?? "";
  byId("context").classList.toggle("problem", Boolean(context?.nearly));
  document.title = current.title ? `${current.title} – tiny-llm` : "tiny-llm";
}

function send(text) {
  const current = latest();
  start(current, ask(current, text));
}

// A question that another tab has removed meanwhile is asked at the end.
function edit(turn, text) {
  const current = latest();
  stop(current);
  const number = current.turns.indexOf(turn);
  start(current, number < 0 ? ask(current, text) : askInstead(current, number, text));
  composer.focus();
}

function again(turn) {
  const current = latest();
  const number = current.turns.indexOf(turn);
  if (number < 0) return;
  stop(current);
  start(current, answerAgain(current, number));
}

// Show the version of an answer before or after this one.
function showOther(turn, step) {
  const current = latest();
  const shown = showVersion(current, turn, step);
  if (!shown) return;
  shelf.save(current);
  log.draw(current);
  log.focusVersion(shown, step);
}

function more(turn) {
  const current = latest();
  if (current.turns.at(-1) !== turn) return;
  stop(current);
  start(current, goOn(current, turn));
}

// The shown conversation, with what another tab has stored of it.
function latest() {
  changedElsewhere(shelf.current.id);
  return shelf.current;
}

// Store a conversation, with what another tab has stored of it; unless that has deleted it.
function keep(conversation) {
  changedElsewhere(conversation.id);
  if (shelf.conversations.includes(conversation)) shelf.save(conversation);
}

// Let the server answer with the last turn of a conversation.
async function start(conversation, turn) {
  const run = new Run(conversation, turn, () => {
    if (runs.get(conversation.id) !== run || leaving) return; // replaced by another question, or cut
    if (shelf.isDue) keep(conversation);
    if (shelf.current === conversation) log.update(turn);
  });
  runs.set(conversation.id, run);
  shelf.save(conversation);
  shelf.choose(conversation);
  showAll();
  await run.finished();
  if (leaving && turn.end === "error") turn.end = "interrupted";
  changedElsewhere(conversation.id);
  if (runs.get(conversation.id) !== run) return;
  shelf.save(conversation);
  runs.delete(conversation.id);
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
  for (const { conversation } of runs.values()) keep(conversation);
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
  changedElsewhere(conversation.id);
  rename(conversation, title);
  if (shelf.conversations.includes(conversation)) shelf.save(conversation);
  showState();
}

function remove(conversation) {
  stop(conversation);
  runs.delete(conversation.id);
  shelf.remove(conversation, showState);
  showAll();
}

function changeCurrent(parts) {
  const current = latest();
  configure(current, parts);
  shelf.save(current);
  shelf.keepDefaults(current);
  showState();
}

function importAll(conversations) {
  shelf.add(conversations);
  log.draw(shelf.current);
  showState();
}

// Take over what another tab has done to a conversation. An answer of this tab comes on, unless that has
// replaced it or deleted the conversation.
function changedElsewhere(id) {
  const shown = shelf.current;
  const before = formOf(shown);
  const run = runs.get(id);
  if (!shelf.sync(id)) return;
  if (run && !(shelf.conversations.includes(run.conversation) && run.conversation.turns.includes(run.turn))) {
    run.stop();
    runs.delete(id);
  }
  if (shelf.current !== shown) return showAll(); // it is deleted
  if (shown.id === id) {
    log.draw(shown);
    if (formOf(shown) !== before) showForm();
  }
  showState();
}

async function loadModels() {
  try {
    models.fill(await listModels());
    shelf.current.model = models.show(shelf.current.model);
    showState();
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
startAttach((text) => composer.add(text));
startTransfer({ conversations: () => shelf.conversations, onImport: importAll });
startHelp();
showAll();
if (!isNarrow()) composer.focus();
loadModels();
