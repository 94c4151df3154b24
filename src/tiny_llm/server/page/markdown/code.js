// A block of code that grows, with its tokens in colour. Lines that are complete stay the same nodes: the reader may
// have selected in them.
import { make } from "../dom.js";
import { tokensOf } from "./highlight.js";

export class CodeView {
  constructor(language) {
    this.language = language;
    this.element = make("code");
    this.text = "";
    this.settled = 0; // characters whose nodes stay
    this.open = []; // nodes of the text after them
  }

  // `text` begins with the lines that were complete.
  show(text) {
    if (text === this.text) return;
    this.text = text;
    const last = text.lastIndexOf("\n"); // the line after it may still become the end of the block
    for (const node of this.open) node.remove();
    this.open = [];
    let at = this.settled;
    for (const { kind, start, end } of tokensOf(text, this.language, at)) {
      this.add(at, start, last);
      this.add(start, end, last, kind);
      at = end;
    }
    this.add(at, text.length, last);
  }

  // Plain text is cut at the last line; a token that reaches beyond, such as an open comment, is made again.
  add(start, end, last, kind = "") {
    if (!kind && start < last && end > last) {
      this.add(start, last, last);
      this.add(last, end, last);
      return;
    }
    if (start === end) return;
    const text = this.text.slice(start, end);
    const node = kind ? make("span", { className: kind, textContent: text }) : document.createTextNode(text);
    this.element.append(node);
    if (end <= last && this.open.length === 0) this.settled = end;
    else this.open.push(node);
  }
}
