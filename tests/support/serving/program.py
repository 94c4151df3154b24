"""`tiny-llm serve` with an engine that has no model, as a program: DELAY, then the flags of the command."""

import argparse
import sys

from tests.support.serving.fake_engine import FakeEngine
from tiny_llm.cli import serve
from tiny_llm.cli.exit_codes import exit_code_of

delay, *flags = sys.argv[1:]
parser = argparse.ArgumentParser()
serve.add_arguments(parser)
options = parser.parse_args(flags)
engine = FakeEngine(delay=float(delay))
sys.exit(exit_code_of("serve", lambda: serve.run_with(lambda *_: engine, options)))
