"""Finds pages that hold the beginning of a sequence already, so that it is not computed again."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import NamedTuple

Digest = Callable[[bytes], bytes]


class Entry(NamedTuple):
    """A full page and what it holds."""

    page: int
    parent: bytes  # the key of the page before it
    content: bytes  # its token ids


def digest(data: bytes) -> bytes:
    """A cryptographic hash: nobody can build two prompts with the same key, as with the hash of a tuple."""
    return blake2b(data, digest_size=16).digest()


class PrefixIndex:
    """Full pages by the hash of their tokens and of all tokens before them.

    The chain of a sequence begins with the model and a salt: requests with different salts share no page.
    On a hit the token ids of the page are compared, too.
    """

    def __init__(self, page_size: int, model: str = "", digest: Digest = digest):
        self.page_size = page_size
        self._model = model
        self._digest = digest
        self._entries: dict[bytes, Entry] = {}
        self._keys: dict[int, bytes] = {}  # by page

    def __contains__(self, page: int) -> bool:
        return page in self._keys

    def __iter__(self) -> Iterator[int]:
        """The pages that can be found."""
        return iter(self._keys)

    def extend(self, keys: list[bytes], token_ids: array[int], num_pages: int, salt: str) -> None:
        """Append to `keys`, the keys of the first pages, until there are `num_pages` of them."""
        parent = keys[-1] if keys else self._root(salt)
        for number in range(len(keys), num_pages):
            parent = self._digest(parent + self._content(token_ids, number))
            keys.append(parent)

    def find(self, keys: list[bytes], token_ids: array[int], num_pages: int, salt: str) -> list[int]:
        """The longest run of pages that hold the beginning of `token_ids`, at most `num_pages`."""
        self.extend(keys, token_ids, num_pages, salt)
        found: list[int] = []
        parent = self._root(salt)
        for number in range(num_pages):
            entry = self._entries.get(keys[number])
            if entry is None or entry.parent != parent or entry.content != self._content(token_ids, number):
                break
            found.append(entry.page)
            parent = keys[number]
        return found

    def register(self, page: int, keys: list[bytes], token_ids: array[int], number: int, salt: str) -> None:
        """Make `page` findable as page `number` of `token_ids`, unless another page is already.

        Call it after the forward pass that filled the page.
        """
        self.extend(keys, token_ids, number + 1, salt)
        key = keys[number]
        if key in self._entries or page in self._keys:
            return
        parent = keys[number - 1] if number else self._root(salt)
        self._entries[key] = Entry(page, parent, self._content(token_ids, number))
        self._keys[page] = key

    def forget(self, page: int) -> None:
        """The page gets another content: it cannot be found any more."""
        key = self._keys.pop(page, None)
        if key is not None:
            del self._entries[key]

    def check(self) -> None:
        """Raise AssertionError unless each page has one entry, and each entry one page."""
        assert {key: entry.page for key, entry in self._entries.items()} == {
            key: page for page, key in self._keys.items()
        }, "pages and entries of the prefix index do not match"

    def _root(self, salt: str) -> bytes:
        return self._digest(repr((self._model, salt)).encode())

    def _content(self, token_ids: array[int], number: int) -> bytes:
        return token_ids[number * self.page_size : (number + 1) * self.page_size].tobytes()
