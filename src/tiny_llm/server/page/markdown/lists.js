// Lists of Markdown, nested by indentation. Two columns are enough to nest, as models write it.
import { interrupts, isBlank, isRule, parseLines, withoutIndent } from "./blocks.js";

const MARKER = /^([ \t]*)([-*+]|\d{1,9}[.)])(?=[ \t]|$)/;
const NESTS = 2; // columns beyond the marker of an item that belong to the item

// The marker at the start of a line, or null.
export function readMarker(line) {
  const match = MARKER.exec(line);
  if (!match || isRule(line)) return null;
  const [whole, space, mark] = match;
  const rest = line.slice(whole.length);
  const gap = rest.search(/\S/);
  const ordered = mark.length > 1;
  return {
    indent: space.length,
    ordered,
    kind: mark.at(-1), // items of other kinds begin another list
    start: ordered ? Number.parseInt(mark, 10) : null,
    empty: gap < 0,
    content: whole.length + (gap < 1 || gap > 4 ? 1 : gap), // column where the text of the item begins
  };
}

export function readList(lines, first, depth) {
  const head = readMarker(lines[first]);
  const items = [];
  let loose = false;
  let at = first;
  while (at < lines.length) {
    const marker = readMarker(lines[at]);
    if (!marker || marker.kind !== head.kind || marker.indent >= head.indent + NESTS) break;
    const [inner, next, blankAfter] = readItem(lines, at, marker);
    const blocks = parseLines(inner, depth + 1);
    loose ||= blocks.some((block, number) => number > 0 && isBlank(inner[block.line - 1]));
    items.push(blocks);
    at = next;
    const follower = at < lines.length ? readMarker(lines[at]) : null;
    const goesOn = follower && follower.kind === head.kind && follower.indent < head.indent + NESTS;
    loose ||= Boolean(blankAfter && goesOn);
  }
  return [{ type: "list", ordered: head.ordered, start: head.start, loose, items }, at];
}

// The lines of an item without their indentation, the line after it, and whether blank lines ended it.
function readItem(lines, first, marker) {
  const inner = [lines[first].slice(marker.content)];
  let at = first + 1;
  let blanks = 0;
  for (; at < lines.length; at++) {
    const line = lines[at];
    if (isBlank(line)) {
      blanks += 1;
      continue;
    }
    const nested = line.search(/\S/) >= marker.indent + NESTS;
    const lazy = blanks === 0 && !isBlank(inner.at(-1)) && !readMarker(line) && !interrupts(lines, at);
    if (!nested && !lazy) break;
    for (; blanks > 0; blanks--) inner.push("");
    inner.push(withoutIndent(line, marker.content));
  }
  return [inner, at, blanks > 0];
}
