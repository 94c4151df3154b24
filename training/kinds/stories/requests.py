"""Requests for stories, and the rest of the conversation."""

import random

from training.corpus.conversation import Conversation, Turn
from training.corpus.split import choose_side
from training.kinds.stories.subjects import content_words
from training.kinds.stories.telling import any_story, fond, open_story
from training.language.lexicon import plural
from training.language.template import expand
from training.text import sections

PHRASES = sections("story_requests")


def ask(rng: random.Random, name: str, holdout: bool) -> str:
    return rng.choice(choose_side("story request", PHRASES[name], holdout))


def story(rng: random.Random, holdout: bool = False) -> Conversation:
    form = rng.choices(["requests", "brief", "fond", "open"], [80, 10, 6, 4])[0]
    request = ask(rng, form, holdout)
    if form == "open":
        tale = open_story(
            rng, rng.choices(PHRASES["open subjects"], [5, *[1] * (len(PHRASES["open subjects"]) - 1)])[0]
        )
        mention = ""
    elif form == "fond":
        mention, tale = fond(rng, holdout)
        request = request.format(xs=plural(mention))
    else:
        asked, tale = any_story(rng, holdout, brief=form == "brief")
        request = request.format(x=asked)
        mention = " ".join(content_words(asked))
    first = Turn(request, tale.text, {"story": mention, "brief": "yes" if tale.brief else ""})
    return [first, *after(rng, tale, holdout)]


def after(rng: random.Random, tale, holdout: bool) -> Conversation:
    """Sometimes the reader asks or says something about the story, or requests another one."""
    chance = rng.random()
    if chance < 0.10:
        return [Turn(*rng.choice(tale.questions))]
    if chance < 0.16:
        return [Turn(rng.choice(PHRASES["about it"]), tale.summary)]
    if chance < 0.19:
        return [Turn(expand(rng, PHRASES["thanks"][0]), expand(rng, PHRASES["welcome"][0]))]
    if chance < 0.22:
        asked, another = any_story(rng, holdout)
        request = rng.choice(PHRASES["more"])
        if "{x}" not in request:
            another = open_story(rng, rng.choice(PHRASES["open subjects"]))
        return [Turn(request.format(x=asked), another.text)]
    return []
