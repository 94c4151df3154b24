// One question, which can be edited: the conversation then goes on from there.
import { iconButton, make } from "../dom.js";
import { MarkdownView } from "../markdown/render.js";

export class QuestionView {
  constructor(turn, onEdit) {
    Object.assign(this, { turn, onEdit });
    this.edit = iconButton("edit", "Edit this question", () => this.begin());
    this.element = make("article", { className: "turn question", "aria-label": "Question" });
    this.show();
  }

  setLast() {}

  update() {}

  show() {
    this.element.classList.remove("editing");
    const text = new MarkdownView();
    text.show(this.turn.text);
    this.element.replaceChildren(make("div", { className: "bubble" }, text.element), this.edit);
  }

  begin() {
    const open = this.element.querySelector("textarea");
    if (open) return open.focus();
    const area = make("textarea", { value: this.turn.text, rows: 3, "aria-label": "The question" });
    const save = make("button", { type: "button", className: "button primary", textContent: "Ask this instead" });
    const cancel = make("button", { type: "button", className: "button", textContent: "Cancel" });
    const finish = () => {
      this.show();
      this.edit.focus();
    };
    const send = () => {
      if (area.value.trim()) this.onEdit(area.value.trim());
    };
    save.addEventListener("click", send);
    cancel.addEventListener("click", finish);
    area.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        send();
      } else if (event.key === "Escape") {
        event.stopPropagation();
        finish();
      }
    });
    const note = make("p", { className: "hint", textContent: "What came after this question is replaced." });
    this.element.classList.add("editing");
    this.element.replaceChildren(area, make("div", { className: "row" }, save, cancel, note));
    area.focus();
  }
}
