"""Finds pages that hold the beginning of a sequence already, so that it is not computed again."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import chain, takewhile
from typing import NamedTuple

Digest = Callable[[bytes], bytes]


class Entry(NamedTuple):
    """A page and what it holds."""

    page: int
    parent: bytes  # the key of the page before it
    content: bytes  # its token ids; fewer than a page has, if it is an end


def digest(data: bytes) -> bytes:
    """A cryptographic hash: nobody can build two prompts with the same key, as with the hash of a tuple."""
    return blake2b(data, digest_size=16).digest()


class PrefixIndex:
    """Full pages by the hash of their tokens and of all tokens before them.

    The chain of a sequence begins with the model and a salt: requests with different salts share no page.
    On a hit the token ids of the page are compared, too. After each page, and at the root, it knows the
    newest page that followed, whose first tokens can be copied. It may be an end: a page that is not full.
    """

    def __init__(self, page_size: int, model: str = "", digest: Digest = digest):
        self.page_size = page_size
        self._model = model
        self._digest = digest
        self._entries: dict[bytes, Entry] = {}
        self._keys: dict[int, bytes] = {}  # by page
        self._newest: dict[bytes, Entry] = {}  # by the key of the page before
        self._ends: dict[int, bytes] = {}  # the key of the page before, by page

    def __contains__(self, page: int) -> bool:
        return page in self._keys or page in self._ends

    def __iter__(self) -> Iterator[int]:
        """The pages that can be found."""
        return chain(self._keys, self._ends)

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

    def remember(
        self, page: int, keys: list[bytes], token_ids: array[int], stop: int, salt: str
    ) -> int | None:
        """Make `page`, which holds the last of the first `stop` tokens, the newest one after those before it.

        If it is not registered as a full page, it is an end. Return the end that was the newest before, if
        any: nothing finds it any more.
        """
        number = (stop - 1) // self.page_size
        self.extend(keys, token_ids, number, salt)
        parent = self._parent(keys, number, salt)
        before = self._newest.get(parent)
        replaced = before.page if before and before.page != page and before.page in self._ends else None
        if replaced is not None:
            self.forget(replaced)
        content = token_ids[number * self.page_size : stop].tobytes()
        self._newest[parent] = Entry(page, parent, content)
        if page in self._keys:
            self._ends.pop(page, None)
        else:
            self._ends[page] = parent
        return replaced

    def find_beginning(
        self, keys: list[bytes], token_ids: array[int], number: int, stop: int, salt: str
    ) -> tuple[int, int] | None:
        """The newest page after the first `number` ones, and how many of the next tokens it begins with.

        Call it after `find`. Tokens from `stop` on do not count. None if not one token is equal.
        """
        entry = self._newest.get(self._parent(keys, number, salt))
        if entry is None:
            return None
        wanted = token_ids[number * self.page_size : stop]
        pairs = zip(array("i", entry.content), wanted, strict=False)
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return (entry.page, common) if common else None

    def forget(self, page: int) -> None:
        """The page gets another content: it cannot be found any more."""
        key = self._keys.pop(page, None)
        parent = self._ends.pop(page, None)
        if key is not None:
            parent = self._entries.pop(key).parent
        if parent in self._newest and self._newest[parent].page == page:
            del self._newest[parent]

    def check(self) -> None:
        """Raise AssertionError unless pages and entries match, and each end is the newest page."""
        assert {key: entry.page for key, entry in self._entries.items()} == {
            key: page for page, key in self._keys.items()
        }, "pages and entries of the prefix index do not match"
        assert self._keys.keys().isdisjoint(self._ends), "a page is full and an end"
        for parent, newest in self._newest.items():
            key = self._keys.get(newest.page)
            known = self._ends.get(newest.page) if key is None else self._entries[key].parent
            assert newest.parent == parent == known, f"page {newest.page} is the newest after another page"
        ends = {newest.page for newest in self._newest.values()} - self._keys.keys()
        assert ends == self._ends.keys(), "an end is not the newest page after the one before it"

    def _root(self, salt: str) -> bytes:
        return self._digest(repr((self._model, salt)).encode())

    def _parent(self, keys: list[bytes], number: int, salt: str) -> bytes:
        return keys[number - 1] if number else self._root(salt)

    def _content(self, token_ids: array[int], number: int) -> bytes:
        return token_ids[number * self.page_size : (number + 1) * self.page_size].tobytes()
