"""A story on a subject. Half of the stories depend only on the subject.

So each noun has one most likely story, and greedy decoding does not give the same plot and names for every subject.
"""

import random
from collections.abc import Callable

from training.kinds.stories.plot import plots, tell
from training.kinds.stories.subjects import BY_ADJECTIVE, FEARS, SKILLS, THEMES, invented, noun, plots_of
from training.kinds.stories.tale import Person, Tale, friend_of, person
from training.language.lexicon import NAMES, WORDS, a, plural

CHARACTERS, THINGS, PLACES = plots("character_plots"), plots("thing_plots"), plots("place_plots")
Story = tuple[str, Tale]  # the request, and the story


def teller(rng: random.Random, subject: str, wish: str) -> random.Random:
    """The random numbers of a story: free, or fixed by the subject (for invented words, by their beginning)."""
    return rng if rng.random() < 0.5 else random.Random(f"{subject}/{wish}")


def new_tale(rng: random.Random, hero: Person, brief: bool) -> Tale:
    return Tale(rng, hero, friend_of(rng, hero), brief)


def any_hero(rng: random.Random) -> Person:
    """The hero of a story about a thing or a place."""
    kind = rng.choice(["girl", "boy", rng.choice(WORDS["animals"]), rng.choice(WORDS["roles"])])
    adjective = f"{rng.choice(WORDS['character adjectives'])} " if rng.random() < 0.5 else ""
    return person(rng, kind, a(adjective + kind))


def character(rng: random.Random, holdout: bool, brief: bool) -> Story:
    made_up = rng.random() < 0.08
    kind = rng.choice(["animals", "roles"])
    who = invented(rng) if made_up else noun(rng, kind, holdout)
    count = rng.choices([0, 1, 2], [1, 4, 2] if made_up else [10, 9, 2])[0]
    adjectives = rng.sample(WORDS["character adjectives"], count)
    phrase = a(" ".join([*adjectives, who]))
    name = rng.choice(NAMES) if rng.random() < 0.12 else ""
    asked = phrase + (f" {rng.choice(['named', 'called'])} {name}" if name else "")
    wish = rng.choice(
        "plain plain plain plain fear skill skill taste friend friend object place lives".split()
    )
    if made_up and not adjectives and wish == "plain":
        wish = "skill"
    telling = teller(rng, who[:2] if made_up else who, wish)
    tale = new_tale(telling, person(telling, who, phrase, name), brief)
    who_ = rng.choice(["who", "who", "that"])
    if wish == "fear":
        of = rng.choice(list(FEARS))
        tell(tale, CHARACTERS["fear"], of=of, scene=tale.fill(FEARS[of]))
        return f"{asked} {who_} is afraid of {of}", tale
    if wish == "skill":
        skill = rng.choice(SKILLS)
        tell(tale, CHARACTERS["practice"], skill=skill)
        verb = "plays " if skill.startswith("play ") and rng.random() < 0.5 else ""
        if verb:
            return f"{asked} {who_} {verb}{skill.removeprefix('play ')}", tale
        return (
            f"{asked} {who_} {rng.choice(['wants to', 'wants to', 'learns to', 'wanted to'])} {skill}",
            tale,
        )
    if wish == "taste":
        taste = plural(noun(rng, "countable foods", holdout))
        tell(tale, CHARACTERS["sharing"], taste=taste, food=f"basket of {taste}")
        return f"{asked} {who_} {rng.choice(['loves', 'likes'])} {taste}", tale
    if wish == "friend":
        other = noun(rng, rng.choice(["animals", "animals", "roles"]), holdout)
        tale = Tale(telling, tale.hero, person(telling, other, apart=tale.hero.name), brief)
        tell(tale, CHARACTERS[telling.choice(plots_of("with another"))])
        return f"{asked} and {a(other)}", tale
    if wish == "object":
        tale.about(noun(rng, "objects", holdout))
        joint = rng.choice(["and", "with", "who finds"])
        plot = "found" if joint == "who finds" else telling.choice(plots_of("about objects"))
        tell(tale, THINGS[plot])
        return f"{asked} {joint} {tale.words['a_thing']}", tale
    if wish in ("place", "lives"):
        tale.about(noun(rng, "places", holdout))
        joint = (
            rng.choice(["and", "in", "who visits"]) if wish == "place" else rng.choice(["who lives in", "in"])
        )
        plot = (
            "visit"
            if joint == "who visits"
            else "keeper"
            if wish == "lives"
            else telling.choice(plots_of("about places"))
        )
        tell(tale, PLACES[plot])
        return f"{asked} {joint} {tale.words['a_thing']}", tale
    fitting = [plot for adjective in adjectives for plot in BY_ADJECTIVE.get(adjective, ())]
    plot = telling.choice(fitting if fitting and telling.random() < 0.7 else list(CHARACTERS))
    scene = {}
    if plot == "fear":
        of = telling.choice(list(FEARS))
        scene = {"of": of, "scene": tale.fill(FEARS[of])}
    tell(tale, CHARACTERS[plot], **scene or {"skill": telling.choice(SKILLS)})
    return plural(who) if asked == phrase == a(who) and not made_up and rng.random() < 0.1 else asked, tale


