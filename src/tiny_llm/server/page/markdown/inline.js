// The inside of a paragraph: code, emphasis, links and line breaks, as a tree. Pure, and linear in the text.
import { DEEPEST, Emphasis, flanking } from "./emphasis.js";
import { readBareUrl, readTarget, safeUrl } from "./links.js";

const SPECIAL = /[\\`*_~[\]!<&$\n]|https?:\/\//g;
const CLOSED_BY = { "$$": "$$", "\\(": "\\)", "\\[": "\\]" };
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const IN_ANGLES = /<([a-z][a-z0-9+.-]{1,31}:[^\s<>]{0,2000}|[\w.+-]{1,64}@[\w.-]{1,255})>/iy;
const ENTITY = /&(amp|lt|gt|quot|apos|nbsp|#39);/y;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", "#39": "'", nbsp: "\u00a0" };

export function parseInline(text) {
  return new InlineParser(text).parse();
}

class InlineParser {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.items = []; // nodes, and runs of * _ ~ that may become emphasis
    this.brackets = []; // places of "[" in `items` that may begin a link
    this.runs = null; // places of runs of backticks by their length
    this.absent = new Set(); // what closes a formula, and does not come any more
  }

  parse() {
    const { text } = this;
    while (this.at < text.length) {
      SPECIAL.lastIndex = this.at;
      const found = SPECIAL.exec(text);
      const next = found ? found.index : text.length;
      if (next > this.at) this.add(text.slice(this.at, next));
      this.at = next;
      if (found) this.readSpecial(text[next]);
    }
    return new Emphasis(this.items).nodes;
  }

  add(text) {
    const last = this.items.at(-1);
    if (last?.type === "text") last.text += text;
    else this.items.push({ type: "text", text });
  }

  // Take one character as it is.
  addChar() {
    this.add(this.text[this.at]);
    this.at += 1;
  }

  readSpecial(char) {
    if ((char === "\\" || char === "$") && this.readFormula()) return;
    if (char === "\\") this.readEscape();
    else if (char === "$") this.addChar();
    else if (char === "`") this.readCode();
    else if (char === "\n") this.readBreak();
    else if (char === "[" || char === "!") this.openBracket(char);
    else if (char === "]") this.closeBracket();
    else if (char === "<") this.readAngles();
    else if (char === "&") this.readEntity();
    else if (char === "h") this.readUrl();
    else this.readRun(char);
  }

  // $a$, $$a$$, \(a\) or \[a\]: true if there is one here. Two amounts of dollars, or names of a shell, are none.
  readFormula() {
    const mark = this.text.slice(this.at, this.at + 2);
    const close = CLOSED_BY[mark] ?? (mark[0] === "$" ? "$" : "");
    if (!close || this.absent.has(close)) return false;
    const start = this.at + (close === "$" ? 1 : 2);
    const end = this.text.indexOf(close, start);
    if (end < 0) this.absent.add(close);
    const inner = this.text.slice(start, end);
    if (end < 0 || inner.trim() === "") return false;
    if (close === "$" && (/^\s|[\s\\]$/.test(inner) || /[\w{]/.test(this.text[end + 1] ?? ""))) return false;
    this.items.push({ type: "formula", text: inner, display: close === "$$" || close === "\\]" });
    this.at = end + close.length;
    return true;
  }

  readEscape() {
    const next = this.text[this.at + 1];
    if (next === "\n") {
      this.at += 1;
      return;
    }
    if (next !== undefined && ESCAPABLE.test(next)) this.at += 1;
    this.addChar();
  }

  readBreak() {
    const last = this.items.at(-1);
    if (last?.type === "text") last.text = last.text.trimEnd();
    this.items.push({ type: "break" });
    this.at += 1;
  }

  readCode() {
    this.runs ??= backtickRuns(this.text);
    const start = this.at;
    let end = start;
    while (this.text[end] === "`") end += 1;
    const places = this.runs.get(end - start);
    while (places.length > 0 && places.at(-1) <= start) places.pop();
    this.at = end;
    if (places.length === 0) {
      this.add(this.text.slice(start, end));
      return;
    }
    const close = places.at(-1);
    const inner = this.text.slice(end, close).replaceAll("\n", " ");
    const padded = inner.startsWith(" ") && inner.endsWith(" ") && inner.trim() !== "";
    this.items.push({ type: "code", text: padded ? inner.slice(1, -1) : inner });
    this.at = close + (end - start);
  }

  openBracket(char) {
    const isImage = char === "!";
    if (isImage && this.text[this.at + 1] !== "[") {
      this.addChar();
      return;
    }
    this.brackets.push(this.items.length);
    this.items.push({ type: "text", text: isImage ? "![" : "[" });
    this.items.push({ type: "text", text: "" }); // what follows does not join the bracket
    this.at += isImage ? 2 : 1;
  }

  // A link, or a picture, which is shown as a link: the page loads nothing from elsewhere.
  closeBracket() {
    const open = this.brackets.pop();
    const target = open === undefined ? null : readTarget(this.text, this.at + 1);
    const url = target && safeUrl(target[0]);
    if (!url) {
      this.addChar();
      return;
    }
    const isImage = this.items[open].text === "![";
    const children = new Emphasis(this.items.splice(open).slice(1)).nodes;
    if (children.length === 0) children.push({ type: "text", text: target[0] });
    const depth = depthOf(children);
    this.items.push({ type: "link", url, children, depth });
    if (!isImage || depth >= DEEPEST) this.brackets = []; // no link inside of a link, and none too deep
    this.at = target[1];
  }

  readAngles() {
    IN_ANGLES.lastIndex = this.at;
    const match = IN_ANGLES.exec(this.text);
    const url = match && safeUrl(match[1].includes(":") ? match[1] : `mailto:${match[1]}`);
    if (!url) {
      this.addChar();
      return;
    }
    this.items.push({ type: "link", url, children: [{ type: "text", text: match[1] }], depth: 1 });
    this.at += match[0].length;
  }

  readEntity() {
    ENTITY.lastIndex = this.at;
    const match = ENTITY.exec(this.text);
    if (!match) {
      this.addChar();
      return;
    }
    this.add(ENTITIES[match[1]]);
    this.at += match[0].length;
  }

  readUrl() {
    const inWord = this.at > 0 && /\w/.test(this.text[this.at - 1]);
    const found = inWord || this.brackets.length > 0 ? null : readBareUrl(this.text, this.at);
    const url = found && safeUrl(found[0]);
    if (!url) {
      this.addChar();
      return;
    }
    this.items.push({ type: "link", url, children: [{ type: "text", text: found[0] }], depth: 1 });
    this.at = found[1];
  }

  readRun(char) {
    const start = this.at;
    while (this.text[this.at] === char) this.at += 1;
    const count = this.at - start;
    this.items.push({ type: "run", char, count, ...flanking(this.text, start, this.at) });
  }
}

function depthOf(nodes) {
  return 1 + nodes.reduce((deepest, node) => Math.max(deepest, node.depth ?? 0), 0);
}

// The places of runs of backticks by length, the last first: the next one is popped from the end.
function backtickRuns(text) {
  const runs = new Map();
  for (const match of text.matchAll(/`+/g)) {
    const places = runs.get(match[0].length) ?? [];
    places.push(match.index);
    runs.set(match[0].length, places);
  }
  for (const places of runs.values()) places.reverse();
  return runs;
}
