// Formulas of TeX become MathML, and none can bring anything else or take long.
import assert from "node:assert/strict";
import test from "node:test";
import { parseTex } from "../../../../src/tiny_llm/server/page/markdown/tex.js";

// A tree as tag(children), leaves as their text.
const brief = ({ tag, text, children }) => text ?? `${tag}(${children.map(brief).join(" ")})`;
const tex = (text, display = false) => {
  const tree = parseTex(text, display);
  return tree && tree.children.map(brief).join(" ");
};

const FORMULAS = {
  "a + 2.5b - c": "a + 2.5 b − c",
  "x_i^2 + x^{2n}_0 + f'": "msubsup(x i 2) + msubsup(x 0 mrow(2 n)) + msup(f ′)",
  "\\frac{a}{b} \\dfrac12": "mfrac(a b) mfrac(1 2)",
  "\\sqrt{x} + \\sqrt[3]{y}": "msqrt(x) + mroot(y 3)",
  "\\sum_{i=1}^n \\alpha_i \\le \\infty": "msubsup(∑ mrow(i = 1) n) msub(α i) ≤ ∞",
  "\\left( \\frac{Q K^\\top}{\\sqrt{d_k}} \\right) V": "mrow(( mfrac(mrow(Q msup(K ⊤)) msqrt(msub(d k))) )) V",
  "\\mathrm{softmax}(x) \\text{ if } y": "softmax ( x )  if  y",
  "\\mathbb{R}^n \\mathbf{A1} \\mathcal{LZ}": "msup(ℝ n) mrow(𝐀 𝟏) mrow(ℒ 𝒵)",
  "\\hat{y} \\bar x": "mover(y ^) mover(x ¯)",
  "\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}": "mrow(( mtable(mtr(mtd(a) mtd(b)) mtr(mtd(c) mtd(d))) ))",
  "f = \\begin{cases} 1 & x > 0 \\\\ 0 & \\text{else} \\end{cases}": "f = mrow({ mtable(mtr(mtd(1) mtd(x > 0)) mtr(mtd(0) mtd(else))) )",
  "\\begin{aligned} a &= b \\\\ &= c \\\\ \\end{aligned}": "mtable(mtr(mtd(a) mtd(= b)) mtr(mtd() mtd(= c)))",
  "\\{ x \\mid \\|x\\| \\}": "{ x ∣ ‖ x ‖ }",
  "\\unknown{x} \\constructor": "\\unknown x \\constructor",
  "<b> & é": "< b > é",
  "": "",
};
for (const [text, expected] of Object.entries(FORMULAS)) {
  test(`formula ${text}`, () => assert.equal(tex(text)?.replaceAll("\u00a0", " "), expected));
}

test("limits are below and above in a displayed formula", () => {
  assert.equal(tex("\\sum_{i}^n \\max_x \\int_0^1", true), "munderover(∑ i n) munder(max x) msubsup(∫ 0 1)");
});

for (const open of ["{", "a}", "\\frac{a}", "x^", "\\left( a", "\\right)", "\\begin{pmatrix} a", "\\begin{script}x\\end{script}", "\\text{a", "\\sqrt[3"]) {
  test(`no formula: ${open}`, () => assert.equal(parseTex(open), null));
}

const TAGS = new Set("math mrow mi mn mo mtext mspace msub msup msubsup munder mover munderover mfrac msqrt mroot mtable mtr mtd".split(" "));
const ATTRIBUTES = { display: ["block"], stretchy: ["true", "false"], accent: ["true"], mathvariant: ["normal"], linethickness: ["0"], displaystyle: ["true"], class: ["aligned", "cases"] };

test("any text gives elements and attributes of these names only, or nothing", () => {
  const parts = [..."{}[]()^_&'<>a1 \\", "\\\\", "\\frac", "\\sqrt", "\\left", "\\right", "\\begin{matrix}", "\\end{matrix}", "\\text{", "\\mathbb", "\\href{javascript:alert(1)}", "\\sum", "onclick=x", "</math><script>"];
  let state = 1;
  const random = (below) => (state = (state * 48271) % 2147483647) % below;
  const check = ({ tag, text, children = [], attributes }) => {
    assert.ok(TAGS.has(tag), tag);
    assert.ok(text === undefined || typeof text === "string");
    for (const [name, value] of Object.entries(attributes)) assert.ok(/width|space/.test(name) ? /^[\d.]+em$/.test(value) : ATTRIBUTES[name].includes(value), name);
    children.forEach(check);
  };
  for (let round = 0; round < 3000; round++) {
    const tree = parseTex(Array.from({ length: random(25) }, () => parts[random(parts.length)]).join(""));
    if (tree) check(tree);
  }
});

test("deep formulas are refused and long ones read", () => {
  for (const part of ["{", "\\sqrt", "\\frac", "\\left(", "x^{", "\\mathbf{", "\\begin{matrix}"]) assert.equal(parseTex(part.repeat(50_000)), null);
  assert.equal(parseTex("x^a".repeat(50_000)).children.length, 50_000);
  assert.equal(parseTex(`x${"^a".repeat(50_000)}`).children.length, 1);
});
