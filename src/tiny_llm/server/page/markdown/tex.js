// A formula of TeX as a tree of MathML: {tag, text} or {tag, children}, with attributes. Pure, and linear in the text.
// The part of TeX that models write; a command that is not known is shown by its name.
import { ACCENTS, BELOW, FENCES, FUNCTIONS, LARGE, LETTERS, LIMITS, OPERATORS, SPACES, inFont, isFont } from "./symbols.js";

const DEEPEST = 40; // groups inside of groups
const TOKEN = /\\([A-Za-z]+\*?|[^])|\s+|\d+(?:\.\d+)?|[^]/gu;
const MATRICES = { matrix: ["", ""], pmatrix: ["(", ")"], bmatrix: ["[", "]"], Bmatrix: ["{", "}"], vmatrix: ["|", "|"], Vmatrix: ["‖", "‖"], smallmatrix: ["", ""], array: ["", ""], cases: ["{", ""] };
const ALIGNED = new Set("aligned align alignat gather gathered split equation eqnarray multline".split(" "));
const TEXTS = new Set("text textrm textbf textit texttt textsf mbox mathrm mathit operatorname".split(" "));
const SIZES = new Set("displaystyle textstyle scriptstyle limits nolimits big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr nonumber notag hline".split(" "));

// The tree of a formula, or null where its brackets do not match, as in one that has not come to its end.
export function parseTex(text, display = false) {
  try {
    const parser = new TexParser(text, display);
    const children = parser.row(() => false);
    return { tag: "math", attributes: display ? { display: "block" } : {}, children };
  } catch (error) {
    if (error instanceof Unmatched) return null;
    throw error;
  }
}

const NAME = { lspace: "0.17em", rspace: "0.17em" }; // "log x" is two words

class Unmatched extends Error {}

const leaf = (tag, text, attributes = {}) => ({ tag, text, attributes });
const node = (tag, children, attributes = {}) => ({ tag, children, attributes });
const row = (children) => (children.length === 1 ? children[0] : node("mrow", children));
const fence = (text) => leaf("mo", text, { stretchy: "true" });

class TexParser {
  constructor(text, display) {
    this.tokens = text.match(TOKEN) ?? [];
    this.at = 0;
    this.display = display;
    this.depth = 0;
  }

  // The next token that is no space.
  get next() {
    while (this.at < this.tokens.length && /^\s/.test(this.tokens[this.at])) this.at += 1;
    return this.tokens[this.at];
  }

  take() {
    const token = this.next;
    if (token === undefined) throw new Unmatched();
    this.at += 1;
    return token;
  }

  expect(token) {
    if (this.take() !== token) throw new Unmatched();
  }

  // Nodes until a token ends them, which is not taken; or until the end, where nothing else can end them.
  row(ends) {
    const outer = this.depth === 0;
    this.deeper();
    const nodes = [];
    for (let token = this.next; ; token = this.next) {
      if (token === undefined ? outer : ends(token)) break;
      if (token === undefined || token === "}" || token === "\\right" || token === "\\end") throw new Unmatched();
      if (token === "&" || token === "\\\\") this.take(); // outside of a table
      else nodes.push(...this.scripted());
    }
    this.depth -= 1;
    return nodes;
  }

  // One node with what is below and above it; none for a command that only sets a size.
  scripted() {
    const base = "^_'".includes(this.next) ? node("mrow", []) : this.atom();
    if (!base) return [];
    const [lower, upper] = [[], []];
    while (this.next !== undefined && "^_'".includes(this.next)) {
      const mark = this.take();
      if (mark === "'") upper.push(leaf("mo", "′"));
      else (mark === "_" ? lower : upper).push(this.argument());
    }
    const [below, above] = [lower, upper].map((nodes) => (nodes.length > 0 ? row(nodes) : null));
    const { limits, ...shown } = base;
    const [under, over, both] = limits && this.display ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
    if (below && above) return [node(both, [shown, below, above])];
    if (below) return [node(under, [shown, below])];
    return [above ? node(over, [shown, above]) : shown];
  }

  // A group in braces, or one atom; of a number, its first digit.
  argument() {
    if (/^\d./.test(this.next)) {
      const [digit] = this.next;
      this.tokens[this.at] = this.next.slice(1);
      return leaf("mn", digit);
    }
    this.deeper();
    const found = this.next === "{" ? this.group() : (this.atom() ?? this.argument());
    this.depth -= 1;
    return found;
  }

  deeper() {
    this.depth += 1;
    if (this.depth > DEEPEST) throw new Unmatched();
  }

  group() {
    this.expect("{");
    const nodes = this.row((token) => token === "}");
    this.take();
    return row(nodes);
  }

  // The characters of a group, with their spaces.
  raw() {
    this.expect("{");
    let [text, open] = ["", 1];
    for (; this.at < this.tokens.length; this.at++) {
      const token = this.tokens[this.at];
      if (token === "{") open += 1;
      if (token === "}") open -= 1;
      if (open === 0) {
        this.at += 1;
        return text;
      }
      text += token.replace(/^\\(?=[^A-Za-z])/, "");
    }
    throw new Unmatched();
  }

