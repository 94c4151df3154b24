"""The page of a server in a browser, driven as a reader would."""

from __future__ import annotations

import json
import re
from typing import Any

from .running import RunningServer

MILLISECONDS = 20_000  # after which a test fails


class ChatPage:
    """A tab of the browser. `problems` has what must not happen: errors, and requests to other hosts."""

    def __init__(self, context: Any, server: RunningServer):
        self.server = server
        self.context = context
        self.problems: list[str] = []
        self.tab = context.new_page()
        self.tab.set_default_timeout(MILLISECONDS)
        self.tab.on("console", self._note_console)
        self.tab.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        self.tab.on("dialog", self._note_dialog)
        self.tab.on("request", self._note_request)

    def _note_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _note_dialog(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith((f"{self.server.url}/", "data:")):
            self.problems.append(f"request to {request.url}")

    def expect_problems(self, pattern: str) -> None:
        """Take out the problems that a test has made: there must be some."""
        left = [problem for problem in self.problems if not re.search(pattern, problem)]
        assert len(left) < len(self.problems), self.problems
        self.problems = left

    def open(self) -> ChatPage:
        self.tab.goto(self.server.url)
        self.tab.wait_for_selector("#model option", state="attached")
        return self

    def begin(self, question: str) -> None:
        """Ask, and do not wait."""
        self.tab.fill("#question", question)
        self.tab.keyboard.press("Enter")

    def ask(self, question: str) -> str:
        """Ask, and get the whole answer as text."""
        self.begin(question)
        return self.answer()

    def answer(self) -> str:
        """The last answer once it is complete."""
        self.tab.wait_for_selector(".turn:last-child.answer[aria-busy=false]")
        return self.last(".markdown")

    def last(self, selector: str) -> str:
        text: str = self.tab.locator(f".turn:last-child {selector}").inner_text()
        return text

    def wait(self, condition: str) -> None:
        """Until a JavaScript expression is true."""
        self.tab.wait_for_function(f"() => {condition}")

    def evaluate(self, expression: str, argument: Any = None) -> Any:
        return self.tab.evaluate(expression, argument)

    @property
    def texts(self) -> list[str]:
        """Of the questions and answers."""
        found: list[str] = self.tab.locator(".turn .markdown").all_inner_texts()
        return found

    @property
    def titles(self) -> list[str]:
        found: list[str] = self.tab.locator("#conversation-list .title").all_inner_texts()
        return found

    @property
    def stored(self) -> list[dict[str, Any]]:
        """The conversations in the browser's storage."""
        values: dict[str, str] = self.evaluate("() => ({...localStorage})")
        return [json.loads(text) for name, text in values.items() if ".conversation." in name]
