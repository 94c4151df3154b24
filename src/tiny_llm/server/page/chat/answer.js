// One answer: reasoning, text, how it went, and what can be done with it.
import { iconButton, make } from "../dom.js";
import { MarkdownView } from "../markdown/render.js";
import { copyButton } from "./copy.js";
import { statsOf } from "./stats.js";

const SHARE = 4; // drawing takes at most one part in so many of the time

export class AnswerView {
  // `onAgain` asks for another answer. `onDrawn` is called when the element may have become taller.
  constructor(turn, { onAgain, onDrawn }) {
    Object.assign(this, { turn, onDrawn });
    this.scheduled = false;
    this.markdown = new MarkdownView();
    this.thoughts = make("div", { className: "thoughts" });
    this.reasoning = make("details", { className: "reasoning", hidden: true }, make("summary"), this.thoughts);
    this.waiting = make("p", { className: "waiting", "aria-label": "Waiting for the answer" }, ...dots());
    this.error = make("div", { className: "error", role: "alert", hidden: true });
    this.stats = make("p", { className: "stats" });
    const copy = copyButton(() => turn.text, "Copy the answer");
    this.again = iconButton("again", "Answer again", onAgain);
    this.foot = make("footer", {}, copy, this.again, this.stats);
    const retry = make("button", { type: "button", className: "button", textContent: "Try again" });
    retry.addEventListener("click", onAgain);
    this.sentence = make("p");
    this.error.append(this.sentence, retry);
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
    this.foot.hidden = running || (end === "error" && !text);
    this.foot.firstChild.hidden = !text;
    this.stats.textContent = statsOf(this.turn).join(" · ");
  }

  // Only the last answer can be asked for again with one press; earlier ones by editing their question.
  setLast(isLast) {
    this.again.hidden = !isLast;
    this.error.querySelector("button").hidden = !isLast;
  }
}

const dots = () => [1, 2, 3].map(() => make("span", { className: "dot" }));
