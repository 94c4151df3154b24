"""`tiny-llm export`: a dense folder of a model, for programs that do not know packed weights."""

import argparse
from pathlib import Path

from ..loading import load
from ..loading.export import ExportError, check_target, export_dense
from ..loading.hub.names import RANDOM
from . import arguments
from .device import DTYPES, choose_device
from .exit_codes import Failure, Refusal
from .progress import Progress

SUMMARY = "write a model as a dense folder that transformers loads"
DESCRIPTION = """Unpacks the weights of a model and writes them, with its tokenizer, as a folder in the layout
of Hugging Face. The folder appears when it is complete."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="what to write: a folder that is new or empty"
    )
    parser.add_argument(
        "--dtype", choices=DTYPES, default="float32",
        help="type of the weights; float32 loses nothing (default: %(default)s)",
    )  # fmt: skip
    arguments.add_model(parser)


def run(options: argparse.Namespace) -> int:
    """Write the folder, and say so."""
    choose_device("cpu")
    try:
        check_target(options.folder)
        if options.model.startswith(RANDOM):
            raise Refusal(f"--model: got {options.model}, expected a model with files of its own")
        with Progress() as progress:
            checkpoint = load(options.model, offline=options.offline, progress=progress)
            export_dense(checkpoint, options.folder, DTYPES[options.dtype], progress=progress)
    except ExportError as error:
        raise Failure(str(error)) from error
    print(f"{options.folder}: {options.model} in {options.dtype}")
    return 0
