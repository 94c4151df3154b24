// The features of a call as function constants of its pipeline: code of other features is not compiled.
#pragma once

#include <metal_stdlib>

#include "metal/kernels/fast_arguments.h"

namespace tiny_llm_ext {

constant int mask_kind [[function_constant(kMaskFeature)]];
constant int has_window [[function_constant(kWindowFeature)]];
constant int has_softcap [[function_constant(kSoftcapFeature)]];
constant int has_sinks [[function_constant(kSinksFeature)]];
constant int has_lengths [[function_constant(kLengthsFeature)]];
constant int has_padded_head [[function_constant(kPaddedHeadFeature)]];

}  // namespace tiny_llm_ext
