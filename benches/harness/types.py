"""Element types of the cases."""

from typing import Literal

Dtype = Literal["float32", "float16", "bfloat16"]
DTYPES: tuple[Dtype, Dtype] = ("float32", "bfloat16")  # those that most benchmarks compare
ITEM_BYTES: dict[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
SHORT_NAMES: dict[str, str] = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
