"""`tiny-llm export`: a model with dense weights, for programs that cannot read quantized ones."""

import argparse
from pathlib import Path

from ..loading import load
from ..loading.export import ExportError, check_target, export_dense
from ..loading.find import RANDOM
from ..runtime.device import DTYPES
from . import arguments
from .device import choose_device
from .exit_codes import Failure, Refusal
from .progress import ProgressBar

DESCRIPTION = """Dequantizes the weights of a model and writes them, with its tokenizer, as a folder in
Hugging Face layout. The folder appears only when it is complete."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder to write; must be new or empty")
    parser.add_argument(
        "--dtype", choices=DTYPES, default="float32",
        help="type of the written weights; float32 is lossless (default: %(default)s)",
    )  # fmt: skip
    arguments.add_model(parser)


def run(options: argparse.Namespace) -> int:
    """Write the folder and print its name."""
    choose_device("cpu")
    try:
        check_target(options.folder)
    except ExportError as error:
        raise Refusal(str(error)) from error
    if options.model.startswith(RANDOM):
        raise Refusal(f"--model: got {options.model}, expected a model that has files")
    try:
        with ProgressBar() as progress:
            checkpoint = load(options.model, offline=options.offline, progress=progress)
            export_dense(checkpoint, options.folder, DTYPES[options.dtype], progress=progress)
    except ExportError as error:
        raise Failure(str(error)) from error
    print(f"{options.folder}: {options.model} in {options.dtype}")
    return 0
