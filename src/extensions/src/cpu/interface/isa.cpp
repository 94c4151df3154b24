// The list of instruction sets, best first, and the choice among them.
#include "cpu/interface/isa.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/errors.h"
#include "cpu/interface/machine.h"

namespace tiny_llm_ext::cpu {
namespace {

constexpr const char* kNotBuilt =
    " (this build leaves it out; `TINY_LLM_BUILD_ISAS=all pdm run build-ext` compiles every instruction set)";

struct Isa {
  const char* name;  // equal to Kernels::name; the getter itself may need the instructions
  const Kernels& (*kernels)();
  bool (*supported)();
};

constexpr Isa kIsas[] = {
#define TINY_LLM_ROW(isa) {#isa, isa##_kernels, machine_runs_##isa},
    TINY_LLM_ISAS(TINY_LLM_ROW)
#undef TINY_LLM_ROW
};

// Determined once: in a virtual machine each cpuid leaves the guest, which takes some 20 microseconds.
const std::vector<const Isa*>& usable() {
  static const std::vector<const Isa*> found = [] {
    std::vector<const Isa*> isas;
    for (const Isa& isa : kIsas) {
      if (isa.supported() && isa.kernels().name) isas.push_back(&isa);  // null in absent_isa.cpp
    }
#if defined(__x86_64__)
    // avx512bf16 is available but not preferred where its products are slow.
    auto slow = [](const Isa* isa) {
      return isa->kernels == avx512bf16_kernels && !machine_has_fast_bf16_products();
    };
    const auto it = std::find_if(isas.begin(), isas.end(), slow);
    if (it != isas.end()) std::iter_swap(it, it + 1);  // with avx512, which follows in the list
#endif
    return isas;
  }();
  return found;
}

const Kernels& choose() {
  const char* forced = std::getenv("TINY_LLM_CPU_ISA");
  return kernels_named(forced ? forced : available_isas().front(), "", "TINY_LLM_CPU_ISA");
}

Kernels invariant_kernels(Kernels table) {
  table.batch_invariant = true;
  for (int element = 0; element < kElements; element++) {
    table.quantized[element] = table.invariant_quantized[element];
    table.linear[element] = table.invariant_linear[element];
  }
  return table;
}

thread_local bool batch_invariant = false;

}  // namespace

const std::vector<std::string>& available_isas() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> found;
    for (const Isa* isa : usable()) found.push_back(isa->name);
    return found;
  }();
  return names;
}

const Kernels& kernels_named(const std::string& name, const std::string& operation,
                             const std::string& argument) {
  std::string expected;
  for (const Isa* isa : usable()) {
    if (name == isa->name) return isa->kernels();
    expected += (expected.empty() ? "" : ", ") + std::string(isa->name);
  }
  for (const Isa& isa : kIsas) {
    if (name == isa.name && isa.supported()) expected += kNotBuilt;
  }
  throw ArgumentError(operation, argument, "'" + name + "'", "one of " + expected);
}

const Kernels& active_kernels() {
  static const Kernels& active = choose();
  if (!batch_invariant) return active;
  static const Kernels invariant = invariant_kernels(active);
  return invariant;
}

bool set_batch_invariant(bool on) { return std::exchange(batch_invariant, on); }

}  // namespace tiny_llm_ext::cpu
