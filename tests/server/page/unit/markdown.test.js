// Markdown becomes the tree that a reader expects, whole and while it grows, and for hostile texts too.
import assert from "node:assert/strict";
import test from "node:test";
import { parseBlocks } from "../../../../src/tiny_llm/server/page/markdown/blocks.js";
import { parseInline } from "../../../../src/tiny_llm/server/page/markdown/inline.js";
import { GrowingBlocks } from "../../../../src/tiny_llm/server/page/markdown/stream.js";

// A short form of a tree: the type, then what it holds.
function brief(block) {
  if (block.type === "list") return [block.ordered ? `ol${block.start}` : "ul", ...block.items.map((item) => item.map(brief))];
  if (block.type === "quote") return ["quote", ...block.blocks.map(brief)];
  if (block.type === "code") return ["code", block.language, block.text, block.closed];
  if (block.type === "formula") return ["formula", block.text, block.closed, ...(block.after ? [block.after] : [])];
  if (block.type === "table") return ["table", block.names, block.aligned, ...block.rows];
  if (block.type === "heading") return [`h${block.level}`, block.text];
  return block.type === "rule" ? "rule" : block.text;
}
const blocks = (text) => parseBlocks(text).map(brief);

// Inline nodes as text: emphasis in the tags of HTML, links as [text](url).
function flat(nodes) {
  const one = ({ type, text, url, children }) => {
    if (type === "text") return text;
    if (type === "break") return "⏎";
    if (type === "code") return `‹${text}›`;
    if (type === "formula") return `⟪${text}⟫`;
    return type === "link" ? `[${flat(children)}](${url})` : `<${type}>${flat(children)}</${type}>`;
  };
  return nodes.map(one).join("");
}
const inline = (text) => flat(parseInline(text));

const BLOCKS = {
  "# One\n###### Six #\n####### seven": [["h1", "One"], ["h6", "Six"], "####### seven"],
  "a\nb\n\nc": ["a\nb", "c"],
  "a\r\nb\r\n\r\nc": ["a\nb", "c"],
  "```py\nx = '<b>'\n\n  y\n```\nafter": [["code", "py", "x = '<b>'\n\n  y", true], "after"],
  "~~~\n```\n~~~": [["code", "", "```", true]],
  "````\n```\n````": [["code", "", "```", true]],
  "```js\nopen": [["code", "js", "open", false]],
  "- a\n- b": [["ul", ["a"], ["b"]]],
  "* a\n  * b\n    * c\n* d": [["ul", ["a", ["ul", ["b", ["ul", ["c"]]]]], ["d"]]],
  "1. a\n  - b\n2. c": [["ol1", ["a", ["ul", ["b"]]], ["c"]]],
  "3) a\n4) b": [["ol3", ["a"], ["b"]]],
  "- a\n\n  more\n\n- b": [["ul", ["a", "more"], ["b"]]],
  "- a\n\nnot in it": [["ul", ["a"]], "not in it"],
  "1. see:\n   ```\n   x\n   ```\n2. b": [["ol1", ["see:", ["code", "", "x", true]], ["b"]]],
  "text\n- a": ["text", ["ul", ["a"]]],
  "in 1945.\n1984. was a year": ["in 1945.\n1984. was a year"],
  "> a\n> - b\n\nc": [["quote", "a", ["ul", ["b"]]], "c"],
  "---\n* * *\n- - x": ["rule", "rule", ["ul", [["ul", ["x"]]]]],
  "|a|b|\n|:-:|-:|\n|1|\n|x\\|y|2|3|\n\nz": [["table", ["a", "b"], ["center", "right"], ["1", ""], ["x|y", "2"]], "z"],
  "a | b\nno dashes": ["a | b\nno dashes"],
  "<div>\n<script>alert(1)</script>": ["<div>\n<script>alert(1)</script>"],
  "$$a$$\n\\[\nb\n- c\n\\].\nd": [["formula", "a", true], ["formula", "b\n- c", true, "."], "d"],
  "as\n  $$x\ny": ["as", ["formula", "x\ny", false]],
  "\\[a\n\nb\\]": [["formula", "a", false], "b\\]"],
  "- so\n  \\[\n  a\n  \\]\n- b": [["ul", ["so", ["formula", "a", true]], ["b"]]],
  "": [],
};
for (const [text, expected] of Object.entries(BLOCKS)) {
  test(`blocks of ${JSON.stringify(text)}`, () => assert.deepEqual(blocks(text), expected));
}

