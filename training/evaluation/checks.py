"""Checks whether an answer to a held-out prompt is right or sensible, without a second model as a judge."""

import random
import re
from enum import StrEnum
from functools import lru_cache

from training.corpus.conversation import Turn
from training.kinds.stories.requests import story
from training.language.lexicon import NAMES, NOUN_KINDS, WORDS, plural
from training.language.template import pattern

NOUNS = {
    word
    for kind in (
        *NOUN_KINDS,
        "character adjectives",
        "thing adjectives",
        "place adjectives",
        "food adjectives",
    )
    for noun in WORDS[kind]
    for word in (*noun.split(), plural(noun))
}
KNOWN_SHARE = 0.97
SAMPLE = 16_000
DECLINES = (
    r"do not know|I cannot|beyond (me|what I)|(tiny|small) model|cannot (help|do|say|calculate)|rather not|not learned|more than I know|only know|"
    r"not told me|not sure what you mean|nobody can|would not count on|too (long|hard|much) for me"
)


def words(text: str, subject: set[str] = frozenset()) -> list[str]:
    """Words with masked names and nouns, so that sequences can be compared between stories."""
    result = []
    nouns = NOUNS | subject
    for word in re.findall(r"[A-Za-z']+|[.!?]", text):
        masked = "NAME" if word in NAMES else "NOUN" if word.lower() in nouns else word.lower()
        masked = "a" if masked == "an" else masked
        if not (masked == "NOUN" and result and result[-1] == "NOUN"):
            result.append(masked)
    return result


def trigrams(text: str, subject: set[str] = frozenset()) -> list[tuple[str, ...]]:
    sequence = words(text, subject)
    return list(zip(sequence, sequence[1:], sequence[2:], strict=False))


@lru_cache(maxsize=1)
def known_trigrams() -> set[tuple[str, ...]]:
    """All sequences of three words in a sample of generated stories."""
    rng = random.Random("trigrams")
    known: set[tuple[str, ...]] = set()
    for _ in range(SAMPLE):
        turn = story(rng)[0]
        known.update(trigrams(turn.assistant, set(turn.facts["story"].split())))
    return known


def check_story(answer: str, facts: dict[str, str]) -> str:
    """What is wrong with a story, or an empty string."""
    subject = facts["story"].split()
    text = answer.lower()
    for word in subject:
        singular = [noun for noun in NOUNS if plural(noun) == word]
        if not any(form.lower() in text for form in [word, *singular]):
            return f"does not mention {word}"
    sentences = re.findall(r'[^.!?]+[.!?]+"?', answer)
    if len(sentences) < (3 if facts["brief"] else 5):
        return "too short"
    if len(set(sentences)) < len(sentences):
        return "repeats a sentence"
    if not answer[0].isupper() or answer[-1] not in '.!?"':
        return "is not made of whole sentences"
    if len(set(NAMES) & set(re.findall(r"\w+", answer))) not in (1, 2):
        return "mixes up the names"
    found = trigrams(answer, set(subject))
    share = sum(gram in known_trigrams() for gram in found) / len(found)
    return "" if share >= KNOWN_SHARE else f"only {share:.0%} of the word sequences are known"


def check(turn: Turn, answer: str, ended: bool) -> str:
    """What is wrong with an answer to `turn`, or an empty string."""
    facts = turn.facts
    if not ended:
        return "does not end"
    if "story" in facts:
        return check_story(answer, facts)
    if "number" in facts:
        numbers = re.findall(r"-?\d+", answer)
        return "" if numbers and numbers[-1] == facts["number"] else f"the result is {facts['number']}"
    if "reply" in facts:
        return "" if re.fullmatch(pattern(facts["reply"]), answer) else "is not a fitting reply"
    if "declines" in facts:
        found = re.findall(r"-?\d+", answer)
        right = "or" in facts and found[-1:] == [facts["or"]]
        return "" if declines(answer) or right else "does not decline"
    if "exact" in facts:
        return "" if answer == facts["exact"] else f"expected {facts['exact']}"
    if "begins" in facts:
        return "" if answer.startswith(facts["begins"] + " ") else f"expected {facts['begins']}"
    missing = [
        facts[name]
        for name in ("contains", "contains too")
        if not any(words in answer.lower() for words in facts.get(name, "").lower().split("|"))
    ]
    return f"does not contain {missing[0]}" if missing else ""


class Verdict(StrEnum):
    """The verdict on an answer: `WRONG` is a false or unfitting statement; `NEITHER` makes no statement, such as a poor story
    or an incomplete answer."""

    RIGHT, DECLINED, WRONG, NEITHER = "right", "declined", "wrong", "neither"


def declines(answer: str) -> bool:
    """Whether the answer declines in words and gives no result."""
    return re.search(DECLINES, answer, re.IGNORECASE) is not None and " = " not in answer


def judge(turn: Turn, answer: str, ended: bool) -> tuple[Verdict, str]:
    """The verdict on an answer, and the reason if it is not right."""
    reason = check(turn, answer, ended)
    if not reason:
        return Verdict.RIGHT, ""
    if not ended:
        return Verdict.NEITHER, reason
    if declines(answer):
        return Verdict.DECLINED, reason
    return (Verdict.NEITHER if "story" in turn.facts else Verdict.WRONG), reason
