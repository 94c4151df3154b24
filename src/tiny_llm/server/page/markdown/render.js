// DOM nodes of Markdown. Text only ever becomes text nodes, so an answer cannot bring elements of its own.
import { copyButton } from "../chat/copy.js";
import { make } from "../dom.js";
import { CodeView } from "./code.js";
import { renderFormula } from "./formula.js";
import { parseInline } from "./inline.js";
import { GrowingBlocks } from "./stream.js";

const SMALLEST = 6; // headings of an answer are below those of the page
const views = new WeakMap(); // the view of a block of code, by its node

// An element that shows a growing text, of which only the last block is made anew.
export class MarkdownView {
  constructor() {
    this.element = make("div", { className: "markdown" });
    this.blocks = new GrowingBlocks();
    this.shown = []; // the open blocks and their nodes
  }

  show(text) {
    if (text === this.blocks.text) return;
    const { final, open } = this.blocks.grow(text);
    const blocks = [...final, ...open];
    const nodes = blocks.map((block, number) => this.reuse(block, number) ?? renderBlock(block));
    for (const { node } of this.shown) if (!nodes.includes(node)) node.remove();
    this.element.append(...nodes.filter((node) => node.parentNode !== this.element));
    this.shown = open.map((block, number) => ({ block, node: nodes[final.length + number] }));
  }

  // The node of a block of code that goes on: the reader may have scrolled or selected in it.
  reuse(block, number) {
    const before = number === 0 ? this.shown[0] : undefined;
    if (before?.block.type !== "code" || block.type !== "code") return null;
    if (before.block.language !== block.language) return null;
    views.get(before.node).show(block.text);
    return before.node;
  }
}

function renderBlock(block) {
  if (block.type === "paragraph") return make("p", {}, ...inline(block.text));
  if (block.type === "heading") {
    return make(`h${Math.min(block.level + 2, SMALLEST)}`, {}, ...inline(block.text));
  }
  if (block.type === "code") return renderCode(block);
  if (block.type === "formula") return renderFormulaBlock(block);
  if (block.type === "quote") return make("blockquote", {}, ...block.blocks.map(renderBlock));
  if (block.type === "list") return renderList(block);
  if (block.type === "table") return renderTable(block);
  return make("hr");
}

function renderCode({ language, text }) {
  const code = new CodeView(language);
  code.show(text);
  const head = make("div", { className: "code-head" }, make("span", { textContent: language || "text" }));
  head.append(copyButton(() => code.text, "Copy the code"));
  const node = make("div", { className: "code" }, head, make("pre", { tabIndex: 0 }, code.element));
  views.set(node, code);
  return node;
}

function renderFormulaBlock({ text, after }) {
  const mark = /^[.,;:]?/.exec(after)[0]; // in the formula's line
  const block = make("div", { className: "formula", tabIndex: 0 }, renderFormula(text + mark, true));
  const rest = after.slice(mark.length).trim();
  return rest ? make("div", {}, block, make("p", {}, ...inline(rest))) : block;
}

function renderList({ ordered, start, loose, items }) {
  const list = make(ordered ? "ol" : "ul", { className: loose ? "loose" : "" });
  if (ordered && start !== 1) list.start = start;
  for (const blocks of items) {
    const item = make("li");
    for (const block of blocks) {
      const node = renderBlock(block);
      const tight = !loose && node.localName === "p" && !node.querySelector("math"); // a long formula scrolls in its paragraph
      item.append(...(tight ? node.childNodes : [node]));
    }
    list.append(item);
  }
  return list;
}

function renderTable({ names, aligned, rows }) {
  const cell = (kind, text, column) => make(kind, { className: aligned[column] }, ...inline(text));
  const head = make("tr", {}, ...names.map((name, column) => cell("th", name, column)));
  const body = rows.map((row) => make("tr", {}, ...row.map((text, column) => cell("td", text, column))));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  return make("div", { className: "table", tabIndex: 0 }, table);
}

function inline(text) {
  return parseInline(text).map(renderNode);
}

function renderNode(node) {
  if (node.type === "text") return document.createTextNode(node.text);
  if (node.type === "code") return make("code", { textContent: node.text });
  if (node.type === "break") return make("br");
  if (node.type === "formula") return renderFormula(node.text, node.display);
  const children = node.children.map(renderNode);
  if (node.type !== "link") return make(node.type, {}, ...children);
  return make("a", { href: node.url, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}
