"""From a name to a model in memory: `load("tiny")`."""

from ..errors import LoadError
from .checkpoint import Checkpoint, find_folder, load, load_tokenizer
from .config import ModelConfig
from .progress import Progress

__all__ = ["Checkpoint", "LoadError", "ModelConfig", "Progress", "find_folder", "load", "load_tokenizer"]
