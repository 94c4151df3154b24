"""What of a request says which pages it can use: how its prompt begins."""

from hashlib import blake2b

import msgspec

FIRST_CHARS = 256  # of a prompt that is a text: about the tokens of a page


class Spoken(msgspec.Struct):
    role: str = ""


class Beginning(msgspec.Struct):
    """The fields of all interfaces that hold a prompt, undecoded."""

    model: msgspec.Raw = msgspec.Raw()
    cache_salt: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    system: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    messages: list[msgspec.Raw] | None = None  # of chats
    input: list[msgspec.Raw] | str | None = None  # of responses
    prompt: msgspec.Raw = msgspec.Raw()


DECODER = msgspec.json.Decoder(Beginning)
ROLE = msgspec.json.Decoder(Spoken)


def prefix_of(body: bytes) -> bytes | None:
    """A hash of how the prompt begins; None if nothing in the body is one, which a replica will refuse.

    A conversation is what comes before its first answer: with each further turn it keeps its hash. One system
    message with many users has many hashes, so that it is in the pages of every replica, not of one.
    """
    try:
        fields = DECODER.decode(body)
        spoken = fields.input if isinstance(fields.input, list) else fields.messages
        conversation = until_user(spoken or [])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    text = fields.input.encode() if isinstance(fields.input, str) else bytes(fields.prompt)
    if not conversation and not text:
        return None
    hashed = blake2b(digest_size=16)
    head = (fields.model, fields.cache_salt, fields.tools, fields.system, fields.instructions)
    for part in (*head, *conversation, text[:FIRST_CHARS]):
        hashed.update(len(part := bytes(part)).to_bytes(8))
        hashed.update(part)
    return hashed.digest()


def until_user(messages: list[msgspec.Raw]) -> list[msgspec.Raw]:
    """The messages up to the first one of a user, or all."""
    for number, message in enumerate(messages, start=1):
        if ROLE.decode(message).role == "user":
            return messages[:number]
    return messages
