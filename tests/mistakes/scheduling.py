"""Mistakes in the choice of a step's rows, and in what a step leaves behind."""

from .mistake import Mistake, Table

POLICY = "tiny_llm/scheduler/policy.py"
SCHEDULER = "tiny_llm/scheduler/scheduler.py"

MISTAKES: Table = {
    "week_4_day_2": (
        Mistake(
            "a chunk is longer than the budget",
            POLICY,
            "        chunk = min(state.pending, left)\n",
            "        chunk = state.pending\n",
            "test_task_1_a_chunk_is_as_long_as_the_budget_allows",
        ),
        Mistake(
            "the budget counts requests, not tokens",
            POLICY,
            "        left -= chunk\n",
            "        left -= 1\n",
            "test_task_1_a_chunk_is_as_long_as_the_budget_allows",
        ),
        Mistake(
            "a row without a token is planned when the budget is used",
            POLICY,
            "        if left == 0:\n            break\n",
            "",
            "test_task_1_prompts_share_the_budget_in_the_order_of_arrival",
        ),
        Mistake(
            "a request that does not fit loses its turn to the next one",
            POLICY,
            "spare=ceil(limits.watermark * places)):\n            break\n",
            "spare=ceil(limits.watermark * places)):\n"
            "            queues.waiting.append(queues.waiting.pop(0))\n"
            "            break\n",
            "test_task_1_nobody_overtakes_a_request_that_does_not_fit",
        ),
        Mistake(
            "a request takes one place, however many answers it has",
            POLICY,
            "        if places + state.choices > limits.max_running:\n",
            "        if places + 1 > limits.max_running:\n",
            "test_task_1_each_answer_of_a_request_takes_a_place",
        ),
        Mistake(
            "a request starts as soon as its prompt fits",
            POLICY,
            "spare=ceil(limits.watermark * places)",
            "spare=0",
            "test_task_1_a_start_leaves_pages_to_those_that_run",
        ),
        Mistake(
            "the watermark is rounded down, to no page for up to three requests",
            POLICY,
            "spare=ceil(limits.watermark * places)",
            "spare=int(limits.watermark * places)",
            "test_task_1_a_start_leaves_pages_to_those_that_run",
        ),
        Mistake(
            "the answer of a request that starts again counts as decode",
            POLICY,
            "        state.prefill_end = len(state.token_ids)\n",
            "        state.prefill_end = len(state.prompt_ids)\n",
            "test_task_1_a_request_that_starts_again_has_an_answer_to_prefill",
        ),
        Mistake(
            "prompts are planned before decodes",
            POLICY,
            "    left = limits.step_tokens - len(decoding)\n",
            "    decoding = decoding[: max(0, limits.step_tokens - sum(one.pending for one in prefilling))]\n"
            "    left = limits.step_tokens - len(decoding)\n",
            "test_task_2_decodes_come_first",
        ),
        Mistake(
            "decodes cost nothing",
            POLICY,
            "    left = limits.step_tokens - len(decoding)\n",
            "    left = limits.step_tokens\n",
            "test_task_2_decodes_come_first",
        ),
        Mistake(
            "drafts leave nothing to prompts",
            POLICY,
            "    for_drafts = left // 2 if prefilling or queues.waiting else left\n",
            "    for_drafts = left\n",
            "test_task_2_drafts_leave_half_of_the_budget_to_prompts",
        ),
        Mistake(
            "drafts leave nothing to prompts that wait",
            POLICY,
            "    for_drafts = left // 2 if prefilling or queues.waiting else left\n",
            "    for_drafts = left // 2 if prefilling else left\n",
            "test_task_2_drafts_leave_half_of_the_budget_to_prompts waits",
        ),
        Mistake(
            "each answer may use the whole budget of drafts",
            POLICY,
            "        for_drafts -= drafts\n",
            "",
            "test_task_2_answers_share_the_budget_of_drafts",
        ),
        Mistake(
            "a prompt that runs alone is bounded",
            POLICY,
            "    if bound and decoding and (prefilling or queues.waiting):\n",
            "    if bound and (prefilling or queues.waiting):\n",
            "test_task_2_a_prompt_alone_has_no_bound",
        ),
        Mistake(
            "a request that was just preempted starts again at once",
            POLICY,
            "    started = [] if preempted else _start(queues, tables, limits, left, rows)\n",
            "    started = _start(queues, tables, limits, left, rows)\n",
            "test_task_2_no_step_starts_what_it_preempts",
        ),
        Mistake(
            "the newest token counts as computed",
            SCHEDULER,
            "        state.computed = row.stop\n",
            "        state.computed = row.stop + len(new)\n",
            "test_task_3_a_token_comes_after_the_last_chunk",
        ),
        Mistake(
            "rejected drafts count as computed",
            SCHEDULER,
            "            state.computed -= row.logits - len(new)\n",
            "            pass\n",
            "test_task_3_tokens_of_rejected_drafts_do_not_count",
        ),
        Mistake(
            "the pages of rejected drafts are not given back",
            SCHEDULER,
            "            self._tables.shrink(state)\n",
            "",
            "test_task_3_tokens_of_rejected_drafts_do_not_count",
        ),
        Mistake(
            "the tokens are not checked",
            SCHEDULER,
            "        check_accepted(committed, tokens)\n",
            "",
            "test_task_3_wrong_tokens_are_refused_and_change_nothing",
        ),
        Mistake(
            "the plan is closed before the tokens are checked",
            SCHEDULER,
            "        check_accepted(committed, tokens)\n        self._close()\n",
            "        self._close()\n        check_accepted(committed, tokens)\n",
            "test_task_3_wrong_tokens_are_refused_and_change_nothing",
        ),
        Mistake(
            "`commit` trusts the plan",
            SCHEDULER,
            "committed = [(row, self._answers(row)) for row in plan.rows]",
            "committed = [(row, [row.state]) for row in plan.rows]",
            "test_task_3_a_request_that_has_finished_since_gets_no_token",
        ),
        Mistake(
            "the answers of a fork are forgotten",
            SCHEDULER,
            "committed = [(row, self._answers(row)) for row in plan.rows]",
            "committed = [(row, self._answers(row)[:1]) for row in plan.rows]",
            "test_task_3_each_answer_of_a_fork_gets_its_token",
        ),
        Mistake(
            "full pages get no name",
            SCHEDULER,
            "        self._tables.register(state)\n",
            "",
            "test_task_3_pages_are_named_once_their_tokens_are_computed",
        ),
        Mistake(
            "what was computed before a preemption is forgotten",
            SCHEDULER,
            "        state.furthest = max(state.furthest, state.computed)\n",
            "        state.furthest = state.computed\n",
            "test_task_3_what_was_computed_before_a_preemption_is_remembered",
        ),
    ),
}
