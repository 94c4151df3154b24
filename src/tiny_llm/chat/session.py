"""A conversation with an `LLM`: the KV cache is kept, and a full context drops the oldest turns."""

from collections.abc import Callable, Sequence

from ..checks.types import check_text, check_type
from ..engine import Engine, EngineRequest
from ..engine.batch import engine_for, make_requests
from ..engine.stream import Stream
from ..errors import RefusedArgument, calling
from ..generation.loaded import LoadedModel
from ..generation.messages import render_prompt
from ..generation.result import Result
from ..generation.text import encode_prompt
from ..llm import LLM
from ..sampling.params import GREEDY, Sampling
from .conversation import Conversation


class ChatSession:
    """A conversation that remembers its turns.

        session = ChatSession(LLM("tiny"), system="You are a helpful assistant.")
        session.ask("My name is Emma.")
        session.ask("What is my name?").text

    Keys and values are kept between turns: `result.statistics.cached_tokens` tokens of a prompt had theirs.
    `turns` are pairs of question and answer, the oldest first; when the context is full the oldest are
    dropped, and `dropped_turns` counts them. Use a session from one thread at a time.
    """

    def __init__(self, llm: LLM, *, system: str = "", enable_thinking: bool = False):
        check_type("ChatSession", "llm", llm, LLM, "an LLM")
        check_text("ChatSession", "system", system)
        check_type("ChatSession", "enable_thinking", enable_thinking, bool, "a bool")
        self._llm = llm
        self._system = system
        self._enable_thinking = enable_thinking
        self._engine = SessionEngine(llm)
        self._turn: TurnStream | None = None
        self._conversation = self._new_conversation()
        with calling("ChatSession"):  # refuse a bad system message before the first question
            self._conversation.check_system()

    @property
    def turns(self) -> list[tuple[str, str]]:
        """The turns that are still part of the prompt."""
        return list(self._conversation.turns)

    @property
    def dropped_turns(self) -> int:
        """The number of turns that were dropped."""
        return self._conversation.dropped_turns

    def ask(
        self,
        question: str,
        sampling: Sampling = GREEDY,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        logprobs: int | None = None,
    ) -> Result:
        """Answer a question and add both as a turn; the other arguments are those of `LLM.chat`.

        `max_tokens` of the context are reserved for the answer if the context is larger. A failed answer
        does not become a turn.
        """
        with calling("ChatSession.ask"):
            turn = self._start(question, sampling, max_tokens, stop, logprobs)
        for _ in turn:
            pass
        return turn.result

    def stream(
        self,
        question: str,
        sampling: Sampling = GREEDY,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        logprobs: int | None = None,
    ) -> Stream:
        """The answer in pieces; it becomes a turn when it has ended.

        A stream that is not read to its end ends with `close()` or with the next question, and becomes a turn
        with the text so far.
        """
        with calling("ChatSession.stream"):
            return self._start(question, sampling, max_tokens, stop, logprobs)

    def reset(self) -> None:
        """Forget all turns; the cached tokens of the system message are kept."""
        self._finish_open_turn()
        self._conversation = self._new_conversation()

    def close(self) -> None:
        """Free keys and values; another question processes all turns again."""
        self._finish_open_turn()
        self._engine.close()

    def _new_conversation(self) -> Conversation:
        llm, enable_thinking = self._llm, self._enable_thinking  # not `self`: a cycle would hold the memory
        return Conversation(
            lambda messages: render_prompt("", llm.name, llm.tokenizer, messages, enable_thinking),
            lambda text: len(llm.tokenizer.encode(text, add_special_tokens=False)),
            context=llm.context,
            system=self._system,
        )

    def _start(
        self,
        question: str,
        sampling: Sampling,
        max_tokens: int | None,
        stop: str | Sequence[str] | None,
        logprobs: int | None,
    ) -> "TurnStream":
        llm = self._llm
        check_text("", "question", question)
        check_type("", "sampling", sampling, Sampling, "a Sampling")
        limited = sampling.with_limits(max_tokens, stop)
        self._finish_open_turn()
        prompt = self._conversation.prompt_for(question, limited.max_tokens).text
        try:
            ids = encode_prompt("", llm.models, llm.tokenizer, prompt, llm.context)
            (request,) = make_requests(llm, [ids], limited, logprobs)
        except RefusedArgument as error:
            if error.argument == "prompt":
                error.argument = "question"
            raise
        self._turn = TurnStream(request, self._engine.running, self._conversation, question)
        return self._turn

    def _finish_open_turn(self) -> None:
        """End a stream that was not read to its end."""
        if self._turn is not None:
            self._turn.close()
        self._turn = None


class SessionEngine:
    """The engine that keeps keys and values from turn to turn, until a session and its streams are dropped.

    An object of its own: a session and its streams refer to each other, and memory would wait for the garbage
    collector.
    """

    def __init__(self, llm: LoadedModel):
        self._llm = llm
        self._engine: Engine | None = None

    def running(self) -> Engine:
        """The engine, started if it is not there."""
        if self._engine is None or self._engine.failed:
            self._engine = engine_for(self._llm, [self._llm.context], prefix_cache=True)
        return self._engine

    def close(self) -> None:
        """End it, and free all keys and values."""
        if self._engine is not None:
            self._engine.close()
        self._engine = None

    def __del__(self) -> None:
        if self._engine is not None:
            self._engine.stop()  # the garbage collector must not wait


class TurnStream(Stream):
    """An answer in pieces, which becomes a turn of its conversation when it ends."""

    def __init__(
        self,
        request: EngineRequest,
        start: Callable[[], Engine],
        conversation: Conversation,
        question: str,
    ):
        super().__init__(request, start, keeps_engine=True)
        self._conversation = conversation
        self._question = question
        self._open = True

    def __next__(self) -> str:
        try:
            return super().__next__()
        except StopIteration:
            self._add_turn()
            raise
        except BaseException:
            self._open = False
            raise

    def close(self) -> None:
        """End the answer here."""
        super().close()
        if self.result.text:
            self._add_turn()
        self._open = False

    def _add_turn(self) -> None:
        if self._open:
            self._conversation.add_turn(self._question, self.result.text)
        self._open = False
