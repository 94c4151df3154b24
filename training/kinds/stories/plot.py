"""Plots are text files: one step per line; lines that start with a slash are other variants of the sentence.

open, meet               introduce the hero, the friend
key, say, maybe TEXT     a sentence for every story, for all but very short stories, or for half of these
end MOODS                a closing sentence in one of the moods
set NAME = TEXT          a word of the plot, unless the reader has already chosen it
ask QUESTION / ANSWER    a question of the reader afterwards
summary TEXT             the story in one sentence
"""

from functools import cache

from training.kinds.stories.tale import Tale
from training.language.template import expand
from training.text import sections

Step = tuple[str, list[str]]


@cache
def plots(file: str) -> dict[str, list[Step]]:
    """All plots of a file, by name."""
    result = {}
    for name, lines in sections(file).items():
        steps: list[Step] = []
        for line in lines:
            word, _, text = line.strip().partition(" ")
            if word == "/":
                steps[-1][1].append(text)
            else:
                steps.append((word, [text]))
        result[name] = steps
    return result


def tell(tale: Tale, steps: list[Step], **chosen: str) -> None:
    """Tell a story by a plot; `chosen` are words from the request."""
    tale.words |= chosen
    parts = sections("story_parts")
    for word, variants in steps:
        text = variants[0]
        if word == "open":
            tale.add(parts["open"])
            tale.questions.append(
                (tale.fill("What was the name of the {kind}?"), tale.fill("The {kind} was named {Hero}."))
            )
            if "taste" in chosen:
                tale.sentences.append(
                    tale.fill("{He} [loved|liked] {taste} more than anything [else|in the world].")
                )
        elif word == "meet":
            tale.add(parts["meet"])
            tale.questions.append(
                (tale.fill("Who did {Hero} meet?"), tale.fill("{Hero} met {Friend}, {a_fkind}."))
            )
        elif word == "end":
            tale.add([line for mood in text.split() for line in parts[mood]])
        elif word == "set":
            name, value = text.split(" = ")
            tale.words.setdefault(name, expand(tale.rng, value, tale.words))
        elif word == "ask":
            question, answer = text.split(" / ")
            tale.questions.append((tale.fill(question), tale.fill(answer)))
        elif word == "summary":
            tale.summary = tale.fill(text)
        elif word == "key" or (not tale.brief and (word == "say" or tale.rng.random() < 0.5)):
            tale.add(variants)
