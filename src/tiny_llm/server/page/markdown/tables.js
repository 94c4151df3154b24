// Tables of Markdown: a row of names, a row of dashes, and rows until a blank line.
import { interrupts } from "./blocks.js";

const DASHES = /^:?-+:?$/;

export function startsTable(lines, at) {
  if (!lines[at].includes("|") || at + 1 >= lines.length || !lines[at + 1].includes("-")) return false;
  const dashes = splitRow(lines[at + 1]);
  return dashes.every((cell) => DASHES.test(cell)) && splitRow(lines[at]).length === dashes.length;
}

export function readTable(lines, start) {
  const names = splitRow(lines[start]);
  const aligned = splitRow(lines[start + 1]).map(alignment);
  const rows = [];
  let at = start + 2;
  for (; at < lines.length && !interrupts(lines, at); at++) {
    const cells = splitRow(lines[at]);
    rows.push(names.map((_, column) => cells[column] ?? ""));
  }
  return [{ type: "table", names, aligned, rows }, at];
}

function alignment(dashes) {
  if (dashes.endsWith(":")) return dashes.startsWith(":") ? "center" : "right";
  return "left";
}

// The cells of a row; "\|" is a bar inside of one.
export function splitRow(line) {
  const cells = [];
  let cell = "";
  const text = line.trim();
  for (let at = text[0] === "|" ? 1 : 0; at < text.length; at++) {
    if (text[at] === "\\" && text[at + 1] === "|") {
      cell += "|";
      at += 1;
    } else if (text[at] === "|") {
      cells.push(cell.trim());
      cell = "";
    } else {
      cell += text[at];
    }
  }
  if (cell.trim() !== "" || cells.length === 0) cells.push(cell.trim());
  return cells;
}
