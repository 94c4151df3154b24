"""Chat templates of models: the functions of ordinary ones, and the attempts of hostile ones."""

from __future__ import annotations

import os
import time

import pytest

from tiny_llm.errors import ArgumentError
from tiny_llm.loading import LoadError
from tiny_llm.loading.config import read_config
from tiny_llm.loading.find import EMBEDDED
from tiny_llm.loading.tokenizer.chat_template import MAX_TEXT_CHARS, ChatTemplate
from tiny_llm.loading.tokenizer.read_tokenizer import read_tokenizer

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1 < 2 & 'é' 😀?"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."},
    {"role": "user", "content": "Why?"},
]

# The constructs that the templates of published models use, among them those of Qwen3.
ORDINARY = r"""
{%- set ns = namespace(last=messages|length - 1, seen=false) %}
{%- for message in messages[::-1] %}
    {%- if message.role == "user" and not ns.seen %}
        {%- set ns.last = messages|length - 1 - loop.index0 %}{%- set ns.seen = true %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role not in ["system", "user", "assistant"] %}
        {{- raise_exception("unknown role " + message.role) }}
    {%- endif %}
    {%- if loop.index0 == 17 %}{% break %}{% endif %}
    {%- set content = message.content.split("</think>")[-1].lstrip("\n") %}
    {{- "<|" + message.role + "|>" + content + eos_token + "\n" }}
{%- endfor %}
{%- if tools is not none %}{{ tools | tojson }}{% endif %}
{{- ns.last }} {{ {"é": "<"} | tojson }}
{%- if add_generation_prompt %}
    {{- "\n<|assistant|>" + ("" if enable_thinking is defined and enable_thinking else "<think></think>") }}
{%- endif %}
"""


def render(source: str, seconds: float = 20, **options) -> str:
    return ChatTemplate(source, {"eos_token": "<|end|>"}, seconds=seconds).render(CHAT, **options)


@pytest.mark.parametrize("trusted", [True, False])
def test_the_functions_of_ordinary_templates_exist(trusted):
    template = ChatTemplate(ORDINARY, {"eos_token": "<|end|>"}, trusted)
    options = {"add_generation_prompt": True, "enable_thinking": False}
    assert template.render(CHAT, **options) == (
        "<|system|>Be brief.<|end|>\n<|user|>1 < 2 & 'é' 😀?<|end|>\n<|assistant|>Yes.<|end|>\n"
        '<|user|>Why?<|end|>\n3 {"é": "<"}\n<|assistant|><think></think>'
    )
    assert template.render(CHAT, **options | {"enable_thinking": True}).endswith("\n<|assistant|>")


def test_the_embedded_template_renders_equally_here_and_in_the_process():
    """The one rendered here starts no process."""
    here = read_tokenizer(EMBEDDED, read_config(EMBEDDED))._template
    assert here.trusted
    there = ChatTemplate(here.source, here.special_tokens)
    assert here.render(CHAT, add_generation_prompt=True) == there.render(CHAT, add_generation_prompt=True)


def test_strftime_now_is_available():
    assert render("{{ strftime_now('%Y') }}") == time.strftime("%Y")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("{{ raise_exception('no tools, please') }}", "TemplateError: no tools, please"),
        ("{% if %}", "TemplateSyntaxError: "),
        ("{{ messages[9].content.strip() }}", "UndefinedError: "),
        ("{{ 1 / 0 }}", "ZeroDivisionError: "),
        ("{{ 'a' + 1 }}", "TypeError: "),
        ("{% include 'config.json' %}", "TypeError: no loader"),
    ],
)
def test_a_failing_template_raises_its_reason(source, sentence):
    with pytest.raises(LoadError, match=f"^chat_template: {sentence}"):
        ChatTemplate(source, {}, trusted=True).render(CHAT)


def test_errors_of_a_template_contain_no_control_characters():
    with pytest.raises(LoadError) as refusal:
        render(r"{{ raise_exception('\x1b[2J\n\u202e' + 'x' * 9999) }}")
    text = str(refusal.value)
    assert text.startswith(r"chat_template: TemplateError: \x1b[2J\n\u202exxx")
    assert text.isprintable()
    assert len(text) < 700


