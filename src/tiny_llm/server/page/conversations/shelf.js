// All conversations of the browser: the list, the one that is shown, and what a new one begins with.
import { notify } from "../notices.js";
import { newConversation, newId } from "./conversation.js";
import { storageOf } from "./storage.js";
import { PREFIX, Store } from "./store.js";
import { renew, takeOver } from "./versions.js";

const [CURRENT, DEFAULTS] = ["tiny-llm.current", "tiny-llm.defaults"];
const TAB = newId(); // this tab, until it is loaded again: a copy of the tab has another name
const SAVE_SECONDS = 1; // between two savings of an answer that grows

export class Shelf {
  // `onOther` is called with the id of a conversation that another tab has changed.
  constructor(onOther) {
    this.store = new Store(storageOf("localStorage"));
    this.tab = new Store(storageOf("sessionStorage")); // each tab shows a conversation of its own
    const { conversations, broken } = this.store.load();
    this.conversations = conversations;
    this.stored = new Set(conversations.map(({ id }) => id)); // those that have been seen in the storage
    if (broken.length > 0) this.offerToDelete(broken);
    const shown = this.tab.read(CURRENT);
    this.current = conversations.find(({ id }) => id === shown) ?? this.fresh();
    this.saved = 0;
    window.addEventListener("storage", ({ key }) => {
      if (key?.startsWith(PREFIX)) onOther(key.slice(PREFIX.length));
    });
  }

  offerToDelete(broken) {
    const sentence = broken.length === 1 ? "One stored conversation cannot be read." : `${broken.length} stored conversations cannot be read.`;
    const onAction = () => broken.forEach((name) => this.store.remove(name));
    notify(sentence, { action: "Delete", onAction, stays: true });
  }

  // A conversation with the settings that were chosen last. It joins the list with its first question.
  fresh() {
    let defaults = null;
    try {
      defaults = JSON.parse(this.store.read(DEFAULTS));
    } catch {
      // as if none were stored
    }
    const { model, system, settings } = defaults ?? {};
    return newConversation({
      model: typeof model === "string" ? model : "",
      system: typeof system === "string" ? system : "",
      settings: typeof settings === "object" && settings !== null ? settings : {},
    });
  }

  choose(conversation) {
    this.current = conversation;
    this.tab.write(CURRENT, conversation.id);
  }

  keepDefaults({ model, system, settings }) {
    this.store.write(DEFAULTS, JSON.stringify({ model, system, settings }));
  }

  // Save a conversation that has begun, first in the list if its turns have changed. What another tab has
  // stored of it must have been taken over before (`sync`): it is replaced.
  save(conversation) {
    this.saved = performance.now();
    if (conversation.turns.length === 0) return;
    if (!this.conversations.includes(conversation)) this.conversations.push(conversation);
    this.conversations.sort((a, b) => b.updated - a.updated);
    renew(conversation, TAB);
    if (this.store.save(conversation)) {
      this.stored.add(conversation.id);
      return;
    }
    notify("The browser has no room for this conversation: it will be gone when the page is left. Delete others.", {
      key: "full",
      stays: true,
    });
  }

  // Whether an answer that grows should be saved again.
  get isDue() {
    return performance.now() - this.saved > SAVE_SECONDS * 1000;
  }

  // Join conversations of a file with those that are here: nothing of either is lost.
  add(conversations) {
    for (const one of conversations) {
      const known = this.conversations.find(({ id }) => id === one.id);
      if (!known || takeOver(known, one) !== "same") this.save(known ?? one);
    }
  }

  // Delete, with a way back.
  remove(conversation, onBack) {
    this.drop(conversation);
    this.store.remove(PREFIX + conversation.id);
    const onAction = () => {
      this.save(conversation);
      onBack();
    };
    notify(`Deleted “${conversation.title}”.`, { action: "Undo", onAction });
  }

  drop(conversation) {
    this.conversations = this.conversations.filter((other) => other !== conversation);
    this.stored.delete(conversation.id);
    if (this.current === conversation) this.choose(this.fresh());
  }

  // Take over what another tab has stored under this id, or that it has deleted it. Whether there was anything.
  sync(id) {
    const stored = this.store.find(id);
    const known = this.conversations.find((one) => one.id === id);
    if (stored) {
      this.stored.add(id);
      const outcome = known ? takeOver(known, stored) : this.conversations.push(stored);
      if (outcome === "same") return false;
      if (outcome === "merged") this.save(known);
    } else {
      if (!known || !this.stored.has(id)) return false; // it never had room
      this.drop(known);
    }
    this.conversations.sort((a, b) => b.updated - a.updated);
    return true;
  }
}
