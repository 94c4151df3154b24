"""Questions about this project and its field that the model cannot answer, and declines.

Without them it would give a wrong fact for any question that resembles a known one.
"""

import random

from training.corpus.conversation import Conversation, Turn
from training.kinds.about_tiny_llm import OTHER_NAMES
from training.kinds.about_tiny_llm import PHRASES as EXPLAIN
from training.kinds.stories.subjects import invented
from training.language.template import FilledLater, expand, sentence_case
from training.text import sections

TEXT = sections("unknown")
TERMS = TEXT["terms"][0].split("|")
POOLS = {slot: TEXT[section][0].split("|") for slot, section in
         {"file": "files", "function": "functions", "flag": "flags", "error": "errors",
          "part": "parts", "done": "done", "do": "do", "did": "did"}.items()}  # fmt: skip


def filler(rng: random.Random, slot: str) -> str:
    if slot in POOLS:
        return rng.choice(POOLS[slot]).format_map(FilledLater(lambda inner: filler(rng, inner)))
    if slot == "digit":
        return str(rng.randint(1, 9))
    if slot == "number":
        return str(rng.randint(10, 9999))
    if slot == "later":
        return str(rng.randint(4, 30))
    return invented(rng)


def about_the_project(rng: random.Random) -> Turn:
    question = expand(rng, rng.choice(TEXT["project"])).format_map(
        FilledLater(lambda slot: filler(rng, slot))
    )
    if "tiny-llm" in question and rng.random() < 0.3:
        question = sentence_case(question.replace("tiny-llm", rng.choice(OTHER_NAMES)))
    return Turn(question, expand(rng, rng.choice(TEXT["sorry"])), {"declines": "yes"})


def a_term(rng: random.Random) -> Turn:
    """A term that is not in the glossary, sometimes an invented one."""
    term = rng.choice(TERMS)
    if rng.random() < 0.25:
        term = rng.choice([f"{invented(rng)} attention", f"the {invented(rng)} layer", invented(rng), f"{invented(rng)} decoding",
                           f"a {invented(rng)} cache", f"{invented(rng).title()} sampling", f"the {invented(rng)} kernel"])  # fmt: skip
    question = sentence_case(rng.choice(EXPLAIN["explain"]).format(x=term))
    answer = expand(rng, rng.choice(TEXT["sorry term"]), {"x": term, "X": sentence_case(term)})
    return Turn(question, answer, {"declines": "yes"})


def unknown(rng: random.Random, holdout: bool = False) -> Conversation:
    return [rng.choices([about_the_project, a_term], [60, 40])[0](rng)]
