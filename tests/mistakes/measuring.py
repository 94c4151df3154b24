"""Mistakes in measuring a server: latencies, arrivals, and the loop that sends requests."""

from .mistake import Mistake, Table

ANSWER = "tiny_llm_tools/benchmark/serving/answer.py"
METRICS = "tiny_llm_tools/benchmark/serving/metrics.py"
CLOCK = "tiny_llm_tools/benchmark/clock.py"
WORKLOAD = "tiny_llm_tools/benchmark/serving/workload.py"
LOAD = "tiny_llm_tools/benchmark/serving/load.py"

MISTAKES: Table = {
    "week_4_day_8": (
        Mistake(
            "the latency ends with the last text",
            ANSWER,
            "        return self.end - self.begin\n",
            "        return self.times[-1] - self.begin\n",
            "test_task_1_latency_is_the_time_to_the_last_event",
        ),
        Mistake(
            "tpot counts events, not tokens",
            ANSWER,
            "(self.latency - self.ttft) / (self.output_tokens - 1) if self.output_tokens > 1 else None",
            "(self.latency - self.ttft) / (len(self.times) - 1) if len(self.times) > 1 else None",
            "test_task_1_tpot_counts_tokens_not_events",
        ),
        Mistake(
            "the first token has a part in tpot",
            ANSWER,
            "(self.latency - self.ttft) / (self.output_tokens - 1)",
            "self.latency / self.output_tokens",
            "test_task_1_tpot_counts_tokens_not_events",
        ),
        Mistake(
            "the wait for the first token is a gap",
            ANSWER,
            "in pairwise(self.times)]",
            "in pairwise([self.begin, *self.times])]",
            "test_task_1_gaps_are_between_events",
        ),
        Mistake(
            "itl is the mean gap of each answer",
            METRICS,
            "        return [gap for answer in answers for gap in answer.gaps]\n",
            "        return [sum(a.gaps) / len(a.gaps) for a in answers if a.gaps]\n",
            "test_task_1_values_of_all_answers_are_one_set",
        ),
        Mistake(
            "a tpot that does not exist is 0",
            METRICS,
            "    return [value for answer in answers if (value := getattr(answer, name)) is not None]\n",
            "    return [getattr(answer, name) or 0.0 for answer in answers]\n",
            "test_task_1_values_of_all_answers_are_one_set",
        ),
        Mistake(
            "limits are compared with seconds",
            METRICS,
            "times[name] * 1000 <= limit",
            "times[name] <= limit",
            "test_task_1_a_good_request_is_within_all_its_limits",
        ),
        Mistake(
            "one limit that is kept is enough",
            METRICS,
            "    return all(times[name]",
            "    return any(times[name]",
            "test_task_1_a_good_request_is_within_all_its_limits",
        ),
        Mistake(
            "samples are not sorted",
            CLOCK,
            "        ordered = sorted(self.values)\n",
            "        ordered = list(self.values)\n",
            "test_task_1_a_quantile_is_between_neighbours",
        ),
        Mistake(
            "a quantile is always one of the samples",
            CLOCK,
            "        return ordered[below] + (place - below) * (ordered[above] - ordered[below])\n",
            "        return ordered[round(place)]\n",
            "test_task_1_a_quantile_is_between_neighbours",
        ),
        Mistake(
            "the largest sample is at the place of their number",
            CLOCK,
            "        place = q * (len(ordered) - 1)\n",
            "        place = min(q * len(ordered), len(ordered) - 1)\n",
            "test_task_1_a_quantile_is_between_neighbours",
        ),
        Mistake(
            "the first request waits, too",
            WORKLOAD,
            "        found.append(now)\n"
            "        now += numbers.gammavariate(burstiness, 1 / (rate * burstiness))\n",
            "        now += numbers.gammavariate(burstiness, 1 / (rate * burstiness))\n"
            "        found.append(now)\n",
            "test_task_2_requests_arrive_one_after_the_other_from_0_on",
        ),
        Mistake(
            "gaps are drawn, not times",
            WORKLOAD,
            "        now += numbers.gammavariate(",
            "        now = numbers.gammavariate(",
            "test_task_2_requests_arrive_one_after_the_other_from_0_on",
        ),
        Mistake(
            "an infinite rate is no case of its own",
            WORKLOAD,
            "    if math.isinf(rate):\n        return [0.0] * count\n",
            "",
            "test_task_2_an_infinite_rate_sends_all_at_once",
        ),
        Mistake(
            "burstiness changes the rate",
            WORKLOAD,
            "numbers.gammavariate(burstiness, 1 / (rate * burstiness))",
            "numbers.gammavariate(burstiness, 1 / rate)",
            "test_task_2_the_mean_gap_is_one_over_the_rate",
        ),
        Mistake(
            "requests arrive at equal distances",
            WORKLOAD,
            "numbers.gammavariate(burstiness, 1 / (rate * burstiness))",
            "1 / rate",
            "test_task_2_a_poisson_process_forgets",
        ),
        Mistake(
            "gaps are uniform",
            WORKLOAD,
            "numbers.gammavariate(burstiness, 1 / (rate * burstiness))",
            "numbers.uniform(0, 2 / rate)",
            "test_task_2_a_poisson_process_forgets",
        ),
        Mistake(
            "every burstiness is a Poisson process",
            WORKLOAD,
            "numbers.gammavariate(burstiness, 1 / (rate * burstiness))",
            "numbers.expovariate(rate)",
            "test_task_2_less_burstiness_has_more_bursts",
        ),
        Mistake(
            "arrivals are drawn from the generator of everybody",
            WORKLOAD,
            'random.Random(f"{seed} arrivals"), 0.0, []',
            "random, 0.0, []",
            "test_task_2_a_seed_repeats_its_arrivals",
        ),
        Mistake(
            "a request is sent after the answer before",
            LOAD,
            "                group.create_task(ask(request))\n",
            "                await ask(request)\n",
            "test_task_3_a_slow_answer_delays_no_other_request",
        ),
        Mistake(
            "an offset is counted from the request before",
            LOAD,
            "await asyncio.sleep(max(0.0, begin + offset - time.perf_counter()))",
            "await asyncio.sleep(offset)",
            "test_task_3_each_request_is_sent_at_its_time",
        ),
        Mistake(
            "all requests are sent at once",
            LOAD,
            "                await asyncio.sleep(max(0.0, begin + offset - time.perf_counter()))\n",
            "",
            "test_task_3_each_request_is_sent_at_its_time",
        ),
        Mistake(
            "a run ends when all is sent",
            LOAD,
            "        async with asyncio.TaskGroup() as group:\n",
            "        for group in [asyncio.get_running_loop()]:\n",
            "test_task_3_each_request_is_sent_at_its_time",
        ),
        Mistake(
            "progress is reported at each beginning",
            LOAD,
            "            await client.ask(request, answer)\n"
            "            ended += 1\n"
            "            report(ended, len(requests))\n",
            "            ended += 1\n"
            "            report(ended, len(requests))\n"
            "            await client.ask(request, answer)\n",
            "test_task_3_progress_is_reported_at_each_end",
        ),
        Mistake(
            "a closed loop has no limit",
            LOAD,
            "        async with slots:\n",
            "        async with nullcontext():\n",
            "test_task_3_a_closed_loop_has_a_limit",
        ),
        Mistake(
            "waiting for a place is a part of the latency",
            LOAD,
            "        async with slots:\n            answer = Answer(request.prompt_tokens, client.clock())\n",
            "        answer = Answer(request.prompt_tokens, client.clock())\n        async with slots:\n",
            "test_task_3_waiting_for_a_place_is_in_no_latency",
        ),
        Mistake(
            "what was measured is lost at Ctrl-C",
            LOAD,
            "        interrupted = True\n",
            "        raise\n",
            "test_task_3_a_run_that_is_stopped_returns_what_it_has",
        ),
        Mistake(
            "offsets count from when the clock began",
            LOAD,
            "max(0.0, begin + offset - time.perf_counter())",
            "max(0.0, offset - time.perf_counter())",
            "test_task_3_each_request_is_sent_at_its_time",
        ),
        Mistake(
            "only complete answers are kept",
            LOAD,
            "            answers.append(answer)\n            await client.ask(request, answer)\n",
            "            await client.ask(request, answer)\n            answers.append(answer)\n",
            "test_task_3_a_slow_answer_delays_no_other_request",
        ),
    ),
}
