"""A conversation with an `LLM`: each turn reads what is new, and the oldest turns leave a full context."""

from collections.abc import Sequence

from ..checks.types import check_text, check_type
from ..errors import RefusedArgument, UnsupportedError, calling
from ..generate import stream_generate
from ..generation.generation import Generation
from ..generation.messages import write_conversation
from ..generation.prompt_cache import PromptCache
from ..generation.result import Result
from ..generation.stream import Stream
from ..llm import LLM, MAX_TOKENS
from ..sampling.params import GREEDY, Sampling
from .turns import Conversation


class ChatSession:
    """A conversation that remembers itself.

        session = ChatSession(LLM("tiny"), system="You are a helpful assistant.")
        session.ask("My name is Emma.")
        session.ask("What is my name?").text

    What the model has read is kept: `result.statistics.cached_tokens` tells how much of a prompt was not read
    again. `turns` are pairs of question and answer, the oldest first; where the context ends the oldest are
    let go, and `dropped_turns` counts these. To be used by one thread at a time.
    """

    def __init__(self, llm: LLM, *, system: str = "", enable_thinking: bool = False):
        check_type("ChatSession", "llm", llm, LLM, "an LLM")
        check_text("ChatSession", "system", system)
        check_type("ChatSession", "enable_thinking", enable_thinking, bool, "a bool")
        if len(llm._models) > 1:
            raise UnsupportedError("ChatSession", "llm", "one with a draft model", "one without")
        self._llm = llm
        self._system = system
        self._enable_thinking = enable_thinking
        self._prompt_cache = PromptCache()
        self._turn: Turn | None = None
        self._conversation = self._begin()
        with calling("ChatSession"):  # what the template refuses is refused before the first question
            self._conversation.check_system()

    @property
    def turns(self) -> list[tuple[str, str]]:
        """What was said and is still told."""
        return list(self._conversation.turns)

    @property
    def dropped_turns(self) -> int:
        """How many turns were let go."""
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
        """Answer a question, which is the next turn; the other arguments are those of `LLM.chat`.

        Room for `max_tokens` is made, if the context is longer than that. An answer that fails is no turn.
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
        """The same in pieces. It is a turn when it has ended.

        One that is left before ends with `close()`, or when something else is asked, and is a turn as far as
        it came.
        """
        with calling("ChatSession.stream"):
            return self._start(question, sampling, max_tokens, stop, logprobs)

    def reset(self) -> None:
        """Forget all turns. What the model has read of the system message is kept."""
        self._leave()
        self._conversation = self._begin()

    def close(self) -> None:
        """Give back the memory of what the model has read; a further question reads all turns anew."""
        self._leave()
        self._prompt_cache.close()

    def _begin(self) -> Conversation:
        llm, enable_thinking = self._llm, self._enable_thinking  # not `self`: a cycle would hold the memory
        return Conversation(
            lambda said: write_conversation("", llm.name, llm.tokenizer, said, enable_thinking),
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
    ) -> "Turn":
        llm = self._llm
        check_text("", "question", question)
        check_type("", "sampling", sampling, Sampling, "a Sampling")
        asked = sampling.with_ends(max_tokens, stop)
        self._leave()
        try:
            generation = stream_generate(
                llm.model,
                llm.tokenizer,
                self._conversation.ask(question, asked.max_tokens).text,
                sampling=asked.with_ends(asked.max_tokens or MAX_TOKENS, None).seeded(),
                logprobs=logprobs,
                context=llm.context,
                prompt_cache=self._prompt_cache,
            )
        except RefusedArgument as error:
            if error.argument == "prompt":
                error.argument = "question"
            raise
        self._turn = Turn(generation, llm.device, self._conversation, question)
        return self._turn

    def _leave(self) -> None:
        """End an answer that nobody has read to its end."""
        if self._turn is not None:
            self._turn.close()
        self._turn = None


class Turn(Stream):
    """An answer in pieces, which its conversation takes in when it ends."""

    def __init__(self, generation: Generation, device: str, conversation: Conversation, question: str):
        super().__init__(generation, device)
        self._conversation = conversation
        self._question = question
        self._open = True

    def __next__(self) -> str:
        try:
            return super().__next__()
        except StopIteration:
            self._end()
            raise
        except BaseException:
            self._open = False
            raise

    def close(self) -> None:
        """End the answer here."""
        super().close()
        if self.result.text:
            self._end()
        self._open = False

    def _end(self) -> None:
        if self._open:
            self._conversation.answered(self._question, self.result.text)
        self._open = False
