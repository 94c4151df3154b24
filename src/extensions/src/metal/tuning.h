// The parameters that depend on the GPU, with reasons.
#pragma once

#include <cstdint>
#include <string_view>

#include "metal/launch.h"

namespace tiny_llm_ext::metal {

// Calculated, not measured: nothing here has run on a Mac.
//
// A threadgroup of the decode kernel has 256 threads, so about four of them fill a core. Shorter splits make
// more threadgroups, but each part of E + 2 floats is written and read once more: with splits of 128 keys of
// 16 bits, 8 (E + 2) bytes beside 512 E, or 2 %; with 512 keys it is negligible. A model with 14 query heads
// and 2048 keys makes 56, 112 or 224 threadgroups; 8 to 20 cores need 32 to 80, 30 to 40 cores 120 to 160,
// and 60 or more cores 240 to 320.
//
// Tiles of rows and keys do not depend on the family: threadgroup memory is 32 KiB on all of them, and the
// head size decides (metal/launch.h).
struct Tuning {
  std::string_view family;  // the end of the architecture's name: generation and size
  std::string_view chips;
  int32_t most_cores;
  int32_t keys_per_split;
};

inline constexpr Tuning kTunings[] = {
    {"13g", "M1", 8, 512},  {"13s", "M1 Pro and Max", 32, 256}, {"13d", "M1 Ultra", 64, 128},
    {"14g", "M2", 10, 512}, {"14s", "M2 Pro and Max", 38, 256}, {"14d", "M2 Ultra", 76, 128},
    {"15g", "M3", 10, 512}, {"15s", "M3 Pro and Max", 40, 256}, {"15d", "M3 Ultra", 80, 128},
    {"16g", "M4", 10, 512}, {"16s", "M4 Pro and Max", 40, 256},
};
inline constexpr Tuning kOtherTuning = {"", "any other GPU", 0, kKeysPerSplit};

// `architecture` is the device's architecture name, such as applegpu_g13g.
constexpr const Tuning& tuning_of(std::string_view architecture) {
  for (const Tuning& tuning : kTunings) {
    if (architecture.ends_with(tuning.family)) return tuning;
  }
  return kOtherTuning;
}

}  // namespace tiny_llm_ext::metal
