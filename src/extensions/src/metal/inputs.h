// Binds the arrays of one call for the attention kernels: in place, or as copies where the kernels cannot
// read the layout.
#pragma once

#include <vector>

#include "attention/problem.h"
#include "metal/device.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext::metal {

class KernelInputs {
 public:
  KernelInputs(const AttentionInputs& call, const Problem& problem, mx::Stream stream)
      : call_(call), problem_(problem), stream_(stream) {}

  // Bind the arrays for the readable kernel or a fast one, and fill in their strides.
  AttentionArguments bind_readable();
  void bind_fast(FastAttentionArguments& args);

  const std::vector<Binding>& bindings() const { return bindings_; }
  const std::vector<mx::array>& copies() const { return copies_; }

 private:
  // An array with one stride over all batch entries.
  struct Entry {
    mx::array array;
    int64_t batch;
    mx::Strides trailing;  // strides of the last axes, 0 where broadcast
  };

  HeadStrides bind_rows(int slot, const mx::array& rows, bool dense);
  MaskStrides bind_mask();
  LengthsInput bind_lengths(int slot, const std::optional<mx::array>& lengths);
  Entry along_batch(const mx::array& array, int trailing);
  mx::array copy(const mx::array& array, const mx::Shape& shape);
  void bind(int slot, const mx::array& array);
  void bind_nothing(int slot);

  const AttentionInputs& call_;
  const Problem& problem_;
  mx::Stream stream_;
  std::vector<Binding> bindings_;
  std::vector<mx::array> copies_;
};

}  // namespace tiny_llm_ext::metal
