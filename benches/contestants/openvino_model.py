"""A packed Qwen2 or Qwen3 model as an OpenVINO graph with the same weights, without a file.

The operations and their order are those of an export by optimum-intel (int4_asym, groups of 64), so that the
CPU plugin of OpenVINO recognizes its patterns: normalization, RoPE, attention with a KV cache as state,
weights that are decompressed inside a product. Packed weights keep their bytes: u4 and MLX both store the
first number in the low half of a byte. Only the last position has logits, as in OpenVINO GenAI.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import openvino as ov
from openvino import opset13 as ops
from openvino.op import util

from tiny_llm.loading import ModelConfig
from tiny_llm.loading.weights.tree import named_parts

ZERO_POINT = 8  # of shared weights: n * scale - 8 * scale
MASKED = -65504.0


def openvino_model(config: ModelConfig, mlx_model: Any) -> ov.Model:
    """Inputs: input_ids [1, L], position_ids [1, L], beam_idx [1]. Output: logits [1, 1, V]."""
    return _Builder(config, dict(named_parts(mlx_model))).model()


class _Builder:
    def __init__(self, config: ModelConfig, parts: dict[str, Any]):
        self._config, self._parts = config, parts
        self._ids = _parameter("input_ids", [-1, -1], np.int64)
        self._positions = _parameter("position_ids", [-1, -1], np.int64)
        self._beam = _parameter("beam_idx", [-1], np.int32)
        self._sinks: list[Any] = []
        self._cos, self._sin = self._rotations()
        self._mask: Any = None

    def model(self) -> ov.Model:
        table = self._weight("model.embed_tokens")
        x = ops.gather(table, ops.convert(self._ids, "i32"), np.int32(0))
        for layer in range(self._config.num_hidden_layers):
            name = f"model.layers.{layer}"
            x = ops.add(x, self._attention(f"{name}.self_attn", self._norm(x, f"{name}.input_layernorm")))
            x = ops.add(x, self._mlp(f"{name}.mlp", self._norm(x, f"{name}.post_attention_layernorm")))
        last = ops.gather(x, _sizes(-1), np.int64(1))
        head = "lm_head" if "lm_head" in self._parts else "model.embed_tokens"
        logits = ops.result(self._linear(self._norm(last, "model.norm"), head), name="logits")
        return ov.Model([logits], self._sinks, [self._ids, self._positions, self._beam], "tiny_llm")

    def _attention(self, name: str, x: Any) -> Any:
        config, size = self._config, self._config.head_dim
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        query = self._rotate(self._heads(f"{name}.q", x, heads))
        key, past = self._append(f"{name}.key", self._rotate(self._heads(f"{name}.k", x, kv_heads)))
        value, _ = self._append(f"{name}.value", self._heads(f"{name}.v", x, kv_heads))
        if self._mask is None:
            self._mask = self._causal_mask(x, past)
        key, value = (self._repeated(each, heads // kv_heads) for each in (key, value))
        scale = np.float32(size**-0.5)
        out = ops.scaled_dot_product_attention(query, key, value, self._mask, scale, causal=False)
        flat = ops.reshape(ops.transpose(out, [0, 2, 1, 3]), [0, 0, heads * size], special_zero=True)
        return self._linear(flat, f"{name}.o_proj")

    def _mlp(self, name: str, x: Any) -> Any:
        gate, up = (self._linear(x, f"{name}.{each}_proj") for each in ("gate", "up"))
        return self._linear(ops.multiply(ops.swish(gate), up), f"{name}.down_proj")

    def _norm(self, x: Any, name: str) -> Any:
        mean = ops.reduce_mean(ops.power(x, np.float32(2)), _sizes(-1), keep_dims=True)
        inverse = ops.divide(np.float32(1), ops.sqrt(ops.add(mean, np.float32(self._config.rms_norm_eps))))
        return ops.multiply(ops.multiply(x, inverse), _dense(self._parts[name].weight))

    def _linear(self, x: Any, name: str) -> Any:
        out = ops.matmul(x, self._weight(name), False, True)
        part = self._parts[name]
        return ops.add(out, _dense(part.bias)) if hasattr(part, "bias") else out

    def _weight(self, name: str) -> Any:
        """A packed matrix as (number - zero point) * scale, with a scale and a zero point for each group."""
        part = self._parts[name]
        packed = np.array(part.weight).view(np.uint8)
        rows, groups = part.scales.shape
        shape = [rows, groups, part.group_size]
        zeros = np.full(-(-rows * groups // 2), ZERO_POINT << 4 | ZERO_POINT, np.uint8)
        numbers, zero_points = (
            ops.convert(_packed_constant(data, sizes), "f16")
            for data, sizes in ((packed, shape), (zeros, [rows, groups, 1]))
        )
        scales = _dense(part.scales).astype(np.float16)[..., None]
        weight = ops.multiply(ops.subtract(numbers, zero_points), scales)
        return ops.convert(ops.reshape(weight, [rows, groups * part.group_size], False), "f32")

    def _heads(self, name: str, x: Any, heads: int) -> Any:
        """[1, L, heads * D] -> [1, heads, L, D]; Qwen3 normalizes the heads."""
        split = [0, 0, heads, self._config.head_dim]
        out = ops.reshape(self._linear(x, f"{name}_proj"), split, special_zero=True)
        if f"{name}_norm" in self._parts:
            out = self._norm(out, f"{name}_norm")
        return ops.transpose(out, [0, 2, 1, 3])

    def _rotations(self) -> tuple[Any, Any]:
        half = self._config.head_dim // 2
        frequency = (self._config.rope_theta ** (-np.arange(half) / half)).astype(np.float32)
        positions = ops.convert(ops.unsqueeze(self._positions, np.int64(1)), "f32")
        angle = ops.transpose(ops.matmul(frequency.reshape(1, half, 1), positions, False, False), [0, 2, 1])
        both = ops.concat([angle, angle], -1)
        cos, sin = (ops.unsqueeze(each, np.int64(1)) for each in (ops.cos(both), ops.sin(both)))
        return cos, sin

    def _rotate(self, x: Any) -> Any:
        half, size = self._config.head_dim // 2, self._config.head_dim
        low, high = (ops.slice(x, [a], [b], [1], [3]) for a, b in ((0, half), (half, size)))
        turned = ops.concat([ops.multiply(high, np.float32(-1)), low], -1)
        return ops.add(ops.multiply(x, self._cos), ops.multiply(turned, self._sin))

    def _append(self, name: str, new: Any) -> tuple[Any, Any]:
        """The cache with the new positions, and the cache before them."""
        shape = [-1, self._config.num_key_value_heads, -1, self._config.head_dim]
        info = util.VariableInfo()
        info.data_shape, info.data_type, info.variable_id = ov.PartialShape(shape), ov.Type.f32, name
        variable = util.Variable(info)
        batch = ops.gather(ops.shape_of(self._ids), _sizes(0), np.int64(0))
        empty = ops.broadcast(np.float32(0), ops.concat([batch, _sizes(shape[1], 0, shape[3])], 0))
        past = ops.gather(ops.read_value(empty, variable), self._beam, np.int64(0))
        both = ops.concat([past, new], -2)
        self._sinks.append(ops.assign(both, variable))
        return both, past

    def _causal_mask(self, x: Any, past: Any) -> Any:
        """[1, 1, L, S]: 0 where a query sees a key, and the lowest float16 elsewhere."""
        before, length = (
            ops.gather(ops.shape_of(each), np.int64(axis), np.int64(0)) for each, axis in ((past, 2), (x, 1))
        )
        end = ops.add(before, length)
        keys = ops.unsqueeze(ops.range(np.int64(0), end, np.int64(1), "i64"), np.array([0, 1, 2]))
        queries = ops.unsqueeze(ops.range(before, end, np.int64(1), "i64"), np.array([0, 1, 3]))
        return ops.select(ops.less_equal(keys, queries), np.float32(0), np.float32(MASKED))

    def _repeated(self, x: Any, times: int) -> Any:
        """[1, kv_heads, S, D] -> [1, heads, S, D]"""
        heads, size = self._config.num_key_value_heads, self._config.head_dim
        if times == 1:
            return x
        sizes = ops.shape_of(x)
        batch, length = (ops.gather(sizes, axis, np.int64(0)) for axis in (_sizes(0), _sizes(2)))
        shape = ops.concat([batch, _sizes(heads, times), length, _sizes(size)], 0)
        copies = ops.broadcast(ops.unsqueeze(x, np.int64(2)), shape, broadcast_spec="BIDIRECTIONAL")
        return ops.reshape(copies, [0, heads * times, -1, size], special_zero=True)


def _sizes(*values: int) -> Any:
    return np.array(values, np.int64)


def _parameter(name: str, shape: list[int], dtype: Any) -> Any:
    parameter = ops.parameter(shape, dtype, name)
    parameter.output(0).set_names({name})
    return parameter


def _packed_constant(data: Any, shape: list[int]) -> Any:
    return ops.constant(
        ov.Tensor(np.ascontiguousarray(data), ov.Shape(shape), ov.Type.u4), shared_memory=False
    )


def _dense(x: mx.array) -> Any:
    return np.array(x.astype(mx.float32))
