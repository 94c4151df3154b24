"""On a terminal: bars, a conversation, and Ctrl-C."""

from __future__ import annotations

import re
import time

from tiny_llm.cli.exit_codes import INTERRUPTED
from tiny_llm.cli.loaders import LOADERS

from .terminal import CTRL_C, CTRL_D, IMPATIENT, LONG_PROMPT, UP, Terminal

SLOW = next(name for name, loader in LOADERS.items() if not loader.has_cache)
STORY = "Tell me a short story about a brave fox."


def test_a_long_prompt_has_a_bar_that_is_gone_when_the_answer_comes() -> None:
    with Terminal("-c", IMPATIENT, "--prompt", LONG_PROMPT, "--max-tokens", "1") as terminal:
        bar = terminal.wait_for(r"reading the prompt  \[[#.]{24}\] +\d+%  \d+ s")
        assert "\n" not in bar
        assert terminal.wait() == 0
    last_line = terminal.shown.split("\r\n")[0].split("\r")[-1]
    assert "reading" not in last_line
    assert "\x1b[2mprompt" in terminal.shown


def test_no_color_disables_colours() -> None:
    with Terminal("main.py", "--max-tokens", "1", NO_COLOR="1") as terminal:
        assert terminal.wait() == 0
    assert re.search(r"prompt \d+ tokens", terminal.shown)
    assert "\x1b" not in terminal.shown


def test_a_conversation_with_all_its_commands() -> None:
    with Terminal("-m", "tiny_llm", "chat") as terminal:
        assert "Ctrl-D leaves" in terminal.wait_for("> ")
        terminal.press("My name is Emma.\n")
        terminal.wait_for("peak memory.*\n")
        terminal.press("What is my name?\n")
        assert "Emma" in terminal.wait_for("peak memory").split("\n", 1)[1]
        terminal.wait_for("> ")

        terminal.press("/reset\n")
        terminal.press(UP + UP + "\n")  # the same question, in a new conversation
        assert "Emma" not in terminal.wait_for("peak memory")
        terminal.wait_for("> ")

        terminal.press("/sing\n")
        terminal.wait_for("/sing: no such command")
        terminal.press("/help\n")
        terminal.wait_for("/reset +start a new conversation")
        terminal.wait_for("> ")

        terminal.press(STORY + "\n")
        terminal.wait_for("fox.{30}")
        terminal.press(CTRL_C)
        terminal.wait_for(r"\(stopped\)")
        terminal.wait_for("> ")
        terminal.press("half a line")
        terminal.wait_for("half a line")
        time.sleep(0.1)  # until it waits for keys again: a signal before that would not wake it
        terminal.press(CTRL_C)
        terminal.wait_for("> ")
        terminal.press("What is 7 + 5?\n")
        terminal.wait_for("12")
        terminal.wait_for("> ")
        terminal.press(CTRL_D)
        assert terminal.wait() == 0
    assert "Traceback" not in terminal.shown


def test_ctrl_c_ends_an_answer_with_its_code_and_no_traceback() -> None:
    with Terminal("main.py", "--loader", SLOW, "--prompt", STORY) as terminal:
        terminal.wait_for("fox")
        terminal.press(CTRL_C)
        assert terminal.wait() == INTERRUPTED
    assert terminal.shown.endswith("pdm run main: stopped\r\n")
    assert "Traceback" not in terminal.shown
