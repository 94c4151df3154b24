// Markdown to a tree of blocks: the dialect that models write. Pure: no DOM. Time is linear in the text.
// Not in the dialect: raw HTML, indented code, reference links, underlined headings.
import { readList, readMarker } from "./lists.js";
import { readTable, startsTable } from "./tables.js";

const DEEPEST = 12; // nested quotes and lists; deeper ones are paragraphs
const FENCE = /^[ \t]*(`{3,}|~{3,})([^\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=\s|$)/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const FORMULA = /^[ \t]*(?:(\$\$)|\\\[)/;
const QUOTE = /^ {0,3}> ?/;

// The blocks of a text; each has the number of its first line in `line`.
export function parseBlocks(text) {
  return parseLines(text.replaceAll("\r\n", "\n").split("\n"), 0);
}

export function parseLines(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const [block, next] = readBlock(lines, at, depth);
    blocks.push({ ...block, line: at });
    at = next;
  }
  return blocks;
}

export const isBlank = (line) => line.trim() === "";

export function isRule(line) {
  return RULE.test(line);
}

// Whether a line ends the paragraph before it.
export function interrupts(lines, at) {
  const line = lines[at];
  if (isBlank(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || openFence(line) || FORMULA.test(line)) return true;
  const marker = readMarker(line);
  if (marker && !marker.empty && (!marker.ordered || marker.start === 1)) return true;
  return startsTable(lines, at);
}

// A block and the line after it.
function readBlock(lines, at, depth) {
  const line = lines[at];
  const fence = openFence(line);
  if (fence) return readCode(lines, at, fence);
  const formula = FORMULA.exec(line);
  if (formula) return readFormula(lines, at, formula[0].length, formula[1] ?? "\\]");
  const heading = HEADING.exec(line);
  if (heading) {
    const text = line.slice(heading[0].length).trim().replace(/(^|\s)#+$/, "");
    return [{ type: "heading", level: heading[1].length, text: text.trim() }, at + 1];
  }
  if (RULE.test(line)) return [{ type: "rule" }, at + 1];
  if (depth < DEEPEST && QUOTE.test(line)) return readQuote(lines, at, depth);
  if (depth < DEEPEST && readMarker(line)) return readList(lines, at, depth);
  if (startsTable(lines, at)) return readTable(lines, at);
  return readParagraph(lines, at);
}

function openFence(line) {
  const match = FENCE.exec(line);
  if (!match || (match[1][0] === "`" && match[2].includes("`"))) return null;
  const [language = ""] = match[2].trim().split(/\s/, 1);
  return { mark: match[1], language: language.slice(0, 30), indent: line.search(/\S/) };
}

// A block of code; `closed` is false while its end has not come.
function readCode(lines, start, { mark, language, indent }) {
  const code = [];
  const finish = (closed, next) => [{ type: "code", language, text: code.join("\n"), closed }, next];
  for (let at = start + 1; at < lines.length; at++) {
    const end = lines[at].trim();
    if (end.length >= mark.length && end === mark[0].repeat(end.length)) return finish(true, at + 1);
    code.push(withoutIndent(lines[at], indent));
  }
  return finish(false, lines.length);
}

// A formula on lines of its own, from a column on; `closed` is false while its end has not come, or a blank line ended
// it. `after` is the text behind its end.
function readFormula(lines, start, column, close) {
  const tex = [];
  for (let at = start; at < lines.length && !isBlank(lines[at]); at++) {
    const line = at === start ? lines[at].slice(column) : lines[at];
    const end = line.indexOf(close);
    tex.push(end < 0 ? line : line.slice(0, end));
    if (end >= 0) return [formula(tex, true, line.slice(end + 2).trim()), at + 1];
  }
  return [formula(tex, false, ""), start + tex.length];
}

const formula = (tex, closed, after) => ({ type: "formula", text: tex.join("\n").trim(), closed, after });

// A line without up to `count` columns of space at its start.
export function withoutIndent(line, count) {
  let at = 0;
  while (at < count && (line[at] === " " || line[at] === "\t")) at += 1;
  return line.slice(at);
}

function readQuote(lines, start, depth) {
  const inner = [];
  let at = start;
  for (; at < lines.length; at++) {
    const marked = QUOTE.exec(lines[at]);
    if (marked) inner.push(lines[at].slice(marked[0].length));
    else if (isBlank(inner.at(-1)) || interrupts(lines, at)) break;
    else inner.push(lines[at]); // a paragraph goes on without the mark
  }
  return [{ type: "quote", blocks: parseLines(inner, depth + 1) }, at];
}

function readParagraph(lines, start) {
  let at = start + 1;
  while (at < lines.length && !interrupts(lines, at)) at += 1;
  return [{ type: "paragraph", text: lines.slice(start, at).map((line) => line.trimEnd()).join("\n") }, at];
}
