"""Compiles grammars: the handler of the process that tries them first (`runtime/worker_program.py`).

llguidance is native code: a hostile grammar can take it minutes or all memory. It imports nothing of this
package, so that the process starts fast.
"""

import ctypes
import json
from collections.abc import Sequence
from typing import Any

import llguidance

MEMORY = 2**31  # bytes; a tokenizer of 150 000 tokens takes 200 MB
TOO_MUCH_MEMORY = {"error": "it takes too much memory"}
MAX_ERROR_CHARS = 300
# Limits of native work for one mask, at most a fifth of llguidance's own: it delays all requests of a batch.
# Masks of large schemas take less than a tenth of this.
LIMITS = {"step_lexer_fuel": 30_000, "step_max_items": 10_000, "verbose_errors": False}
MAX_TOKENIZERS = 4

_tokenizers: dict[str, llguidance.LLTokenizer] = {}


class AllocatorStatistics(ctypes.Structure):
    """glibc's `struct mallinfo2`: ten sizes in bytes."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def allocated() -> int | None:
    """The bytes that this process has allocated; None where the C library does not say."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        return None
    mallinfo.restype = AllocatorStatistics
    found = mallinfo()
    return int(found.uordblks + found.hblkhd)


def make_tokenizer(definition: str, end_tokens: list[int]) -> llguidance.LLTokenizer:
    """llguidance's tokenizer from the text of a tokenizer.json."""
    return llguidance.LLTokenizer(definition, eos_token=end_tokens)


def make_matcher(
    tokenizer: llguidance.LLTokenizer,
    kind: str,
    text: str,
    preface: Sequence[str] | None = None,
    tags: Sequence[Sequence[str]] = (),
) -> llguidance.LLMatcher:
    """A matcher at its beginning, perhaps in a state of error; of the fields of a `Grammar`."""
    matcher = llguidance.LLMatcher
    if tags:
        text = f"{text}\n{tag_rules(tokenizer, tags)}"
    source = {
        "json_schema": lambda: matcher.grammar_from_json_schema(text),
        "regex": lambda: matcher.grammar_from_regex(text),
        "lark": lambda: matcher.grammar_from_lark(text),
    }[kind]()
    if preface is not None:
        answer = {"lark_grammar": text} if kind == "lark" else json.loads(source)["grammars"][0]
        source = put_after(tokenizer, preface, answer)
    limits: Any = llguidance.LLParserLimits(**LIMITS)  # type: ignore[arg-type]
    return matcher(tokenizer, source, log_level=0, limits=limits)


def put_after(tokenizer: llguidance.LLTokenizer, preface: Sequence[str], answer: dict[str, Any]) -> str:
    """The grammar `answer`, as llguidance lists it, after a text from the begin of `preface` to its end."""
    begin, end = preface
    rules = f"start: {'begin' if begin else ''} to_end LINES @answer\nLINES: /\\n{{0,2}}/\n"
    rules += tag_rules(tokenizer, [("begin", begin), ("end", end)] if begin else [("end", end)])
    return json.dumps({"grammars": [{"lark_grammar": rules}, {**answer, "name": "answer"}]})


def tag_rules(tokenizer: llguidance.LLTokenizer, tags: Sequence[Sequence[str]]) -> str:
    """Rules for pairs of a name and a tag: NAME is the tag, `to_NAME` any text up to the first one; and TEXT.

    Tags such as <think> are one token of some models. llguidance takes it for that token and for no text.
    """
    rules = ["TEXT: /(.|\\n)*/"]
    for name, tag in tags:
        tokens = tokenizer.tokenize_str(tag, parse_special=True)
        is_token = len(tokens) == 1 and tokenizer.is_special_token(tokens[0])
        rules += [
            f"{name}: {tag if is_token else json.dumps(tag)}",
            f"to_{name}: spelled_{name} {f'| TEXT {tag}' if is_token else ''}",
            f"spelled_{name}[suffix={json.dumps(tag)}]: /(.|\\n)*/",
        ]
    return "\n".join(rules)


def find_error(matcher: llguidance.LLMatcher) -> str | None:
    """Why a matcher at its beginning cannot be used; None if it can."""
    if not matcher.is_error():
        matcher.compute_bitmask()
    reason = brief_error(matcher)
    return "no text matches it" if reason.startswith("NoExtension") else reason or None


def brief_error(matcher: llguidance.LLMatcher) -> str:
    """The error on one line, without the place where llguidance would print the grammar."""
    return " ".join(matcher.get_error().partition("<non-verbose/>")[0].split())[:MAX_ERROR_CHARS]


def handle(
    tokenizer: str,
    end_tokens: list[int],
    definition: str | None = None,
    kind: str = "",
    text: str = "",
    preface: list[str] | None = None,
    tags: Sequence[Sequence[str]] = (),
) -> dict[str, Any]:
    """{"size": bytes} if the grammar can be used with the tokenizer of that name, or {"error": ...}.

    The size, of what it was compiled to, is null where it is not known. With a `definition`, keep a
    tokenizer under this name instead; {"unknown": ...} asks for that.
    """
    try:
        if definition is not None:
            while len(_tokenizers) >= MAX_TOKENIZERS:
                _tokenizers.pop(next(iter(_tokenizers)))
            _tokenizers[tokenizer] = make_tokenizer(definition, end_tokens)
            return {}
        if tokenizer not in _tokenizers:
            return {"unknown": tokenizer}
        before = allocated()
        matcher = make_matcher(_tokenizers[tokenizer], kind, text, preface, tags)
        error = find_error(matcher)
        after = allocated()
        size = None if before is None or after is None else after - before
        return {"size": size} if error is None else {"error": error}
    except MemoryError:
        return TOO_MUCH_MEMORY
    except BaseException as error:  # a panic of native code is a subclass of BaseException
        return {"error": f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS]}
