"""Questions and answers about this project and its subjects: terms of the glossary, and facts."""

import random

from training.corpus.conversation import Conversation, Turn
from training.language.template import expand, plainest, sentence_case
from training.text import blocks, sections

TERMS, FACTS, PHRASES = blocks("glossary"), blocks("facts"), sections("explain")

REWORDED = {line.split(" = ")[0] + " ": line.split(" = ")[1].split("|") for line in PHRASES["reworded"]}
OTHER_NAMES = PHRASES["other names"][0].split("|")


def first_sentence(text: str) -> str:
    return text.split(". ")[0].rstrip(".") + "."


COMPARABLE = [term for term in TERMS if term["must"] in first_sentence(plainest(term["answer"]))]


def name_of(rng: random.Random, term: dict[str, str]) -> str:
    return rng.choice(term["names"].split("|"))


def explanation(rng: random.Random) -> Turn:
    term = rng.choice(TERMS)
    question = sentence_case(rng.choice(PHRASES["explain"]).format(x=name_of(rng, term)))
    return Turn(question, expand(rng, term["answer"]), {"contains": term["must"]})


def comparison(rng: random.Random) -> Turn:
    first, second = rng.sample(COMPARABLE, 2)
    question = rng.choice(PHRASES["compare"]).format(x=name_of(rng, first), y=name_of(rng, second))
    answer = " ".join(first_sentence(expand(rng, term["answer"])) for term in (first, second))
    return Turn(sentence_case(question), answer, {"contains": first["must"], "contains too": second["must"]})


def in_other_words(rng: random.Random, question: str) -> str:
    """The same question in another wording, sometimes with another name of the project."""
    for start, forms in REWORDED.items():
        if question.startswith(start) and rng.random() < 0.5:
            rest = question.removeprefix(start).rstrip("?.")
            question = sentence_case(rng.choice(forms).format(rest=rest.strip()))
            break
    if "tiny-llm" in question and not question.endswith("tiny-llm chat?") and rng.random() < 0.3:
        question = sentence_case(question.replace("tiny-llm", rng.choice(OTHER_NAMES)))
    return question


def fact(rng: random.Random) -> Turn:
    known = rng.choice(FACTS)
    question = in_other_words(rng, expand(rng, known["ask"]))
    return Turn(question, expand(rng, known["answer"]), {"contains": known["must"]})


def about_tiny_llm(rng: random.Random, holdout: bool = False) -> Conversation:
    kinds = rng.choices([explanation, comparison, fact], [55, 10, 35], k=rng.choices([1, 2], [85, 15])[0])
    return [kind(rng) for kind in kinds]
