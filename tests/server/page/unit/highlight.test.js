// The tokens of code, and that code which grows line by line gets the same ones.
import assert from "node:assert/strict";
import test from "node:test";
import { tokensOf } from "../../../../src/tiny_llm/server/page/markdown/highlight.js";

const tokens = (text, language) => [...tokensOf(text, language)].map(({ kind, start, end }) => `${kind[0]}:${text.slice(start, end)}`);

const CODE = [
  ["py", "def f(x):  # add\n    return x1 + 0x1F + 2.5e3", ["k:def", "c:# add", "k:return", "n:0x1F", "n:2.5e3"]],
  ["python", 'a = """x\n# y"""\nb = \'it\\\'s\'', ['s:"""x\n# y"""', "s:'it\\'s'"]],
  ["js", "const a = `x\n${1}`; // b /* c\n/* d\n e */ if", ["k:const", "s:`x\n${1}`", "c:// b /* c", "c:/* d\n e */", "k:if"]],
  ["C++", 'int x = 1\'000; char* s = "open\nreturn', ["k:int", "n:1", "s:'000; char* s = \"open", "k:return"]],
  ["rust", "fn f<'a>(x: &'a str) -> char { 'x' }", ["k:fn", "s:'x'"]],
  ["sql", "SELECT a FROM b -- c", ["k:SELECT", "k:FROM", "c:-- c"]],
  ["json", '{"a": [1, true, null]}', ['s:"a"', "n:1", "k:true", "k:null"]],
  ["bash", "echo $#; if a; then # b\nx#y", ["k:echo", "k:if", "k:then", "c:# b"]],
  ["html", '<a href="x">if</a><!-- b -->', ["k:<a", 's:"x"', "k:>", "k:</a", "k:>", "c:<!-- b -->"]],
  ["", "if 1", []],
  ["constructor", "if 1", []],
];
for (const [language, text, expected] of CODE) {
  test(`tokens of ${language || "no language"}: ${JSON.stringify(text)}`, () => assert.deepEqual(tokens(text, language), expected));
}

test("hostile code takes linear time", () => {
  for (const part of ['"', "'", "`", "/*", "\\", '"""', "#", "<!--", "1e", "a"]) {
    for (const language of ["py", "js", "rust", "html", "c"]) assert.ok([...tokensOf(part.repeat(100_000), language)].length <= 200_000);
  }
});
