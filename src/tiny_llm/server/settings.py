"""Limits and choices of the server. The options of `tiny-llm serve` take their defaults from here."""

from dataclasses import dataclass

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Times are in seconds, sizes in bytes.

    api_keys: accepted bearer keys; without any, requests need none.
    allowed_hosts: names that the header Host may have, without port; "*" allows all.
    allowed_origins: web pages that may read answers, such as "https://app.example"; "*" allows all.
    open_metrics: /metrics needs no key.
    """

    api_keys: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = LOCAL_HOSTS
    allowed_origins: tuple[str, ...] = ()
    open_metrics: bool = False
    max_body: int = 8 * 2**20
    request_memory: int = 512 * 2**20  # of all requests together, without keys and values
    max_head: int = 16 * 2**10
    max_connections: int = 1024
    head_timeout: float = 10.0  # from the first byte of a request to the end of its headers
    body_timeout: float = 30.0  # from there to the end of its body
    write_timeout: float = 30.0  # until a client has read what it was sent
    keep_alive_comment: float = 15.0  # between comments in a stream while there is no token
    drain_timeout: float = 30.0  # for requests in flight, after the first SIGTERM
    heartbeat_timeout: float = 60.0  # a step that takes longer makes /health answer 503
    request_timeout: float | None = None  # from the arrival of a request to the last token of its answer
    max_choices: int = 16  # n, and n times the number of prompts
    max_logprobs: int = 20
    max_tools: int = 128
    max_messages: int = 2**14  # with their parts and calls
    max_prompt_chars: int = 2**20
    max_prompts: int = 256  # requests whose prompts are being made, or wait for that
    max_grammars: int = 16  # requests whose new grammars are being compiled, or wait for that
    inline_body: int = 64 * 2**10  # a larger body is decoded in a thread, as that takes milliseconds
