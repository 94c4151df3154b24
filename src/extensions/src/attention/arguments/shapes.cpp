// Query, key and value share named sizes; the optional inputs broadcast to theirs.
#include "attention/arguments/shapes.h"

#include <algorithm>

namespace tiny_llm_ext {

bool broadcasts_to(const mx::Shape& shape, const mx::Shape& target) {
  if (shape.size() > target.size()) return false;
  return std::equal(shape.rbegin(), shape.rend(), target.rbegin(),
                    [](int size, int target_size) { return size == 1 || size == target_size; });
}

Dims check_shapes(const char* function, const AttentionInputs& inputs) {
  Dims dims(function);
  dims.match("query", inputs.query.shape(), {"B...", "Hq", "L", "E"});
  dims.match("key", inputs.key.shape(), {"B...", "Hkv", "S", "E"});
  dims.match("value", inputs.value.shape(), {"B...", "Hkv", "S", "V"});
  for (auto [argument, size] : {std::pair{"query", "Hq"}, std::pair{"key", "Hkv"}, std::pair{"query", "E"},
                                std::pair{"value", "V"}}) {
    if (dims[size] < 1) {
      reject(function, argument, std::string(size) + " = 0", std::string(size) + " of at least 1");
    }
  }
  if (dims["Hq"] % dims["Hkv"] != 0) {
    reject(function, "query", std::to_string(dims["Hq"]) + " heads",
           "a multiple of the " + std::to_string(dims["Hkv"]) + " heads of key");
  }
  mx::Shape scores = inputs.query.shape();
  scores.back() = dims["S"];
  for (const OptionalInput& input : kOptionalInputs) {
    const auto& array = inputs.*input.member;
    if (!array || (inputs.packed() && input.trailing_axes == 0)) continue;
    mx::Shape target(scores.begin(), scores.end() - 3 + input.trailing_axes);
    if (!broadcasts_to(array->shape(), target)) {
      reject(function, input.name, to_text(array->shape()), "a shape that broadcasts to " + to_text(target));
    }
  }
  return dims;
}

}  // namespace tiny_llm_ext
