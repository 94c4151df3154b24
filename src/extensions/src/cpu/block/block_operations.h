// The operations of a decoder block on arrays with memory, computed at once.
#pragma once

#include <optional>

#include "block/decoder_block_steps.h"
#include "core/dtype.h"
#include "cpu/interface/kernels.h"
#include "cpu/runtime/dispatch.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {

// The team that computes all operations of a block: most are too small to wake a thread for, in small models
// all of them. Has no threads if the block is too small itself.
class BlockTeam {
 public:
  BlockTeam(const DecoderParts& parts, int64_t rows, int threads);

 private:
  std::optional<Team> team_;
};

// As `quantized_linear`; the result of the last product is `block_result`.
Arrays multiply(const mx::array& x, const PackedLayer& layer, const ProductOptions& options,
                const mx::array& block_result, const Kernels& kernels, int threads);

// As `rms_norm`, in place.
mx::array normalise(mx::array& heads, const FirstNorm& norm, const Kernels& kernels, int threads);

}  // namespace tiny_llm_ext::cpu
