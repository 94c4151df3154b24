"""The grammars of several tests."""

from tiny_llm.sampling.grammar import Grammar

PATTERN = Grammar.regex("(yes|no)!")
PERSON = Grammar.json_schema(
    {
        "type": "object",
        "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["age"],
        "additionalProperties": False,
    }
)
