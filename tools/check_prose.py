"""Spelling and wording of the book, docs/ and README.md: `python tools/check_prose.py [FILE ...]`.

Words are looked up in pyspellchecker's English dictionary, which comes with the package, and in
book/words.toml, which also has the phrases that are not used here and what to say instead. Code, formulas
and names with digits, underscores or inner capitals are no prose.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from spellchecker import SpellChecker

ROOT = Path(__file__).resolve().parents[1]
PROSE = ("README.md", "book/**/*.md", "docs/*.md")  # pages in folders of docs/ are written by programs
RULES = tomllib.loads((ROOT / "book" / "words.toml").read_text())

DIRECTIVE_WITH_PROSE = re.compile(r"^```\{(?:widget|picture|note)\}[^\n]*\n(.*?)^```$", re.S | re.M)
# Each is replaced by as many lines, so that the numbers of lines stay.
NOT_PROSE = [
    re.compile(pattern, re.S | re.M)
    for pattern in (
        r"^```.*?^```",
        r"^\$\$.*?\$\$",
        r"`[^`]+`",
        r"\$[^$\n]+\$",
        r"<[^>]+>",
        r"(?<=\])\([^)]*\)",  # the target of a link
        r"https?://\S+",
        r"--[\w-]+",  # a flag
    )
]
LETTERS = "[A-Za-zµÀ-ÖØ-öø-ɏΑ-ω]+"
WORD = re.compile(rf"(?<![\w@./]){LETTERS}(?:['’]{LETTERS})?(?![\w@/]|\.\w)")


def main() -> int:
    files = [Path(name) for name in sys.argv[1:]] or sorted(
        path for pattern in PROSE for path in ROOT.glob(pattern)
    )
    found = [f"{path}:{line}: {message}" for path in files for line, message in findings(path.read_text())]
    print("\n".join(found) or f"{len(files)} pages are spelt right.")
    return 1 if found else 0


def findings(text: str) -> Iterator[tuple[int, str]]:
    """The line and the complaint, for each wrong word and phrase."""
    prose = prose_of(text)
    for match in WORD.finditer(prose):
        if is_misspelt(match[0]):
            yield prose.count("\n", 0, match.start()) + 1, f"unknown word: {match[0]}"
    for pattern, better in INSTEAD:
        for match in pattern.finditer(prose):
            yield prose.count("\n", 0, match.start()) + 1, f"{' '.join(match[0].split())!r}: write {better}"


def prose_of(text: str) -> str:
    text = DIRECTIVE_WITH_PROSE.sub(r"\n\1", text)
    for pattern in NOT_PROSE:
        text = pattern.sub(lambda match: " " + "\n" * match[0].count("\n"), text)
    return text


def is_misspelt(word: str) -> bool:
    if word[1:] != word[1:].lower():  # an acronym, or a name such as FlashAttention
        return False
    lower = word.lower().replace("’", "'")
    return not any(form in KNOWN or form in DICTIONARY for form in (lower, lower.removesuffix("'s")))


def phrase(text: str) -> re.Pattern[str]:
    """A phrase of words.toml, over any line break; it may be a pattern."""
    anywhere = text.replace(" ", r"\s+")
    return re.compile(rf"\b(?:{anywhere})\b", re.I)


DICTIONARY = SpellChecker(language="en").word_frequency
KNOWN = {word.lower() for word in RULES["known"].split()}
INSTEAD = [(phrase(text), better) for text, better in RULES["instead"].items()]


if __name__ == "__main__":
    sys.exit(main())
