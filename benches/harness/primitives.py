"""Counts the primitives of a graph, and the kernels that they start on a GPU, without evaluating it."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import mlx.core as mx

# Primitives that start no kernel: the result is another view of an input's memory. Assumes that the strides
# allow `Reshape`, `Flatten` and `Unflatten` a view.
VIEWS = frozenset(
    "AsStrided Broadcast BroadcastAxes Copy CustomTransforms Depends ExpandDims Flatten Load NumberOfElements"
    " Reshape Slice Split Squeeze StopGradient Transpose Unflatten View".split()
)
# Primitives that start one kernel; `Concatenate` starts one for each input. Assumes that the kernel reads the
# layout of its inputs, and that slices are updated in place.
KERNELS = frozenset(
    "Add AddMM Arange ArgPartition ArgReduce ArgSort AsType Compiled Concatenate Contiguous Cos Divide"
    " DynamicSlice DynamicSliceUpdate Equal Exp Full Gather GatherAxis GatherMM GatherQMM Greater"
    " GreaterEqual Less LessEqual Log LogicalAnd LogicalNot LogicalOr LogSumExp Matmul Maximum Minimum"
    " Multiply Negative NotEqual Pad Power Quantize QuantizedMatmul RMSNorm RoPE Rsqrt"
    " ScaledDotProductAttention Scatter ScatterAxis Select Sigmoid Sin SliceUpdate Softmax Sqrt Square"
    " Subtract Sum Tanh"
    " tiny_llm_ext::Attention".split()  # ours on Metal
)
NODE_OR_INPUT = re.compile(r'\{ \d+ \[label ="([^"]+)"|"(\w+)" -> \d+')


@dataclass(frozen=True, slots=True)
class Graph:
    """The primitives of a graph by name, and the kernels that they start."""

    primitives: Counter[str]
    kernels: int


def count(outputs: Iterable[mx.array], blanks: Mapping[str, mx.array]) -> Graph:
    """The graph of all `outputs`, up to evaluated arrays; `blanks` are those of `gpu_graphs`."""
    text = io.StringIO()
    mx.export_to_dot(text, *outputs, **blanks)
    dot = text.getvalue()
    names: list[str] = []
    inputs: list[int] = []
    # Calls of a compiled function share their primitives, so a node may occur again, followed by its edges.
    for label, source in NODE_OR_INPUT.findall(dot):
        if label:
            names.append(_class(label))
            inputs.append(0)
        else:
            inputs[-1] += 1
            if source in blanks:
                names[-1] = source.rpartition("_")[0]
    return Graph(Counter(names), sum(map(_kernels, names, inputs)))


def _class(label: str) -> str:
    """The class of a primitive; a label may also have the parts of a compiled one, or the type of a view."""
    return "Compiled" if label.startswith("Compiled") else label.split()[0]


def _kernels(name: str, inputs: int) -> int:
    if name in VIEWS:
        return 0
    if name not in KERNELS:
        raise ValueError(f"count: primitive: got {name}, expected one that a GPU runs, in VIEWS or KERNELS")
    return inputs if name == "Concatenate" else 1