def test_an_error_of_the_process_arrives():
    with pytest.raises(LoadError, match=r"^chat_template: ZeroDivisionError: division by zero$"):
        render("{{ 1 / 0 }}")


ESCAPES = """
{{ ''.__class__.__mro__[1].__subclasses__() }}
{{ messages.__init__.__globals__ }}
{{ lipsum.__globals__['os'].system('touch escaped') }}
{{ cycler.__init__.__globals__.os.system('touch escaped') }}
{{ joiner.__init__.__globals__ }}
{{ namespace.__init__.__globals__ }}
{{ raise_exception.__globals__['sys'] }}
{{ strftime_now.__self__.__class__ }}
{{ (messages | attr('__class__')).__mro__ }}
{{ '{0.__class__.__mro__}'.format(messages) }}
{{ ('{0.__class__}' | attr('format'))(messages) }}
{{ ''.format_map({'a': messages}).__class__.__mro__ }}
{{ self.__init__.__globals__ }}
{{ self._TemplateReference__context.environment.globals['raise_exception'].__globals__ }}
{{ messages.append(1) }}
{{ messages[0].update({'role': 'x'}) }}
{{ messages | map(attribute='__class__') | list }}
{{ caller.__globals__ }}
{{ loop.__globals__ }}
{{ messages[0].items.__self__.__class__.__base__ }}
""".strip().splitlines()


@pytest.mark.parametrize("source", ESCAPES)
def test_a_template_cannot_leave_the_sandbox(source, tmp_path, monkeypatch):
    """It gets an error, or a text without Python internals."""
    monkeypatch.chdir(tmp_path)
    try:
        text = ChatTemplate(source, {}, trusted=True).render(CHAT)
    except LoadError as error:
        assert "Error: " in str(error)  # noqa: PT017
    else:
        assert "class" not in text
        assert "0x" not in text
    assert os.listdir(tmp_path) == []


BOMBS = {
    "an endless loop": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "one endless step": "{{ 7 ** (7 ** 9) }}",
}


@pytest.mark.parametrize("source", BOMBS.values(), ids=BOMBS)
def test_a_template_that_does_not_end_is_stopped(source):
    begin = time.monotonic()
    with pytest.raises(
        LoadError, match=r"^chat_template: the template took more than 0\.7 s and was stopped"
    ):
        render(source, seconds=0.7)
    assert time.monotonic() - begin < 30  # it would run for hours


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10**10 }}",
        "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ '%1000000000s' % 'x' }}",
        "{{ ([0] * 10**8) | length }}",
    ],
)
def test_a_template_that_allocates_all_memory_is_stopped(source):
    with pytest.raises(
        LoadError, match=r"^chat_template: the template (takes too much memory|ended without)"
    ):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ 'x' * 10**7 }}",
        "{{ '\x00' * (10**6 + 10**5) }}",
    ],
)
def test_a_template_that_writes_too_much_is_stopped(source):
    with pytest.raises(LoadError, match=f"the template writes more than {MAX_TEXT_CHARS} characters"):
        render(source)


def test_the_longest_text_in_the_longest_form_arrives():
    """Each of these characters takes 12 bytes in JSON."""
    assert render("{{ '😀' * 1000000 }}") == "😀" * 1_000_000


def test_a_chat_longer_than_a_pipe_is_rendered():
    """In both directions."""
    text = "é" * 300_000
    template = ChatTemplate("{{ messages[0].content }}", {}, seconds=20)
    assert template.render([{"role": "user", "content": text}]) == text


@pytest.mark.parametrize("trusted", [True, False])
def test_a_prompt_that_is_too_long_is_not_the_fault_of_the_template(trusted):
    template = ChatTemplate("{{ messages | length }}", {}, trusted)
    half = "x" * (MAX_TEXT_CHARS // 2)
    fits = [{"content": half}, {"content": half}]
    assert template.render(fits) == "2"
    sentence = f"messages: got {MAX_TEXT_CHARS + 1} characters, expected at most {MAX_TEXT_CHARS}$"
    with pytest.raises(ArgumentError, match=f"^apply_chat_template: {sentence}"):
        template.render([*fits, {"content": "x"}])
