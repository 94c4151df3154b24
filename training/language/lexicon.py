"""The words of the generator, by kind, with plurals and articles."""

from training.text import sections

# A noun of two words is written with an underscore in the file.
WORDS = {
    kind: [word.replace("_", " ") for line in lines for word in line.split()]
    for kind, lines in sections("lexicon").items()
}
NAMES = WORDS["girls"] + WORDS["boys"]
NOUN_KINDS = ("animals", "roles", "objects", "places", "foods", "plants", "nature")
IRREGULAR = {
    "mouse": "mice", "goose": "geese", "fish": "fish", "sheep": "sheep", "deer": "deer", "wolf": "wolves",
    "leaf": "leaves", "loaf": "loaves", "calf": "calves", "elf": "elves", "moose": "moose", "elk": "elk",
    "child": "children", "fisherman": "fishermen", "postman": "postmen", "watchman": "watchmen", "snowman": "snowmen",
    "squid": "squid", "foot": "feet", "tooth": "teeth", "man": "men", "woman": "women", "person": "people",
    "dwarf": "dwarves", "knife": "knives", "thief": "thieves", "bison": "bison", "salmon": "salmon", "trout": "trout",
    "shrimp": "shrimp", "potato": "potatoes", "tomato": "tomatoes", "mango": "mangoes", "goldfish": "goldfish",
    "jellyfish": "jellyfish", "starfish": "starfish", "dragonfly": "dragonflies", "buffalo": "buffalo",
}  # fmt: skip
CONSONANT_SOUNDS = ("uni", "use", "one", "eu", "ukulele")


def a(noun: str) -> str:
    """The noun with its indefinite article."""
    vowel = noun.startswith(tuple("aeiou")) and not noun.startswith(CONSONANT_SOUNDS)
    return f"{'an' if vowel else 'a'} {noun}"


def plural(noun: str) -> str:
    if noun in IRREGULAR:
        return IRREGULAR[noun]
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "z", "ch", "sh")) else "s")
