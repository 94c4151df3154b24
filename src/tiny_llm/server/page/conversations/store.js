// Conversations in a storage of the browser, each under a name of its own: two tabs do not overwrite each other's.
import { readConversation } from "./conversation.js";

export const PREFIX = "tiny-llm.conversation.";

export class Store {
  // `storage` has the interface of localStorage, and may throw at every call.
  constructor(storage) {
    this.storage = storage;
  }

  // The readable conversations, the latest first, and the names of those that are not.
  load() {
    const conversations = [];
    const broken = [];
    for (const name of this.names()) {
      const conversation = readConversation(this.read(name) ?? "");
      if (conversation && PREFIX + conversation.id === name) conversations.push(conversation);
      else broken.push(name);
    }
    conversations.sort((a, b) => b.updated - a.updated);
    return { conversations, broken };
  }

  names() {
    const names = [];
    try {
      for (let number = 0; number < this.storage.length; number++) names.push(this.storage.key(number));
    } catch {
      return [];
    }
    return names.filter((name) => name.startsWith(PREFIX));
  }

  // False if the storage is full or closed.
  save(conversation) {
    return this.write(PREFIX + conversation.id, JSON.stringify(conversation));
  }

  // The stored form of one conversation, or null.
  find(id) {
    return readConversation(this.read(PREFIX + id) ?? "");
  }

  remove(name) {
    try {
      this.storage.removeItem(name);
    } catch {
      // a closed storage has nothing to remove
    }
  }

  read(name) {
    try {
      return this.storage.getItem(name);
    } catch {
      return null;
    }
  }

  write(name, text) {
    try {
      this.storage.setItem(name, text);
      return true;
    } catch {
      return false;
    }
  }
}
