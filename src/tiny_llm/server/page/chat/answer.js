// One answer: reasoning, text, how it went, and what can be done with it.
import { iconButton, make } from "../dom.js";
import { MarkdownView } from "../markdown/render.js";
import { copyButton } from "./copy.js";
import { statsOf } from "./stats.js";
import { VersionChoice } from "./version.js";

const CUT = ["length", "stopped", "interrupted", "error"]; // ends after which an answer can go on
const SHARE = 4; // drawing takes at most one part in so many of the time

export class AnswerView {
  // `onAgain` asks for another answer, `onMore` for the rest of a cut one, `onOther` for another version
  // (-1 or 1), `onEdit` begins to edit its question.
  // `onDrawn` is called when the element may have become taller.
  constructor(turn, { onAgain, onMore, onOther, onEdit, onDrawn }) {
    Object.assign(this, { turn, onDrawn });
    this.scheduled = false;
    this.isLast = false;
    this.markdown = new MarkdownView();
    this.thoughts = make("div", { className: "thoughts" });
    this.reasoning = make("details", { className: "reasoning", hidden: true }, make("summary"), this.thoughts);
    this.waiting = make("p", { className: "waiting", "aria-label": "Waiting for the answer" }, ...dots());
    this.error = make("div", { className: "error", role: "alert", hidden: true });
    this.stats = make("p", { className: "stats" });
    const copy = copyButton(() => turn.text, "Copy the answer");
    this.again = iconButton("again", "Answer again", onAgain);
    this.more = make("button", { type: "button", className: "text-button", textContent: "Continue" });
    this.more.addEventListener("click", onMore);
    this.versions = new VersionChoice(onOther);
    this.foot = make("footer", {}, copy, this.again, this.versions.element, this.stats, this.more);
    this.retry = textButton("Try again", onAgain);
    this.sentence = make("p");
    this.left = make("p", { textContent: "Later questions are sent without this one." });
    const row = make("div", { className: "row" }, this.retry, textButton("Edit the question", onEdit));
    this.error.append(this.sentence, this.left, row);
    const parts = [this.reasoning, this.waiting, this.markdown.element, this.error, this.foot];
    this.element = make("article", { className: "turn answer", "aria-label": "Answer" }, ...parts);
    this.draw();
  }

  // Draw what came since, in the next frame; slow drawings are drawn less often.
  update() {
    if (this.scheduled) return;
    this.scheduled = true;
    const wait = (this.cost ?? 0) * SHARE;
    const begin = () => requestAnimationFrame(() => this.drawScheduled());
    if (wait < 16) begin();
    else setTimeout(begin, wait);
  }

  drawScheduled() {
    const start = performance.now();
    this.scheduled = false;
    this.draw();
    this.onDrawn();
    this.cost = performance.now() - start;
  }

  draw() {
    const { text, reasoning, end, error } = this.turn;
    const running = end === "running";
    this.element.setAttribute("aria-busy", String(running));
    this.waiting.hidden = !running || Boolean(text);
    this.markdown.show(text);
    this.reasoning.hidden = !reasoning;
    if (this.thoughts.textContent !== reasoning) this.thoughts.textContent = reasoning;
    this.reasoning.firstChild.textContent = running && !text ? "Thinking…" : "Thoughts";
    this.error.hidden = end !== "error";
    this.sentence.textContent = error;
    this.left.hidden = Boolean(text);
    this.versions.show(this.turn);
    this.foot.hidden = running || (end === "error" && !text && this.turn.others.length === 0);
    this.foot.firstChild.hidden = !text;
    this.stats.textContent = statsOf(this.turn).join(" · ");
    this.more.hidden = !this.isLast || !text || !CUT.includes(end);
  }

  // Only the last answer can be asked for again with one press; earlier ones by editing their question.
  setLast(isLast) {
    this.isLast = isLast;
    this.draw();
    this.again.hidden = !isLast;
    this.retry.hidden = !isLast;
  }
}

function textButton(label, onClick) {
  const button = make("button", { type: "button", className: "button", textContent: label });
  button.addEventListener("click", onClick);
  return button;
}

const dots = () => [1, 2, 3].map(() => make("span", { className: "dot" }));
