"""A conversation with an `LLM`: each turn reads what is new, and the oldest turns leave a full context."""

from .device import on_device
from .engine.conversation import write_conversation
from .engine.prompt_cache import PromptCache
from .engine.result import Result
from .engine.turns import Conversation
from .errors import ArgumentTypeError, UnsupportedError, calling
from .generate import stream_generate
from .llm import LLM, MAX_TOKENS, _seeded
from .sampling.params import GREEDY, Sampling


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
        if len(llm._models) > 1:
            raise UnsupportedError("ChatSession", "llm", "one with a draft model", "one without")
        self.dropped_turns = 0
        self._llm = llm
        self._prompt_cache = PromptCache()
        self._conversation = Conversation(
            lambda said: write_conversation("", llm.name, llm.tokenizer, said, enable_thinking),
            lambda text: len(llm.tokenizer.encode(text, add_special_tokens=False)),
            context=llm.context,
            reserve=min(MAX_TOKENS, llm.context // 4),
            system=system,
        )

    @property
    def turns(self) -> list[tuple[str, str]]:
        """What was said and is still told."""
        return list(self._conversation.turns)

    def ask(self, question: str, *, sampling: Sampling = GREEDY, max_tokens: int | None = None) -> Result:
        """Answer a question, which is the next turn; both arguments are those of `LLM.chat`."""
        llm = self._llm
        with calling("ChatSession.ask"):
            if not isinstance(question, str):
                raise ArgumentTypeError("", "question", type(question).__name__, "a text")
            asked = sampling.with_ends(max_tokens, ())
            prompt = self._conversation.ask(question)
            self.dropped_turns += prompt.dropped_turns
            generation = stream_generate(
                llm.model,
                llm.tokenizer,
                prompt.text,
                sampling=_seeded(asked.with_ends(asked.max_tokens or MAX_TOKENS, ())),
                context=llm.context,
                prompt_cache=self._prompt_cache,
            )
            with on_device(llm.device):
                for _ in generation:
                    pass
        self._conversation.answered(question, generation.result.text)
        return generation.result
