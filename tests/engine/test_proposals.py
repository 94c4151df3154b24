"""What an answer proposes for its next step."""

from tiny_llm.engine.answer import Answer
from tiny_llm.engine.drafts import MOST_DRAFTS
from tiny_llm.sampling.grammar import Grammar

from ..support.engine_requests import PROMPTS, alone, assert_at_rest, read, request_of


def test_tokens_reach_their_reader_before_the_next_ones_are_proposed(llm, engine, monkeypatch):
    """A fault there ends the answer, with all tokens that it has."""
    propose = Answer.propose

    def fail_after_three(answer, token_ids):
        if answer.request.id == "bad" and len(token_ids) >= len(answer.request.prompt_ids) + 3:
            raise ZeroDivisionError("no drafts")
        return propose(answer, token_ids)

    monkeypatch.setattr(Answer, "propose", fail_after_three)
    before = engine.statistics().generation_tokens
    *events, last = engine.submit(request_of(llm, PROMPTS[0], id="bad"))
    tokens = [token for event in events for token in event.token_ids]
    ((_, expected, _),) = alone(llm, PROMPTS[0])
    assert len(tokens) >= 3
    assert tokens == list(expected[: len(tokens)])
    assert len(tokens) == engine.statistics().generation_tokens - before
    assert (last.finish_reason, last.token_ids) == ("error", ())
    assert isinstance(last.error.__cause__, ZeroDivisionError)
    assert read(engine.submit(request_of(llm, PROMPTS[1]))) == alone(llm, PROMPTS[1])
    assert_at_rest(engine)


def test_accepted_drafts_after_a_stop_string_are_no_tokens_of_the_answer(llm, engine, monkeypatch):
    ((_, tokens, _),) = alone(llm, PROMPTS[0])

    def propose_what_follows(answer, token_ids):
        return tokens[len(token_ids) - len(answer.request.prompt_ids) :][:7]

    monkeypatch.setattr(Answer, "propose", propose_what_follows)
    stop = llm.tokenizer.decode([tokens[3]]).strip()
    first, last = engine.submit(request_of(llm, PROMPTS[0], sampling={"stop": stop}))
    read = first.token_ids + last.token_ids
    assert (read, last.stop_string) == (tokens[: len(read)], stop)
    assert 1 + engine.statistics().accepted_tokens > len(read)
    assert engine.statistics().generation_tokens == len(read)


def test_each_answer_to_a_prompt_has_drafts_from_the_text(llm, engine):
    def drafted(n):
        before = engine.statistics().drafted_tokens
        read(engine.submit(request_of(llm, PROMPTS[4], 40, n=n, sampling={"ignore_eos": True})))
        return engine.statistics().drafted_tokens - before

    assert drafted(2) == 2 * drafted(1) > 0


def test_a_long_text_that_follows_from_a_grammar_comes_in_steps_of_their_usual_size(llm, engine):
    """A step of one request must not delay the others."""
    text = "one two three four five six seven eight nine ten " * 2
    ((answer, *_),) = read(engine.submit(request_of(llm, "a", 200, grammar=Grammar.regex(text))))
    assert answer == text
    assert max(engine.statistics().step_tokens) == 1 + MOST_DRAFTS
