"""The safetensors files of a folder: one, or several that an index lists."""

import re
from pathlib import Path

from ..errors import LoadError
from ..files import MEBIBYTE, find_file, read_object, require_file
from .header import TensorEntry, read_header

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PLAIN_NAME = re.compile(r"\w[\w.-]*\.safetensors", re.ASCII)
# Other formats, and the advice for each.
OTHER_FORMATS = {
    "*.bin": "pickled weights, which could run code when read; convert them to safetensors",
    "*.pt*": "pickled weights, which could run code when read; convert them to safetensors",
    "*.gguf": "GGUF weights; take the safetensors edition of the model",
    "*.npz": "weights in the first format of MLX; convert them to safetensors",
    "*.safetensors": f"shards without their index, {INDEX}; download the model again",
}


def shard_names(folder: Path) -> dict[str, str] | list[str]:
    """With an index, the file of each tensor; else a list with the only file."""
    index = find_file(folder, INDEX)
    if index is None:
        return [SINGLE]
    weight_map = read_object(index, INDEX, 16 * MEBIBYTE).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise LoadError(f"{INDEX}: weight_map: got {weight_map!r}, expected the file of each tensor")
    for name in weight_map.values():
        if not isinstance(name, str) or not PLAIN_NAME.fullmatch(name):
            raise LoadError(f"{INDEX}: weight_map: got {name!r}, expected the name of a safetensors file")
    return weight_map


def read_tensors(folder: Path) -> dict[str, TensorEntry]:
    """File and position of each tensor of the model, from the checked headers of all files."""
    names = shard_names(folder)
    if find_file(folder, SINGLE) is None and isinstance(names, list):
        for pattern, problem in OTHER_FORMATS.items():
            if any(folder.glob(pattern)):
                raise LoadError(f"{SINGLE}: is not in {folder}, which has {problem}")
    tensors: dict[str, TensorEntry] = {}
    located: dict[str, str] = {}
    for name in sorted(set(names.values() if isinstance(names, dict) else names)):
        path = require_file(folder, name, "the download is incomplete; download the model again")
        for key, tensor in read_header(path, name).items():
            if key in located:
                raise LoadError(f"{name}: {key!r}: is in {located[key]}, too; download the model again")
            tensors[key], located[key] = tensor, name
    if isinstance(names, dict) and names != located:
        key = min(key for key in names.keys() | located.keys() if names.get(key) != located.get(key))
        listed, found = names.get(key, "no file"), located.get(key, "no file")
        raise LoadError(f"{INDEX}: {key!r}: got {listed}, but {found} has it; download the model again")
    return tensors