const INLINE = {
  "*a* _b_ **c** __d__ ***e***": "<em>a</em> <em>b</em> <strong>c</strong> <strong>d</strong> <em><strong>e</strong></em>",
  "**a *b* c**": "<strong>a <em>b</em> c</strong>",
  "snake_case_name and 2 * 3 * 4": "snake_case_name and 2 * 3 * 4",
  "~~old~~ ~5~": "<del>old</del> ~5~",
  "`a*b*` ``c`d`` `open": "‹a*b*› ‹c`d› `open",
  "\\*a\\* \\`b\\` c\\d": "*a* `b` c\\d",
  "a\nb\\\nc": "a⏎b⏎c",
  "[a](https://b.c)": "[a](https://b.c/)",
  '[a *b*](https://b.c/d_(e) "t")': "[a <em>b</em>](https://b.c/d_(e))",
  "[a [b](https://c.d)](https://e.f)": "[a [b](https://c.d/)]([https://e.f](https://e.f/))",
  "![pixel](https://a.b/c.png)": "[pixel](https://a.b/c.png)",
  "see https://a.b/c. (http://d.e) <https://f.g>": "see [https://a.b/c](https://a.b/c). ([http://d.e](http://d.e/)) [https://f.g](https://f.g/)",
  "<me@a.org> [m](mailto:me@a.org)": "[me@a.org](mailto:me@a.org) [m](mailto:me@a.org)",
  "&lt;b&gt; &amp;amp; &nope;": "<b> &amp; &nope;",
  "**un *closed": "**un *closed",
  "for $x_1*2*$ and \\(a_b\\), $$c$$ or \\[d\\]": "for ⟪x_1*2*⟫ and ⟪a_b⟫, ⟪c⟫ or ⟪d⟫",
  "from $5 to $10, $ 3 $, \\$4$ and \\(open": "from $5 to $10, $ 3 $, $4$ and (open",
  "$HOME:$PATH and ${a}/${b}": "$HOME:$PATH and ${a}/${b}",
  "`$a$` [$b$](https://c.d)": "‹$a$› [⟪b⟫](https://c.d/)",
  "": "",
};
for (const [text, expected] of Object.entries(INLINE)) {
  test(`inside of ${JSON.stringify(text)}`, () => assert.equal(inline(text), expected));
}

const HARMFUL = [
  "javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\tscript:alert(1)", " javascript:alert(1)", "\u0001javascript:alert(1)",
  "data:text/html,<script>alert(1)</script>", "vbscript:x", "file:///etc/passwd", "blob:https://a/b", "/v1/models", "//evil.example",
  "#x", "ftp://a.b", "https:", "&#106;avascript:alert(1)", "javascript&colon;alert(1)", "view-source:https://a.b",
];
for (const address of HARMFUL) {
  test(`no link to ${JSON.stringify(address)}`, () => {
    const links = [`[a](${address})`, `[a](<${address}>)`, `<${address}>`, `![a](${address})`].map(parseInline).flat();
    for (const { type, url, children } of links) {
      if (type !== "link") continue;
      assert.match(url, /^(https?|mailto):/);
      assert.notEqual(flat(children), "a"); // an address inside of a harmful one may be a link of its own
    }
  });
}

const PARTS = [..."*_~`[]()!<>#|-+:\\ \n\n1.ab$", "$$", "\n$$", "\n\\[", "\\]", "```", "- ", "  ", "1. ", "> ", "| a | b |\n", "|---|---|\n", "http://a.b", "\n\n", "](https://a.b)"];
const withoutLines = (tree) => JSON.stringify(tree, (key, value) => (key === "line" ? undefined : value));

test("a text that grows has at each moment the blocks of the whole text", () => {
  let state = 1;
  const random = (below) => (state = (state * 48271) % 2147483647) % below;
  for (let round = 0; round < 1500; round++) {
    const text = Array.from({ length: 2 + random(40) }, () => PARTS[random(PARTS.length)]).join("");
    const growing = new GrowingBlocks();
    const final = [];
    for (let end = 1 + random(3); ; end += 1 + random(6)) {
      const shown = growing.grow(text.slice(0, end));
      final.push(...shown.final);
      assert.equal(withoutLines([...final, ...shown.open]), withoutLines(parseBlocks(text.slice(0, end))), JSON.stringify(text.slice(0, end)));
      if (end >= text.length) break;
    }
  }
});

test("most of a long text is final while it grows", () => {
  const growing = new GrowingBlocks();
  const text = "A paragraph of some words.\n\n- a list\n- of two\n\n".repeat(50);
  for (let end = 0; end <= text.length; end += 7) assert.ok(growing.grow(text.slice(0, end)).open.length <= 2);
});

function depth(nodes) {
  return 1 + Math.max(0, ...nodes.map(({ children, blocks: inner, items }) => depth(children ?? inner ?? items?.flat() ?? [])));
}

test("hostile texts stay flat enough to draw", () => {
  const texts = [
    "> ".repeat(5000) + "a", "- ".repeat(5000) + "a", "*a **b ".repeat(2000) + "c** d* ".repeat(2000),
    "![".repeat(5000) + "a" + "](http://b)".repeat(5000), "`".repeat(5000) + "a", "[".repeat(20000), "[a](b".repeat(5000),
    "*a ".repeat(10000), "<a".repeat(10000), "|".repeat(5000) + "\n" + "|-".repeat(5000), "#".repeat(10000), "\\".repeat(9999),
  ];
  for (const text of texts) {
    const tree = parseBlocks(text);
    assert.ok(depth(tree) < 30);
    assert.ok(depth(parseInline(text)) < 50);
  }
});
