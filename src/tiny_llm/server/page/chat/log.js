// The turns of the shown conversation.
import { byId } from "../dom.js";
import { AnswerView } from "./answer.js";
import { QuestionView } from "./question.js";
import { Follower } from "./scroll.js";

export class Log {
  // `actions` has edit(turn, text), again(turn), goOn(turn) and showOther(turn, step).
  constructor(actions) {
    this.actions = actions;
    this.turns = byId("turns");
    this.views = [];
    this.follower = new Follower(byId("scroller"), byId("to-end"));
  }

  // Show a conversation, from its end; views of turns that are shown already stay.
  show(conversation) {
    this.draw(conversation);
    this.follower.toEnd();
  }

  // The shown conversation has other turns. The reader stays where they are.
  draw(conversation) {
    const known = new Map(this.views.map((view) => [view.turn, view]));
    for (const view of this.views) view.update();
    this.views = conversation.turns.map((turn) => known.get(turn) ?? this.view(turn));
    const nodes = this.views.map(({ element }) => element);
    for (const node of [...this.turns.children]) if (!nodes.includes(node)) node.remove();
    nodes.forEach((node, number) => {
      if (this.turns.children[number] !== node) this.turns.insertBefore(node, this.turns.children[number] ?? null);
    });
    this.views.forEach((view, number) => view.setLast(number === this.views.length - 1));
    byId("welcome").hidden = this.views.length > 0;
  }

  view(turn) {
    if (turn.role === "user") return new QuestionView(turn, (text) => this.actions.edit(turn, text));
    const onAgain = () => this.actions.again(turn);
    const onEdit = () => this.views[this.views.findIndex((view) => view.turn === turn) - 1]?.begin?.();
    const onMore = () => this.actions.goOn(turn);
    const onOther = (step) => this.actions.showOther(turn, step);
    return new AnswerView(turn, { onAgain, onMore, onOther, onEdit, onDrawn: () => this.follower.grown() });
  }

  // Another version of an answer is shown: the reader goes on to choose where they were.
  focusVersion(turn, step) {
    this.views.find((view) => view.turn === turn)?.versions.focus(step);
  }

  // The turn of an answer has changed.
  update(turn) {
    this.views.find((view) => view.turn === turn)?.update();
  }
}
