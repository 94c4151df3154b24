// Which version of an answer is shown, and the ones beside it.
import { versionsOf } from "../conversations/conversation.js";
import { iconButton, make } from "../dom.js";

export class VersionChoice {
  // `onOther` is called with -1 for the version before, 1 for the one after.
  constructor(onOther) {
    this.before = iconButton("before", "Version before", () => onOther(-1));
    this.after = iconButton("after", "Version after", () => onOther(1));
    this.count = make("span", { className: "count", role: "status" });
    this.element = make("span", { className: "versions" }, this.before, this.count, this.after);
  }

  show(turn) {
    const all = versionsOf(turn);
    const number = 1 + all.findIndex(({ id }) => id === turn.id);
    this.element.hidden = all.length < 2;
    this.count.textContent = `${number} of ${all.length}`;
    this.before.disabled = number === 1;
    this.after.disabled = number === all.length;
  }

  focus(step) {
    const [wanted, other] = step < 0 ? [this.before, this.after] : [this.after, this.before];
    (wanted.disabled ? other : wanted).focus();
  }
}
