// mx.vmap: the mapped axis of each input becomes the first batch axis.
#pragma once

#include <vector>

#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// The size of the mapped axis; an axis below 0 is of an input that is not mapped.
int mapped_size(const std::vector<mx::array>& inputs, const std::vector<int>& axes);

// Repeated without a copy if not mapped.
mx::array mapped_or_repeated(const mx::array& x, int axis, int size, mx::Stream stream);

// The optional inputs, of which `next` is the first; one that is not mapped stays and broadcasts. The batch
// of the mapped query has `batch_axes` axes.
std::vector<mx::array> map_optional_inputs(const std::vector<mx::array>& inputs, const std::vector<int>& axes,
                                           size_t next, int batch_axes, const AttentionParams& params,
                                           mx::Stream stream);

// The inputs of Attention.
std::vector<mx::array> map_inputs(const std::vector<mx::array>& inputs, const std::vector<int>& axes,
                                  const AttentionParams& params, mx::Stream stream);

}  // namespace tiny_llm_ext
