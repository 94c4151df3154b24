"""The one form of an error text: `<function>: <argument>: got ..., expected ...`."""

import pytest


def refused(
    argument: str, error: type[Exception] = ValueError, function: str = "flash_attention"
) -> pytest.RaisesExc:
    """A context in which that argument must be refused."""
    return pytest.raises(error, match=rf"^{function}: {argument}: got .+, expected .+")
