// Ranges of options.
#include "attention/arguments/options.h"

#include <algorithm>
#include <cmath>

#include "core/checks.h"
#include "cpu/interface/isa.h"
#include "cpu/interface/threads.h"

namespace tiny_llm_ext {
namespace {

float check_softcap(const char* function, double softcap) {
  float value = static_cast<float>(softcap);
  if (!(value > 0) || !std::isfinite(value)) {
    reject(function, "softcap", to_text(softcap), "a finite number above 0, or None");
  }
  return value;
}

// The number of visible keys before and after a row's position.
std::pair<int64_t, int64_t> check_window(const char* function, const AttentionOptions& options, bool causal) {
  constexpr const char* kExpected = "a number of keys >= 1, or (left, right) with -1 for no limit";
  std::pair<int64_t, int64_t> limits{-1, -1};
  if (auto keys = std::get_if<int64_t>(&options.window)) {
    if (*keys < 1) reject(function, "window", std::to_string(*keys), kExpected);
    limits = causal ? std::pair{*keys - 1, int64_t{0}} : std::pair{*keys / 2, (*keys - 1) / 2};
  } else if (auto sides = std::get_if<std::pair<int64_t, int64_t>>(&options.window)) {
    limits = *sides;
  }
  auto [left, right] = limits;
  if (left < -1 || right < -1) {
    reject(function, "window", "(" + std::to_string(left) + ", " + std::to_string(right) + ")", kExpected);
  }
  auto bounded = [](int64_t keys) { return keys == -1 ? kUnbounded : std::min(keys, kUnbounded); };
  return {bounded(left), causal ? 0 : bounded(right)};
}

cpu::Threads check_threads(const char* function, const std::optional<int>& threads) {
  if (!threads) return cpu::active_threads();
  if (*threads < 1) reject(function, "threads", std::to_string(*threads), "at least 1");
  return {*threads, *threads};
}

}  // namespace

bool is_causal(const char* function, const AttentionOptions& options) {
  auto kind = std::get_if<std::string>(&options.mask);
  if (kind && *kind != "causal") {
    reject(function, "mask", "'" + *kind + "'", "None, 'causal' or an array");
  }
  return options.causal || kind;
}

AttentionParams check_options(const char* function, const AttentionOptions& options, bool causal) {
  AttentionParams params;
  std::tie(params.left, params.right) = check_window(function, options, causal);
  if (options.scale) params.scale = check_scale(function, *options.scale);
  if (options.softcap) params.softcap = check_softcap(function, *options.softcap);
  if (options.on_fallback != "error" && options.on_fallback != "warn" && options.on_fallback != "allow") {
    reject(function, "on_fallback", "'" + options.on_fallback + "'", "'error', 'warn' or 'allow'");
  }
  if (options.schedule != "v1" && options.schedule != "v2")
    reject(function, "schedule", "'" + options.schedule + "'", "'v1' or 'v2'");
  params.keys_outside = options.schedule == "v1";
  params.kernels = options.isa ? &cpu::kernels_named(*options.isa, function) : &cpu::active_kernels();
  params.threads = check_threads(function, options.threads);
  params.readable = options.readable;
  params.batch_invariant = options.batch_invariant;
  return params;
}

}  // namespace tiny_llm_ext
