// Keys and values of new tokens, written to their slots in pages.
#pragma once

#include <utility>
#include <vector>

#include "core/checks.h"
#include "cpu/interface/threads.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// Writes key and value (T, Hkv, E) to the slots of the pages, in place: the result is the same memory, and
// the given arrays show the new tokens, too. Token t goes to slot slots[t] % page of page slots[t] / page; -1
// skips it. All arrays have one dtype. Slots are int32 or int64; one out of range, or given twice, is an
// error before anything is written: at the call if the slots are evaluated, else at evaluation.
std::pair<mx::array, mx::array> store_kvcache(const mx::array& key, const mx::array& value,
                                              const mx::array& k_cache, const mx::array& v_cache,
                                              const mx::array& slot_mapping, PageLayout layout,
                                              mx::StreamOrDevice stream);

// Inputs: key, value, pages (P, page, Hkv, E) or (P, Hkv, page, E), slots. Outputs: the pages.
class StoreKvCache : public mx::Primitive {
 public:
  StoreKvCache(mx::Stream stream, PageLayout layout) : mx::Primitive(stream), layout_(layout) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  void eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;

  const char* name() const override { return "tiny_llm_ext::StoreKvCache"; }
  // Each call writes, also if its arrays are those of another.
  bool is_equivalent(const mx::Primitive&) const override { return false; }
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

 private:
  PageLayout layout_;
  int threads_ = cpu::active_threads().prompts;  // few tokens are copied by one thread
};

// Throws for shapes and types that do not match.
void check_store(const std::vector<mx::array>& inputs, PageLayout layout);

// The slot of each token, checked.
std::vector<int64_t> read_slots(const mx::array& slot_mapping, int64_t slots, const ReportError& report);

// Reports pages that cannot be written in place, under these names.
void check_writable(const mx::array& keys, const mx::array& values,
                    const std::pair<const char*, const char*>& names, const ReportError& report);
inline constexpr std::pair<const char*, const char*> kCacheNames = {"k_cache", "v_cache"};

inline constexpr const char* kStoreKvCache = "store_kvcache";

}  // namespace tiny_llm_ext
