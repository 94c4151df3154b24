// Decoder blocks, one after the other, on one step of a packed batch over pages, as one operation.
#pragma once

#include <memory>
#include <vector>

#include "block/decoder_block.h"
#include "block/packed_step.h"
#include "core/checks.h"

namespace tiny_llm_ext {

using Blocks = std::vector<std::shared_ptr<const DecoderParts>>;

struct PackedResult {
  mx::array x;
  std::vector<mx::array> key_pages, value_pages;  // of each block
};

// x (1, T, K), the rows of `step`, through the blocks. In each, keys and values are written to their slots of
// its pages (P, Hkv, page, E) in place, as by `store_kvcache`, then each row attends to the tokens of its
// sequence up to itself. The result has the shape and dtype of x; the pages are the same memory.
PackedResult packed_decoder_blocks(const Blocks& blocks, const mx::array& x,
                                   const std::vector<mx::array>& key_pages,
                                   const std::vector<mx::array>& value_pages,
                                   const std::shared_ptr<const PackedStep>& step, mx::StreamOrDevice stream);

// Inputs: x, then key pages and value pages of each block. Outputs: the result, then the pages in this order.
class PackedDecoderBlocks : public CacheOperation {
 public:
  PackedDecoderBlocks(mx::Stream stream, Blocks blocks, std::shared_ptr<const PackedStep> step)
      : CacheOperation("PackedDecoderBlocks", stream), blocks_(std::move(blocks)), step_(std::move(step)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  // Each call writes, also if its arrays are those of another.
  bool is_equivalent(const mx::Primitive&) const override { return false; }
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

  // Throws for inputs that do not fit the blocks and the step, and where no kernel computes them.
  void check_inputs(const std::vector<mx::array>& inputs) const;

  // Reports pages that cannot be written in place.
  static void check_pages(const mx::array& keys, const mx::array& values, const ReportError& report);

 private:
  Blocks blocks_;
  std::shared_ptr<const PackedStep> step_;
};

}  // namespace tiny_llm_ext
