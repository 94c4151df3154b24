"""Mistakes in the HTTP side of a server: streams of events, clients that leave, and drains."""

from .mistake import Mistake, Table

SSE = "tiny_llm/server/sse.py"
DISCONNECT = "tiny_llm/server/disconnect.py"
LIFECYCLE = "tiny_llm/server/lifecycle.py"

MISTAKES: Table = {
    "week_4_day_7": (
        Mistake(
            "the first comment comes at once",
            SSE,
            "        self._sent_at = loop.time()\n        while True:\n",
            "        while True:\n",
            "test_task_1_a_head_then_each_event_then_the_end",
        ),
        Mistake(
            "events are collected until the answer is complete",
            SSE,
            "                async for chunk in chunks:\n",
            "                for chunk in [each async for each in chunks]:\n",
            "test_task_1_an_event_is_sent_when_it_comes",
        ),
        Mistake(
            "the head is sent with the first event",
            SSE,
            '        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})\n'
            "        comments = asyncio.create_task(self._comment(send))\n"
            "        try:\n"
            "            async with aclosing(self._chunks) as chunks:\n"
            "                async for chunk in chunks:\n",
            "        comments, begun = asyncio.create_task(self._comment(send)), False\n"
            "        try:\n"
            "            async with aclosing(self._chunks) as chunks:\n"
            "                async for chunk in chunks:\n"
            "                    if not begun:\n"
            '                        head = {"type": "http.response.start", "status": 200}\n'
            '                        await send(head | {"headers": HEADERS})\n'
            "                        begun = True\n",
            "test_task_1_an_event_is_sent_when_it_comes",
        ),
        Mistake(
            "the end of the stream is not sent",
            SSE,
            '        await send({"type": "http.response.body", "body": b"", "more_body": False})\n',
            "",
            "test_task_1_a_head_then_each_event_then_the_end",
        ),
        Mistake(
            "a silent stream has no comments",
            SSE,
            "        comments = asyncio.create_task(self._comment(send))\n",
            "        comments = asyncio.create_task(asyncio.sleep(0))\n",
            "test_task_1_a_comment_is_sent_after_each_15_silent_seconds",
        ),
        Mistake(
            "there is a comment every 15 seconds, also between events",
            SSE,
            '        await send({"type": "http.response.body", "body": chunk, "more_body": True})\n'
            "        self._sent_at = asyncio.get_running_loop().time()\n",
            '        await send({"type": "http.response.body", "body": chunk, "more_body": True})\n',
            "test_task_1_an_event_ends_the_silence",
        ),
        Mistake(
            "comments go on after the end",
            SSE,
            "            comments.cancel()\n",
            "            pass\n",
            "test_task_1_no_comment_follows_the_end",
        ),
        Mistake(
            "each event is sent by a task of its own",
            SSE,
            "                    await self._send(send, chunk)\n",
            "                    asyncio.create_task(self._send(send, chunk))\n                    "
            "await asyncio.sleep(0)\n",
            "test_task_1_an_event_waits_until_the_one_before_is_sent",
        ),
        Mistake(
            "a client that has gone gets the rest of the answer",
            SSE,
            "                    if self._client.gone:\n",
            "                    if False:\n",
            "test_task_1_a_client_that_has_gone_gets_no_event",
        ),
        Mistake(
            "the answer is not closed after an error",
            SSE,
            "            async with aclosing(self._chunks) as chunks:\n",
            "            for chunks in [self._chunks]:\n",
            "test_task_1_after_an_error_nothing_runs_on",
        ),
        Mistake(
            "work goes on for a client that has left",
            DISCONNECT,
            "        self.when_gone(task.cancel)\n",
            "",
            "test_task_2_the_work_for_a_client_that_leaves_is_cancelled",
        ),
        Mistake(
            "a client that has gone is a cancelled request",
            DISCONNECT,
            "                raise self._take_error() from None\n",
            "                pass\n",
            "test_task_2_the_work_for_a_client_that_leaves_is_cancelled",
        ),
        Mistake(
            "every message is a disconnect",
            DISCONNECT,
            '        while (await receive())["type"] != "http.disconnect":\n            pass\n',
            "        await receive()\n",
            "test_task_2_watch_sees_only_a_disconnect",
        ),
        Mistake(
            "`receive` is read after the block",
            DISCONNECT,
            "    try:\n        yield\n    finally:\n        task.cancel()\n",
            "    yield\n",
            "test_task_2_watch_ends_with_its_block",
        ),
        Mistake(
            "the watch ends only if the block had no error",
            DISCONNECT,
            "    try:\n        yield\n    finally:\n        task.cancel()\n",
            "    yield\n    task.cancel()\n",
            "test_task_2_watch_ends_with_its_block",
        ),
        Mistake(
            "every reason to stop is a client that has gone",
            DISCONNECT,
            "                raise self._take_error() from None\n",
            "                raise ClientGone from None\n",
            "test_task_2_a_drop_has_its_own_error",
        ),
        Mistake(
            "a cancelled caller is taken for a client that has gone",
            DISCONNECT,
            "if self._error is not None and not (caller and caller.cancelling()):",
            "if self._error is not None:",
            "test_task_2_a_caller_that_is_cancelled_stays_cancelled leaves",
        ),
        Mistake(
            "a request that fails is counted for ever",
            LIFECYCLE,
            "        try:\n            yield\n        finally:\n            self.in_flight -= 1\n",
            "        yield\n        self.in_flight -= 1\n",
            "test_task_3_requests_are_counted_while_they_are_answered",
        ),
        Mistake(
            "a refused request is counted",
            LIFECYCLE,
            "        self.check()\n        self.in_flight += 1\n",
            "        self.in_flight += 1\n        self.check()\n",
            "test_task_3_a_drain_refuses_new_requests_and_lets_the_others_end",
        ),
        Mistake(
            "new requests are welcome until the drain is over",
            LIFECYCLE,
            "        if self.stop_at is None:\n            return\n",
            "        if self.stop_at is None or time.monotonic() < self.stop_at:\n            return\n",
            "test_task_3_a_drain_refuses_new_requests_and_lets_the_others_end",
        ),
        Mistake(
            "a server that has nothing to do ends",
            LIFECYCLE,
            "return self.stop_at is not None and (",
            "return (",
            "test_task_3_a_drain_is_over_after_the_last_answer",
        ),
        Mistake(
            "a drain takes all of its seconds",
            LIFECYCLE,
            "(self.in_flight == 0 or time.monotonic() > self.stop_at)",
            "time.monotonic() > self.stop_at",
            "test_task_3_a_drain_is_over_after_the_last_answer",
        ),
        Mistake(
            "a drain waits for the last answer, however long",
            LIFECYCLE,
            "(self.in_flight == 0 or time.monotonic() > self.stop_at)",
            "self.in_flight == 0",
            "test_task_3_a_drain_is_over_when_its_time_is",
        ),
        Mistake(
            "an answered request is cut",
            LIFECYCLE,
            "            self._cuts.remove(callback)\n",
            "            pass\n",
            "test_task_3_a_cut_tells_each_request_in_flight",
        ),
        Mistake(
            "a request between two blocks is not cut",
            LIFECYCLE,
            "            if self._has_cut:\n",
            "            if False:\n",
            "test_task_3_a_request_that_comes_to_its_next_block_after_the_cut_is_told_there",
        ),
        Mistake(
            "the list of requests changes while they are cut",
            LIFECYCLE,
            "        for each in list(self._cuts):\n",
            "        for each in self._cuts:\n",
            "test_task_3_a_cut_misses_no_request_though_blocks_end_meanwhile",
        ),
    ),
}
