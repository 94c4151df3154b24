"""`tiny-llm visualize`: the attention of a prompt, as one interactive page and as pictures."""

import argparse
import os
from pathlib import Path

from tiny_llm.cli import arguments
from tiny_llm.cli.build_backend import build_tiny_llm_backend, check_raw
from tiny_llm.cli.exit_codes import Failure, Refusal, print_stderr
from tiny_llm.cli.generate import PREPARING, QUESTION, naming_source, read_question
from tiny_llm.cli.output_files import check_writable, output_file, write_whole
from tiny_llm.cli.progress import ProgressBar
from tiny_llm.generation.messages import RawText, build_messages
from tiny_llm.generation.text import encode_prompt

from ..benchmark.pictures import NoPlottingLibrary, check_plotting
from ..profile.attention_weights import record_attention
from ..profile.display import has_display, open_file
from ..profile.page import attention_page, most_tokens
from ..profile.prompt_pictures import prompt_pictures

DESCRIPTION = """Runs a model on a prompt and writes one HTML file that shows the attention weights of every
layer and head, their entropy, the blocks that FlashAttention reads, and its online softmax, step by step. The
file needs no network and no other file."""
PAGE = "attention.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prompt", type=arguments.nonblank_text, default=QUESTION, metavar="TEXT",
        help="the question, or with --raw the text as it is; - reads standard input (default: %(default)r)",
    )  # fmt: skip
    arguments.add_raw(parser)
    group = parser.add_argument_group("output")
    group.add_argument(
        "--output", type=output_file, default=Path(PAGE), metavar="FILE",
        help="the page to write; an older one is replaced (default: %(default)s in this folder)",
    )  # fmt: skip
    group.add_argument(
        "--png", type=picture_folder, metavar="DIR",
        help="also write pictures of one head into this folder (needs tiny-llm[tools])",
    )  # fmt: skip
    group.add_argument(
        "--open", action=argparse.BooleanOptionalAction, default=True,
        help="open the page in the browser, if there is a display (default: --open)",
    )  # fmt: skip
    for name in ("--layer", "--head"):
        group.add_argument(
            name, type=arguments.integer(0), default=0, metavar="N",
            help=f"{name[2:]} to show first, and to draw with --png, from 0 on (default: %(default)s)",
        )  # fmt: skip
    arguments.add_model(parser)
    arguments.add_conversation(parser)
    arguments.add_threads(parser)
    parser.set_defaults(  # of options that this command does not offer
        solution="tiny_llm", loader=None, enable_flash_attn=None, draft_model=None, device=None, dtype="auto"
    )


def picture_folder(name: str) -> Path:
    """An argparse type: a folder, or the name of a new one in a folder that exists."""
    path = Path(name)
    if not name or not os.path.isdir(path if os.path.exists(path) else path.parent):
        raise argparse.ArgumentTypeError(f"got {name!r}, expected a folder, or a new one in an existing one")
    return path


def run(options: argparse.Namespace) -> int:
    """Write the page and the pictures, print their names, and open the page."""
    check_raw(options)
    check_writable({"--output": options.output})
    if options.png:
        require_plotting()
    question = read_question(options.prompt)
    with ProgressBar() as progress:
        backend = build_tiny_llm_backend(options, progress)
        progress(PREPARING, 0, None)
        model, tokenizer = backend.model, backend.tokenizer
        prompt: str = RawText(question)
        with naming_source("--prompt"):
            if not options.raw:
                conversation = build_messages(options.system, [], question)
                prompt = backend.render(conversation, options.enable_thinking)
            ids = encode_prompt("", [model], tokenizer, prompt)
        layers = len(model.layers_inner)
        heads = model.layers_inner[0].self_attn.num_heads
        check_size(options, len(ids), layers, heads)
        attention = record_attention(model, ids, progress)
        tokens = [tokenizer.decode([token]) for token in ids]
        chosen = {"layer": options.layer, "head": options.head}
        facts = {"model": options.model, "dtype": backend.description["dtype"], "prompt": prompt}
        page = attention_page(attention, tokens, facts, **chosen, progress=progress)
        pictures = prompt_pictures(attention, tokens, **chosen, progress=progress) if options.png else {}
    write_whole(options.output, page)
    print(f"{options.output}: {len(ids)} tokens, {layers} layers of {heads} heads")
    if options.png:
        options.png.mkdir(exist_ok=True)
    for name, picture in pictures.items():
        path = options.png / f"{name}.png"
        write_whole(path, picture)
        print(path)
    if options.open and not open_file(options.output):
        why = "no browser could be started" if has_display() else "there is no display here"
        print_stderr(f"{options.program}: {why}; open {options.output} in a browser")
    return 0


def check_size(options: argparse.Namespace, tokens: int, layers: int, heads: int) -> None:
    """Refuse what the page has no room for, and a layer or head that the model has not."""
    for flag, given, count in (("--layer", options.layer, layers), ("--head", options.head, heads)):
        if given >= count:
            raise Refusal(f"{flag}: got {given}, expected at most {count - 1}: {options.model} has {count}")
    longest = most_tokens(layers, heads)
    if tokens > longest:
        raise Refusal(
            f"--prompt: got {tokens} tokens, expected at most {longest}: the page has a cell for each pair "
            f"of tokens, in {layers} layers of {heads} heads"
        )


def require_plotting() -> None:
    try:
        check_plotting()
    except NoPlottingLibrary as error:
        raise Failure(f"--png: {error}") from error
