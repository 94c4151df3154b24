"""The offset of a head is computed in 64 bits, for strides larger than this machine's memory."""

import numpy as np

from metal_source import inlined

from ..attention.arguments import FastArguments, HeadStrides, LengthsInput, MaskStrides, as_bytes
from ..harness.kernel import Kernel

SOURCE = """
#include <metal_stdlib>
#include "metal/kernels/place.h"
using namespace metal;
using namespace tiny_llm_ext;
kernel void f(device const float* query [[buffer(0)]], device const int* starts [[buffer(1)]],
              device int64_t* found [[buffer(2)]], constant FastAttentionArguments& args [[buffer(3)]],
              uint lane [[thread_index_in_simdgroup]]) {
  const Tensors<float> in = {query, query, query, (device const uchar*)query, query, starts, starts, starts};
  const Place<float> place = place_of(in, 7, args);
  if (lane != 0) return;
  found[0] = place.query - query;
  found[1] = place.key - query;
  found[2] = place.value - query;
  found[3] = place.at_mask;
}
"""
FEATURES = (2, 0, 0, 0, 1, 0)  # a mask, and lengths


def test_strides_beyond_32_bits():
    """Head 3 of batch entry 1, which reads key/value head 1 and begins at key 5."""
    args = FastArguments(N=8, heads=4, group=2, L=9, S=40, E=64, scale=1.0, keys_per_split=40)
    args.query = HeadStrides(2**33, 2**32 + 1, 64)
    args.key = HeadStrides(2**34, 2**35, 2**31)
    args.value = HeadStrides(3, 2**40, 2**36)
    args.mask = MaskStrides(2**37, 2**32, 1, 2**38)
    args.kv_start = LengthsInput(1, 1)
    buffers = {
        "query": np.zeros(4, np.float32),
        "starts": np.array([0, 5], np.int32),
        "found": np.zeros(4, np.int64),
        "args": as_bytes(args),
    }
    kernel = Kernel(inlined(SOURCE), "f", slot_header="metal/kernels/fast_arguments.h")
    outputs, reports = kernel((1, 1, 1), (32, 1, 1), buffers, constants=FEATURES)
    assert reports == []
    assert outputs["found"].tolist() == [
        2**33 + 3 * (2**32 + 1),
        2**34 + 2**35 + 5 * 2**31,
        3 + 2**40 + 5 * 2**36,
        2**37 + 3 * 2**32 + 5 * 2**38,
    ]
