"""Every mistake of the tables applies to the current sources."""

import pytest

from .kernels import NATIVE
from .test_mistakes import MISTAKES, READABLE_LAYERS, ROOT

TABLES = (MISTAKES, NATIVE)
EACH = [READABLE_LAYERS, *(mistake for table in TABLES for group in table.values() for mistake in group)]


@pytest.mark.parametrize("file", sorted({mistake.file for mistake in EACH}))
def test_each_mistake_applies_to_its_file(file):
    right = (ROOT / "src" / file).read_text()
    for mistake in EACH:
        if mistake.file == file:
            wrong = mistake.applied(right)
            if file.endswith(".py"):
                compile(wrong, mistake.name, "exec")
