"""Mistakes in the packed batch of a step, in preemption, and in the part of a step that prompts get."""

from .mistake import Mistake, Table

PACKED = "tiny_llm/models/packed.py"
QUEUES = "tiny_llm/scheduler/queues.py"
SCHEDULER = "tiny_llm/scheduler/scheduler.py"
BUDGET = "tiny_llm/scheduler/budget.py"

WRITE = "    storage.write(layer, rotate(key), value[0], mx.array(batch.step.slots))\n"
CUMULATIVE = (
    "    cumulative = [0]\n"
    "    for count in batch.counts:\n"
    "        cumulative.append(cumulative[-1] + count)\n"
)
ATTENDED = (
    "    attended = paged_attention(\n"
    "        rotate(query),\n"
    "        storage.keys[layer],\n"
    "        storage.values[layer],\n"
)

MISTAKES: Table = {
    "week_4_day_1": (
        Mistake(
            "positions count rows of the batch",
            PACKED,
            "self.positions: list[int] = self.step.positions",
            "self.positions: list[int] = list(range(sum(self.counts)))",
            "test_task_1_positions_are_those_in_the_request",
        ),
        Mistake(
            "the context excludes the new tokens",
            PACKED,
            "self.contexts = [request.context for request in requests]",
            "self.contexts = [request.context - len(request.token_ids) for request in requests]",
            "test_task_1_rows_are_the_new_tokens_of_all_requests",
        ),
        Mistake(
            "all rows have logits",
            PACKED,
            "rows += range(end - request.num_logits, end)",
            "rows += range(end - len(request.token_ids), end)",
            "test_task_1_the_last_rows_of_a_request_have_logits",
        ),
        Mistake(
            "rows with logits are counted inside each request",
            PACKED,
            "            end += len(request.token_ids)\n",
            "            end = len(request.token_ids)\n",
            "test_task_1_the_last_rows_of_a_request_have_logits",
        ),
        Mistake(
            "a chunk inside a prompt has logits",
            PACKED,
            "rows += range(end - request.num_logits, end)",
            "rows += range(end - max(request.num_logits, 1), end)",
            "test_task_1_a_chunk_inside_a_prompt_has_no_logits",
        ),
        Mistake(
            "keys and values may be one array",
            PACKED,
            "        storage.check_separate()\n",
            "",
            "test_task_1_one_array_for_keys_and_values_is_refused",
        ),
        Mistake(
            "keys are written after attention",
            PACKED,
            WRITE + CUMULATIVE + ATTENDED,
            "    keys, values = storage.keys[layer] + 0, storage.values[layer] + 0\n"
            + WRITE
            + CUMULATIVE
            + "    attended = paged_attention(\n        rotate(query),\n        keys,\n        values,\n",
            "test_task_2_a_whole_prompt_in_pages_out_of_order",
        ),
        Mistake(
            "attention sees the length before the step",
            PACKED,
            "        mx.array(batch.contexts),\n",
            "        mx.array(batch.contexts) - mx.array(batch.counts),\n",
            "test_task_2_a_whole_prompt_in_pages_out_of_order",
        ),
        Mistake(
            "a row attends to the whole context of its request",
            PACKED,
            "        causal=True,\n",
            "        causal=False,\n",
            "test_task_2_a_whole_prompt_in_pages_out_of_order",
        ),
        Mistake(
            "keys are stored without their rotation",
            PACKED,
            "storage.write(layer, rotate(key), value[0]",
            "storage.write(layer, key[0], value[0]",
            "test_task_2_a_whole_prompt_in_pages_out_of_order",
        ),
        Mistake(
            "all rows are one sequence",
            PACKED,
            CUMULATIVE,
            "    cumulative = [0, *[sum(batch.counts)] * len(batch.counts)]\n",
            "test_task_2_rows_of_other_requests_change_nothing",
        ),
        Mistake(
            "the residual is left out",
            PACKED,
            "attention.wo, residual=x)",
            "attention.wo)",
            "test_task_2_a_whole_prompt_in_pages_out_of_order",
        ),
        Mistake(
            "all layers share the pages of the first one",
            PACKED,
            "x = _run_block(block, x, batch, storage, layer)",
            "x = _run_block(block, x, batch, storage, 0)",
            "test_task_3_a_chunk_inside_a_prompt_gives_no_logits_and_is_stored",
        ),
        Mistake(
            "all rows are scored",
            PACKED,
            "        if len(batch.logit_rows) < x.shape[1]:\n",
            "        if False:\n",
            "test_task_3_logits_are_computed_for_the_rows_that_want_them",
        ),
        Mistake(
            "the first rows of the step are scored",
            PACKED,
            "x = x[:, mx.array(batch.logit_rows)]",
            "x = x[:, : len(batch.logit_rows)]",
            "test_task_3_logits_are_computed_for_the_rows_that_want_them",
        ),
        Mistake(
            "a step without logits has no case of its own",
            PACKED,
            "        if not batch.logit_rows:  # a chunk inside a prompt\n",
            "        if False:\n",
            "test_task_3_a_chunk_inside_a_prompt_gives_no_logits_and_is_stored",
        ),
    ),
    "week_4_day_4": (
        Mistake(
            "the oldest request is preempted",
            QUEUES,
            "state = self.running.pop()",
            "state = self.running.pop(0)",
            "test_task_1_the_newest_running_request_is_put_back",
        ),
        Mistake(
            "a preempted request waits behind all others",
            QUEUES,
            "self.waiting.insert(0, state)",
            "self.waiting.append(state)",
            "test_task_1_it_waits_before_those_that_are_newer",
        ),
        Mistake(
            "the requests of a failed step keep their pages",
            SCHEDULER,
            "        for state in states:\n            self.finish(state, reason)\n",
            "        for state in states:\n            state.reason = reason\n",
            "test_task_1_a_failed_step_ends_the_requests_of_its_plan",
        ),
        Mistake(
            "the plan of a failed step stays open",
            SCHEDULER,
            "for state in self._answers(row)]\n        self._close()\n",
            "for state in self._answers(row)]\n",
            "test_task_1_a_failed_step_ends_the_requests_of_its_plan",
        ),
        Mistake(
            "a request that left during the step is ended again",
            SCHEDULER,
            "states = [state for row in plan.rows for state in self._answers(row)]",
            "states = [state for row in plan.rows for state in (row.state, *self._forks.get(row.state, ()))]",
            "test_task_1_a_request_that_left_during_the_step_is_not_ended_again",
        ),
        Mistake(
            "other answers to a prompt are forgotten",
            SCHEDULER,
            "states = [state for row in plan.rows for state in self._answers(row)]",
            "states = [row.state for row in plan.rows if row.state.status is Status.RUNNING]",
            "test_task_1_all_answers_to_a_prompt_end",
        ),
        Mistake(
            "the bound counts the rows of the answers, too",
            BUDGET,
            "return None if size is None else size - rows",
            "return size",
            "test_task_2_the_first_trial_is_the_smallest_size_with_three_tokens_of_a_prompt",
        ),
        Mistake(
            "the budget is a number of seconds, whatever a step alone takes",
            BUDGET,
            "LONGEST_STEP * self._time_alone(rows)",
            "LONGEST_STEP",
            "test_task_2_after_a_size_that_is_short_enough_the_next_one_is_tried",
        ),
        Mistake(
            "one slow step is a proof",
            BUDGET,
            "if len(times) < TRIALS and min(times, default=longest + 1) > longest:",
            "if not times:",
            "test_task_2_one_slow_step_proves_little",
        ),
        Mistake(
            "the slowest of the latest steps counts",
            BUDGET,
            "            if min(times) > longest:\n",
            "            if max(times) > longest:\n",
            "test_task_2_the_fastest_of_the_latest_four_steps_counts",
        ),
        Mistake(
            "a prompt stops where the smallest size is too slow",
            BUDGET,
            "        best = sizes[0]\n",
            "        best = 1\n",
            "test_task_2_a_prompt_comes_in_however_slow_the_smallest_size_is",
        ),
        Mistake(
            "a size that was too slow is never tried again",
            BUDGET,
            "for step, time in self._mixed[size] if self._step - step <= STEPS_TO_FORGET]",
            "for step, time in self._mixed[size]]",
            "test_task_2_a_size_that_was_slow_is_tried_again_after_many_steps",
        ),
    ),
}
