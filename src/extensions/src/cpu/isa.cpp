// The list of instruction sets, best first, and the choice among them.
#include "cpu/isa.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tiny_llm_ext::cpu {
namespace {

#if defined(__x86_64__)
struct Cpuid {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// All zero where the processor has no such leaf.
Cpuid cpuid(unsigned leaf, unsigned subleaf) {
  Cpuid r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

bool all_bits(unsigned word, std::initializer_list<int> bits) {
  for (int bit : bits) {
    if ((word >> bit & 1) == 0) return false;
  }
  return true;
}

// The registers that the operating system saves on a task switch (XCR0); an instruction set without that is
// unusable.
bool os_saves(std::initializer_list<int> components) {
  if (!all_bits(cpuid(1, 0).ecx, {27})) return false;  // OSXSAVE: xgetbv exists
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return all_bits(low, components);
}

bool has_avx2() {
  return os_saves({1, 2})                        // xmm, ymm
         && all_bits(cpuid(1, 0).ecx, {12, 29})  // fma, f16c
         && all_bits(cpuid(7, 0).ebx, {5});      // avx2
}

bool has_avx512() {
  return has_avx2() && os_saves({5, 6, 7})                // mask registers, zmm0-15, zmm16-31
         && all_bits(cpuid(7, 0).ebx, {16, 17, 30, 31});  // f, dq, bw, vl
}

bool has_avx512bf16() { return has_avx512() && all_bits(cpuid(7, 1).eax, {5}); }

// Intel's vector bfloat16 product reaches half the float32 rate (measured on Emerald Rapids, one core: 87
// against 184 GFLOP/s), AMD's twice that rate (Zen 5: 540 against 270). Where it is slow it is offered, but
// not preferred.
bool has_fast_bf16_products() { return cpuid(0, 0).ebx != signature_INTEL_ebx; }

#if defined(TINY_LLM_EMULATED_TILES)
bool has_tiles() { return true; }
#else
// Linux hands out the tile registers on request; one request covers all threads of the process.
bool tiles_permitted() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
#else
  return false;
#endif
}

bool has_tiles() {
  return os_saves({17, 18})                          // tile configuration, tile data
         && all_bits(cpuid(7, 0).edx, {22, 24, 25})  // amx-bf16, amx-tile, amx-int8
         && tiles_permitted();
}
#endif

bool has_amx() {
  return has_avx512bf16() && all_bits(cpuid(7, 0).ecx, {1, 11})  // vbmi, vnni
         && has_tiles();
}
#endif

bool always() { return true; }

struct Isa {
  const char* name;  // equal to Kernels::name; the getter itself may need the instructions
  const Kernels& (*kernels)();
  bool (*supported)();
};

constexpr Isa kIsas[] = {
#if defined(__x86_64__)
    {"amx", amx_kernels, has_amx},          {"avx512bf16", avx512bf16_kernels, has_avx512bf16},
    {"avx512", avx512_kernels, has_avx512}, {"avx2", avx2_kernels, has_avx2},
#elif defined(__aarch64__)
    {"neon", neon_kernels, always},
#endif
    {"scalar", scalar_kernels, always},
};

// Asked once, not at every call: in a virtual machine each cpuid is a trip to the host, some 20 microseconds.
const std::vector<const Isa*>& usable() {
  static const std::vector<const Isa*> found = [] {
    std::vector<const Isa*> isas;
    for (const Isa& isa : kIsas) {
      if (isa.supported()) isas.push_back(&isa);
    }
#if defined(__x86_64__)
    auto slow = [](const Isa* isa) {
      return isa->kernels == avx512bf16_kernels && !has_fast_bf16_products();
    };
    auto place = std::find_if(isas.begin(), isas.end(), slow);
    if (place != isas.end()) std::iter_swap(place, place + 1);  // avx512 comes next
#endif
    return isas;
  }();
  return found;
}

const Kernels& choose() {
  const char* forced = std::getenv("TINY_LLM_CPU_ISA");
  return kernels_named(forced ? forced : available_isas().front(), "TINY_LLM_CPU_ISA");
}

}  // namespace

const std::vector<std::string>& available_isas() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> found;
    for (const Isa* isa : usable()) found.push_back(isa->name);
    return found;
  }();
  return names;
}

const Kernels& kernels_named(const std::string& name, const std::string& asked_by) {
  std::string expected;
  for (const Isa* isa : usable()) {
    if (name == isa->name) return isa->kernels();
    expected += (expected.empty() ? "" : ", ") + std::string(isa->name);
  }
  throw std::invalid_argument(asked_by + ": got '" + name + "', expected one of " + expected);
}

const Kernels& active_kernels() {
  static const Kernels& active = choose();
  return active;
}

}  // namespace tiny_llm_ext::cpu