  atom() {
    const token = this.take();
    if ("}&".includes(token)) throw new Unmatched();
    if (token === "{") {
      this.at -= 1;
      return this.group();
    }
    if (token[0] === "\\") return this.command(token.slice(1));
    if (/^\d/.test(token)) return leaf("mn", token);
    if (/^\p{L}/u.test(token)) return leaf("mi", token);
    if (token === "~") return space(0.28);
    if ("()[]|".includes(token)) return leaf("mo", token, { stretchy: "false" });
    return leaf("mo", token === "-" ? "−" : token === "*" ? "∗" : token);
  }

  command(name) {
    if (LETTERS.has(name)) return leaf("mi", LETTERS.get(name));
    if (OPERATORS.has(name)) return leaf("mo", OPERATORS.get(name));
    if (LARGE.has(name)) return { ...leaf("mo", LARGE.get(name)), limits: true };
    if (LIMITS.has(name)) return { ...leaf("mo", name, NAME), limits: true };
    if (FUNCTIONS.has(name)) return leaf("mo", name, NAME);
    if (FENCES.has(name)) return leaf("mo", FENCES.get(name), { stretchy: "false" });
    if (SPACES.has(name)) return space(SPACES.get(name));
    if (SIZES.has(name)) return null;
    if (TEXTS.has(name.replace("*", ""))) return this.words(name);
    if (isFont(name)) return this.letters(name);
    if (ACCENTS.has(name)) return node("mover", [this.argument(), leaf("mo", ACCENTS.get(name))], { accent: "true" });
    if (BELOW.has(name)) return node("munder", [this.argument(), leaf("mo", BELOW.get(name))]);
    if (/^[dtc]?frac$/.test(name)) return node("mfrac", [this.argument(), this.argument()]);
    if (/^[dt]?binom$/.test(name)) return this.binomial();
    if (name === "sqrt") return this.root();
    if (name === "left") return this.fenced();
    if (name === "middle") return fence(this.delimiter());
    if (name === "begin") return this.environment();
    if (name === "tag") return leaf("mtext", `\u2003(${this.raw()})`);
    if (name === "pmod") return row([leaf("mo", "("), leaf("mi", "mod"), space(0.28), this.argument(), leaf("mo", ")")]);
    if (name === "boxed") return this.argument();
    if (name === "stackrel" || name === "overset") return this.stacked("mover");
    if (name === "underset") return this.stacked("munder");
    return /^[A-Za-z]/.test(name) ? leaf("mtext", `\\${name}`) : leaf("mo", name);
  }

  words(name) {
    const text = this.next === "{" ? this.raw() : this.take();
    if (name.startsWith("operatorname")) return { ...leaf("mi", text), limits: name.endsWith("*") };
    return leaf(name.startsWith("math") ? "mi" : "mtext", text.replace(/^ | $/g, "\u00a0"), name.startsWith("math") ? { mathvariant: "normal" } : {});
  }

  // The argument with its letters in another alphabet.
  letters(name) {
    const change = (one) => ({ ...one, ...(one.children ? { children: one.children.map(change) } : { text: [...one.text].map((char) => inFont(char, name)).join("") }) });
    return change(this.argument());
  }

  binomial() {
    const parts = node("mfrac", [this.argument(), this.argument()], { linethickness: "0" });
    return row([fence("("), parts, fence(")")]);
  }

  root() {
    if (this.next !== "[") return node("msqrt", [this.argument()]);
    this.take();
    const index = row(this.row((token) => token === "]"));
    this.take();
    return node("mroot", [this.argument(), index]);
  }

  stacked(tag) {
    const other = this.argument();
    return node(tag, [this.argument(), other]);
  }

  delimiter() {
    const token = this.take();
    if (token === ".") return "";
    return token[0] === "\\" ? (FENCES.get(token.slice(1)) ?? token.slice(1)) : token;
  }

  fenced() {
    const left = fence(this.delimiter());
    const nodes = this.row((token) => token === "\\right");
    this.take();
    return node("mrow", [left, ...nodes, fence(this.delimiter())]);
  }

  environment() {
    const name = this.raw().replace("*", "");
    const aligned = ALIGNED.has(name);
    if (!aligned && !Object.hasOwn(MATRICES, name)) throw new Unmatched();
    if (name === "array" || name === "alignat") this.raw(); // how columns are set
    const rows = [[]];
    for (let token = ""; token !== "\\end"; token = this.take()) {
      if (token === "\\\\") rows.push([]);
      rows.at(-1).push(node("mtd", this.row((one) => one === "&" || one === "\\\\" || one === "\\end")));
    }
    if (this.raw().replace("*", "") !== name) throw new Unmatched();
    if (rows.at(-1).every(({ children }) => children.length === 0)) rows.pop();
    const className = aligned ? "aligned" : name === "cases" ? "cases" : "";
    const table = node("mtable", rows.map((cells) => node("mtr", cells)), className ? { class: className } : {});
    if (aligned) return { ...table, attributes: { ...table.attributes, displaystyle: "true" } };
    const [left, right] = MATRICES[name];
    return left || right ? node("mrow", [fence(left), table, fence(right)]) : table;
  }
}

const space = (width) => node("mspace", [], { width: `${width}em` });
