// Detects instruction sets: the processor must have them, the operating system must save their registers.
#include "cpu/interface/machine.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tiny_llm_ext::cpu {

#if defined(__x86_64__)
namespace {

struct Cpuid {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// All zero if the processor has no such leaf.
Cpuid cpuid(unsigned leaf, unsigned subleaf) {
  Cpuid r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

template <class... Bits>
bool all_bits(unsigned word, Bits... bits) {
  return ((word >> bits & 1) && ...);
}

// Whether the operating system saves these registers on a task switch (XCR0); else they are unusable.
template <class... Components>
bool os_saves(Components... components) {
  if (!all_bits(cpuid(1, 0).ecx, 27)) return false;  // OSXSAVE: xgetbv exists
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return all_bits(low, components...);
}

#if defined(TINY_LLM_EMULATED_TILES)
bool has_tiles() { return true; }
#else
// On Linux a process must request the tile registers, once for all of its threads.
bool tiles_permitted() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool has_tiles() {
  return os_saves(17, 18)                          // tile configuration, tile data
         && all_bits(cpuid(7, 0).edx, 22, 24, 25)  // amx-bf16, amx-tile, amx-int8
         && tiles_permitted();
}
#endif

}  // namespace

bool machine_runs_avx2() {
  return os_saves(1, 2)                        // xmm, ymm
         && all_bits(cpuid(1, 0).ecx, 12, 29)  // fma, f16c
         && all_bits(cpuid(7, 0).ebx, 5);      // avx2
}

bool machine_runs_avx512() {
  return machine_runs_avx2() && os_saves(5, 6, 7)       // mask registers, zmm0-15, zmm16-31
         && all_bits(cpuid(7, 0).ebx, 16, 17, 30, 31);  // f, dq, bw, vl
}

bool machine_runs_avx512bf16() { return machine_runs_avx512() && all_bits(cpuid(7, 1).eax, 5); }

bool machine_runs_amx() {
  return machine_runs_avx512bf16() && all_bits(cpuid(7, 0).ecx, 1, 11)  // vbmi, vnni
         && has_tiles();
}

// Intel's vector bfloat16 products run at half the float32 rate (measured on Emerald Rapids, one core: 87
// against 184 GFLOP/s), AMD's at twice that rate (Zen 5: 540 against 270).
bool machine_has_fast_bf16_products() { return cpuid(0, 0).ebx != signature_INTEL_ebx; }

#elif defined(__aarch64__)

bool machine_runs_neon() { return true; }

#endif

bool machine_runs_scalar() { return true; }

}  // namespace tiny_llm_ext::cpu
