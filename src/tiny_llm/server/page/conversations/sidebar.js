// The list of conversations: search, choose, rename, delete.
import { byId, iconButton, make } from "../dom.js";
import { isFound } from "./search.js";

export class Sidebar {
  // `actions` has choose(conversation), rename(conversation, title) and remove(conversation).
  constructor(actions) {
    this.actions = actions;
    this.list = byId("conversation-list");
    this.search = byId("search");
    this.search.addEventListener("input", () => this.show(...this.shown));
    this.search.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.search.value) return;
      event.stopPropagation();
      this.search.value = "";
      this.show(...this.shown);
    });
  }

  show(conversations, current, isRunning) {
    this.shown = [conversations, current, isRunning];
    const found = conversations.filter((one) => isFound(one, this.search.value.trim()));
    byId("no-conversations").hidden = conversations.length > 0;
    byId("export").disabled = conversations.length === 0;
    byId("not-found").textContent = conversations.length > 0 && found.length === 0 ? "No conversation has these words." : "";
    this.list.replaceChildren(...found.map((one) => this.item(one, one === current, isRunning(one))));
  }

  item(conversation, isCurrent, isRunning) {
    const name = conversation.title || "New conversation";
    const title = make("button", { type: "button", className: "title", textContent: name, title: name });
    if (isCurrent) title.setAttribute("aria-current", "true");
    title.addEventListener("click", () => this.actions.choose(conversation));
    const item = make("li", { className: isRunning ? "running" : "" }, title);
    item.append(
      iconButton("edit", `Rename ${name}`, () => this.edit(item, conversation)),
      iconButton("delete", `Delete ${name}`, () => this.actions.remove(conversation)),
    );
    return item;
  }

  edit(item, conversation) {
    const input = make("input", { type: "text", value: conversation.title, maxLength: 200, "aria-label": "Name of the conversation" });
    let done = false;
    const finish = (title) => {
      if (done) return;
      done = true;
      this.actions.rename(conversation, title);
    };
    input.addEventListener("blur", () => finish(input.value));
    input.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter") finish(input.value);
      if (event.key === "Escape") {
        event.stopPropagation();
        finish(conversation.title);
      }
    });
    item.replaceChildren(input);
    input.select();
  }
}
