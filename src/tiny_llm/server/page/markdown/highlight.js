// The tokens of code: comments, strings, numbers and keywords, for the languages that models write. Pure.

const WORDS = {
  c: `alignas alignof asm auto bool break case catch char class concept const constexpr continue decltype default delete do double
    else enum explicit extern false final float for friend goto if inline int long mutable namespace new noexcept nullptr operator
    override private protected public register requires return short signed sizeof static struct switch template this throw true try
    typedef typename union unsigned using virtual void volatile while NULL`,
  java: `abstract as base boolean break byte case catch char class const continue default defer do double else enum extends extension
    false final finally float for foreach fun func go guard if implements import in instanceof int interface internal is let long
    namespace new nil null object open out override package private protected public record return sealed short static string struct
    super switch synchronized this throw throws true try type using val var void volatile when where while`,
  js: `abstract any as async await boolean break case catch class const continue debugger default delete do else enum export extends
    false finally for from function get if implements import in instanceof interface let new null number of private protected public
    readonly return set static string super switch this throw true try type typeof undefined var void while with yield`,
  python: `False None True and as assert async await break case class continue def del elif else except finally for from global if
    import in is lambda match nonlocal not or pass raise return self try while with yield`,
  ruby: `alias and begin break case class def do else elsif end ensure false for if in module next nil not or redo require rescue
    retry return self super then true undef unless until when while yield`,
  rust: `as async await box break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub
    ref return self Self static struct super trait true type unsafe use where while`,
  shell: `case cd do done echo elif else esac exit export fi for function if in local read return set shift then unset until while`,
  sql: `add all alter and as asc between by case check column constraint create cross default delete desc distinct drop else end
    exists foreign from full group having if in index inner insert into is join key left like limit not null offset on or order outer
    primary references right select set table then union unique update values view when where with`,
  data: "true false null yes no on off",
};
const SLASHES = String.raw`\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)`;
const HASH = String.raw`(?<![^\s;(])#[^\n]*`;
const STRINGS = String.raw`"(?:[^"\\\n]+|\\[^])*"?|'(?:[^'\\\n]+|\\[^])*'?`;
const TRIPLE = String.raw`"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)`;
const BACKTICKS = "`(?:[^`\\\\]+|\\\\[^])*`?";

// Comments, strings and words of a family of languages. One letter in quotes is a string in Rust, but 'a alone is a lifetime.
const FAMILIES = [
  { names: "c cc cpp c++ cxx h hpp cuda cu metal glsl objc", comment: SLASHES, string: STRINGS, words: WORDS.c },
  { names: "java kotlin kt csharp cs c# swift go golang scala dart php", comment: SLASHES, string: `${TRIPLE}|${STRINGS}|${BACKTICKS}`, words: WORDS.java },
  { names: "js javascript jsx mjs ts tsx typescript", comment: SLASHES, string: `${STRINGS}|${BACKTICKS}`, words: WORDS.js },
  { names: "py python python3 pycon mojo", comment: HASH, string: `${TRIPLE}|${STRINGS}`, words: WORDS.python },
  { names: "rb ruby", comment: HASH, string: STRINGS, words: WORDS.ruby },
  { names: "rs rust", comment: SLASHES, string: String.raw`"(?:[^"\\]+|\\[^])*"?|'(?:[^'\\\n]|\\.)'`, words: WORDS.rust },
  { names: "sh bash shell zsh console dockerfile makefile cmake", comment: HASH, string: STRINGS, words: WORDS.shell },
  { names: "sql sqlite postgresql mysql", comment: String.raw`--[^\n]*|\/\*[^]*?(?:\*\/|$)`, string: STRINGS, words: WORDS.sql, anyCase: true },
  { names: "json jsonc json5", comment: SLASHES, string: STRINGS, words: WORDS.data },
  { names: "yaml yml toml ini conf", comment: HASH, string: `${TRIPLE}|${STRINGS}`, words: WORDS.data },
  { names: "css scss less", comment: String.raw`\/\*[^]*?(?:\*\/|$)`, string: STRINGS, words: "" },
  { names: "html xml svg vue", comment: String.raw`<!--[^]*?(?:-->|$)`, string: String.raw`"[^"<>\n]*"`, words: "", tags: true },
].map(prepare);

function prepare({ names, comment, string, words, tags, anyCase }) {
  const word = tags ? String.raw`<\/?[\w:-]+|\/?>` : String.raw`[\p{L}_$][\p{L}\p{N}_$]*`;
  const number = String.raw`(?:0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*`;
  const pattern = new RegExp(`(?<comment>${comment})|(?<string>${string})|(?<word>${word})|(?<number>${number})`, "gu");
  return { names: names.split(" "), pattern, words: tags ? null : new Set(words.split(/\s+/)), anyCase };
}

// The tokens of code from `from` on: {kind, start, end}; none for an unknown language. Between them is plain text.
export function* tokensOf(text, language, from = 0) {
  const family = FAMILIES.find(({ names }) => names.includes(language.toLowerCase()));
  if (!family) return;
  const pattern = new RegExp(family.pattern);
  pattern.lastIndex = from;
  for (let match = pattern.exec(text); match; match = pattern.exec(text)) {
    const kind = kindOf(match, family);
    if (kind) yield { kind, start: match.index, end: pattern.lastIndex };
  }
}

function kindOf({ 0: text, groups }, { words, anyCase }) {
  if (groups.word === undefined) return Object.keys(groups).find((name) => groups[name] !== undefined);
  return !words || words.has(anyCase ? text.toLowerCase() : text) ? "keyword" : null;
}
