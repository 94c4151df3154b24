"""What an answer proposes for its next step."""

from tiny_llm.engine.answer import Answer

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
    assert isinstance(last.error, ZeroDivisionError)
    assert read(engine.submit(request_of(llm, PROMPTS[1]))) == alone(llm, PROMPTS[1])
    assert_at_rest(engine)
