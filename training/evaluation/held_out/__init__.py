"""Prompts written by hand, not from templates: training never generates them, the evaluation asks them.

One file for each kind, in blocks of `field content` lines:
ask TEXT                            the prompt; `first TEXT // TEXT` are turns before it
number, contains, story, declines   what a right answer has, as in the facts of a turn; `a|b` is either
times N                             the prompt is the text N times
file NAME, words N                  N words of a file of this project precede the prompt
"""

from functools import cache
from pathlib import Path

from training.corpus.conversation import Conversation, Turn
from training.corpus.split import normal
from training.text import read_blocks

FOLDER = Path(__file__).parent
PROJECT = FOLDER.parents[2]
FACTS = ("number", "contains", "contains too", "story", "declines")


def prompt(block: dict[str, str]) -> str:
    text = block["ask"]
    if "times" in block:
        return " ".join([text] * int(block["times"]))
    if "file" in block:
        return " ".join([*(PROJECT / block["file"]).read_text().split()[: int(block["words"])], text])
    return text


def conversation(block: dict[str, str]) -> Conversation:
    facts = {name: block[name] for name in FACTS if name in block}
    if "story" in facts:
        facts["brief"] = "yes"
    before = [Turn(text, "") for text in block["first"].split(" // ")] if "first" in block else []
    return [*before, Turn(prompt(block), "", facts)]


@cache
def by_hand() -> dict[str, list[Conversation]]:
    """The conversations by kind."""
    return {
        file.stem: [conversation(block) for block in read_blocks(file)]
        for file in sorted(FOLDER.glob("*.txt"))
    }


@cache
def forbidden() -> frozenset[str]:
    """The normalised prompts, which the generator leaves out."""
    return frozenset(normal(turn.user) for turns in by_hand().values() for c in turns for turn in c[-1:])