def thing(rng: random.Random, holdout: bool, brief: bool) -> Story:
    kind = rng.choices(["objects", "places", "foods", "plants", "invented"], [8, 6, 3, 2, 2])[0]
    what = invented(rng) if kind == "invented" else noun(rng, kind, holdout)
    adjectives = WORDS[
        {"objects": "thing", "places": "place", "foods": "food", "plants": "plant"}.get(kind, "thing")
        + " adjectives"
    ]
    chosen = rng.sample(adjectives, rng.choices([0, 1, 2], [10, 7, 1])[0])
    phrase = " ".join([*chosen, what])
    telling = teller(rng, what[:2] if kind == "invented" else what, kind)
    tale = new_tale(telling, any_hero(telling), brief)
    tale.about(phrase)
    plot = "curious" if kind == "invented" else telling.choice(plots_of(f"about {kind}"))
    tell(tale, (PLACES if kind == "places" else THINGS)[plot])
    return a(phrase) if rng.random() < 0.85 else f"the {phrase}", tale


def nature(rng: random.Random, holdout: bool, brief: bool) -> Story:
    what = noun(rng, "nature", holdout)
    bare = what in WORDS["uncounted"]
    phrase = f"the {what}" if bare or what in ("moon", "sun") else a(what)
    telling = teller(rng, what, "nature")
    tale = new_tale(telling, any_hero(telling), brief)
    tale.about(f"the {what}", phrase)
    tell(tale, PLACES[telling.choice(plots_of("about nature"))])
    return what if bare and rng.random() < 0.5 else phrase, tale


def theme(rng: random.Random, holdout: bool, brief: bool) -> Story:
    what = rng.choice(list(THEMES))
    telling = teller(rng, what, "theme")
    tale = new_tale(telling, any_hero(telling), brief)
    plot = telling.choice(THEMES[what])
    of = telling.choice(list(FEARS))
    words = {"fear": {"of": of, "scene": tale.fill(FEARS[of])}, "practice": {"skill": telling.choice(SKILLS)}}
    tell(tale, CHARACTERS[plot], **words.get(plot, {}))
    return what, tale


KINDS: dict[Callable[[random.Random, bool, bool], Story], float] = {
    character: 0.52,
    thing: 0.36,
    nature: 0.04,
    theme: 0.08,
}


def any_story(rng: random.Random, holdout: bool, brief: bool = False) -> Story:
    return rng.choices(list(KINDS), list(KINDS.values()))[0](rng, holdout, brief)


def fond(rng: random.Random, holdout: bool) -> tuple[str, Tale]:
    """A story for a reader who loves a kind of thing; returns the thing and the story."""
    kind = rng.choice(["animals", "objects"])
    what = noun(rng, kind, holdout)
    telling = teller(rng, what, "fond")
    hero = person(telling, what) if kind == "animals" else any_hero(telling)
    tale = new_tale(telling, hero, brief=False)
    tale.about(what)
    if kind == "animals":
        tell(tale, CHARACTERS[telling.choice(plots_of("with another"))])
    else:
        tell(tale, THINGS[telling.choice(plots_of("about objects"))])
    return what, tale


def open_story(rng: random.Random, subject: str) -> Tale:
    """A story without a requested subject: one of a few favorites."""
    telling = teller(rng, subject, "open")
    tale = new_tale(telling, person(telling, subject), brief=False)
    plot = telling.choice(plots_of("with another"))
    tell(tale, CHARACTERS[plot])
    return tale
