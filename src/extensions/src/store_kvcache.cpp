// Storing keys and values: checks the arguments and builds the primitive.
#include "store_kvcache.h"

#include <algorithm>
#include <string>

#include "core/checks.h"
#include "core/integers.h"

namespace tiny_llm_ext {

void check_store(const std::vector<mx::array>& inputs, PageLayout layout) {
  constexpr const char* kNames[] = {"key", "value", "k_cache", "v_cache"};
  check_floating(kStoreKvCache, "key", inputs[0]);
  for (int i = 1; i < 4; i++) {
    if (inputs[i].dtype() != inputs[0].dtype())
      reject(kStoreKvCache, kNames[i], to_text(inputs[i].dtype()),
             to_text(inputs[0].dtype()) + ", the dtype of key");
  }
  Dims dims(kStoreKvCache);
  for (int i = 0; i < 2; i++) dims.match(kNames[i], inputs[i].shape(), {"T", "Hkv", "E"});
  for (int i = 2; i < 4; i++) {
    if (layout == PageLayout::slots_outside) {
      dims.match(kNames[i], inputs[i].shape(), {"P", "page", "Hkv", "E"});
    } else {
      dims.match(kNames[i], inputs[i].shape(), {"P", "Hkv", "page", "E"});
    }
  }
  dims.match("slot_mapping", inputs[4].shape(), {"T"});
  if (inputs[4].dtype() != mx::int32 && inputs[4].dtype() != mx::int64)
    reject(kStoreKvCache, "slot_mapping", to_text(inputs[4].dtype()), "int32 or int64");
}

std::vector<int64_t> read_slots(const mx::array& slot_mapping, int64_t slots, const ReportError& report) {
  std::vector<int64_t> read;
  for (int64_t t = 0; t < slot_mapping.shape(0); t++) {
    read.push_back(integer_at(slot_mapping, t * slot_mapping.strides(0)));
    if (read.back() < -1 || read.back() >= slots)
      report("slot_mapping", std::to_string(read.back()) + " for token " + std::to_string(t),
             "-1, or 0 to " + std::to_string(slots - 1));
  }
  std::vector<int64_t> sorted = read;
  std::sort(sorted.begin(), sorted.end());
  const auto first = std::lower_bound(sorted.begin(), sorted.end(), 0);
  const auto twice = std::adjacent_find(first, sorted.end());
  if (twice != sorted.end())
    report("slot_mapping", "slot " + std::to_string(*twice) + " twice", "a slot for each token");
  return read;
}

void check_writable(const mx::array& keys, const mx::array& values,
                    const std::pair<const char*, const char*>& names, const ReportError& report) {
  for (auto [name, pages] : {std::pair{names.first, &keys}, std::pair{names.second, &values}}) {
    if (pages->size() > 0 && !pages->flags().row_contiguous)
      report(name, "a view with gaps", "row-contiguous pages, which are written in place");
  }
  if (keys.size() > 0 && keys.data<std::byte>() == values.data<std::byte>())
    report(names.second, std::string("the memory of ") + names.first, "memory of its own");
}

std::pair<mx::array, mx::array> store_kvcache(const mx::array& key, const mx::array& value,
                                              const mx::array& k_cache, const mx::array& v_cache,
                                              const mx::array& slot_mapping, PageLayout layout,
                                              mx::StreamOrDevice stream) {
  const std::vector<mx::array> inputs = {key, value, k_cache, v_cache, slot_mapping};
  check_store(inputs, layout);
  const ReportError report = throws_argument_error(kStoreKvCache);
  if (slot_mapping.is_available()) {
    const int64_t page = k_cache.shape(layout == PageLayout::slots_outside ? 1 : 2);
    read_slots(slot_mapping, k_cache.shape(0) * page, report);
  }
  if (k_cache.is_available() && v_cache.is_available()) check_writable(k_cache, v_cache, kCacheNames, report);
  const auto outputs = mx::array::make_arrays(
      {k_cache.shape(), v_cache.shape()}, {key.dtype(), key.dtype()},
      std::make_shared<StoreKvCache>(cpu_stream(kStoreKvCache, stream), layout), inputs);
  return {outputs[0], outputs[1]};
}

std::vector<mx::Shape> StoreKvCache::output_shapes(const std::vector<mx::array>& inputs) {
  check_store(inputs, layout_);
  return {inputs[2].shape(), inputs[3].shape()};
}

void StoreKvCache::eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) {
  refuse_gpu(kStoreKvCache);
}

}  // namespace tiny_llm_ext
