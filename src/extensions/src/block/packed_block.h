// A decoder block on one step of a packed batch over pages, as one operation.
#pragma once

#include <array>
#include <memory>

#include "block/decoder_block.h"
#include "block/packed_step.h"
#include "core/checks.h"

namespace tiny_llm_ext {

// x (1, T, K), the rows of `step`, through the block. Their keys and values are written to their slots of the
// pages (P, Hkv, page, E) in place, as by `store_kvcache`, then each row attends to the tokens of its
// sequence up to itself. The result has the shape and dtype of x; the pages are the same memory.
std::array<mx::array, 3> packed_decoder_block(const std::shared_ptr<const DecoderParts>& parts,
                                              const mx::array& x, const mx::array& key_pages,
                                              const mx::array& value_pages,
                                              const std::shared_ptr<const PackedStep>& step,
                                              mx::StreamOrDevice stream);

// Inputs: x, key pages, value pages. Outputs: the result, key pages, value pages.
class PackedDecoderBlock : public CacheOperation {
 public:
  PackedDecoderBlock(mx::Stream stream, std::shared_ptr<const DecoderParts> parts,
                     std::shared_ptr<const PackedStep> step)
      : CacheOperation("PackedDecoderBlock", stream), parts_(std::move(parts)), step_(std::move(step)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  // Each call writes, also if its arrays are those of another.
  bool is_equivalent(const mx::Primitive&) const override { return false; }
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

  // Throws for inputs that do not fit the parts and the step, and where no kernel computes them.
  void check_inputs(const std::vector<mx::array>& inputs) const;

  // Reports pages that cannot be written in place.
  static void check_pages(const std::vector<mx::array>& inputs, const ReportError& report);

 private:
  std::shared_ptr<const DecoderParts> parts_;
  std::shared_ptr<const PackedStep> step_;
};

}  // namespace tiny_llm_ext
