// The turns of the shown conversation.
import { byId } from "../dom.js";
import { AnswerView } from "./answer.js";
import { QuestionView } from "./question.js";
import { Follower } from "./scroll.js";

export class Log {
  // `actions` has edit(number, text) and again(number).
  constructor(actions) {
    this.actions = actions;
    this.turns = byId("turns");
    this.views = [];
    this.follower = new Follower(byId("scroller"), byId("to-end"));
  }

  // Show a conversation; views of turns that are shown already stay.
  show(conversation) {
    const known = new Map(this.views.map((view) => [view.turn, view]));
    this.views = conversation.turns.map((turn, number) => known.get(turn) ?? this.view(turn, number));
    const nodes = this.views.map(({ element }) => element);
    for (const node of [...this.turns.children]) if (!nodes.includes(node)) node.remove();
    nodes.forEach((node, number) => {
      if (this.turns.children[number] !== node) this.turns.insertBefore(node, this.turns.children[number] ?? null);
    });
    this.views.forEach((view, number) => view.setLast(number === this.views.length - 1));
    byId("welcome").hidden = this.views.length > 0;
    this.follower.toEnd();
  }

  view(turn, number) {
    if (turn.role === "user") return new QuestionView(turn, (text) => this.actions.edit(number, text));
    const onAgain = () => this.actions.again(number);
    return new AnswerView(turn, { onAgain, onDrawn: () => this.follower.grown() });
  }

  // The turn of an answer has changed.
  update(turn) {
    const last = this.views.at(-1);
    if (last?.turn === turn) last.update();
  }
}
