"""`python -m tiny_llm` is the command `tiny-llm`."""

import sys

from .cli import main

sys.exit(main())
