"""`pdm run main`: the demonstration on the command line."""

import sys

from tiny_llm.cli.attention_demo import main

if __name__ == "__main__":
    sys.exit(main())
