// The lengths, GQA groups, masks and hidden rows of the harness, few and small because NVIDIA's tools check
// every access.
#include "attention.h"
#include "metal/kernels/arguments.h"

namespace metal_on_cuda {
namespace {

using namespace tiny_llm_ext;

void add_sizes(std::vector<Case>& all) {
  const int lengths[][2] = {{1, 1},   {1, 33},  {1, 257}, {31, 97}, {32, 32},
                            {33, 65}, {40, 17}, {65, 33}, {70, 131}};
  for (bool causal : {false, true}) {
    for (auto [L, S] : lengths) {
      Case call{"L=" + std::to_string(L) + " S=" + std::to_string(S) + (causal ? " causal" : "")};
      call.L = L, call.S = S, call.causal = causal;
      all.push_back(call);
    }
  }
  for (auto [heads, kv_heads] : {std::pair{2, 2}, {7, 1}, {14, 2}, {8, 1}}) {
    Case call{"heads " + std::to_string(heads) + "/" + std::to_string(kv_heads)};
    call.batch = 2, call.heads = heads, call.kv_heads = kv_heads, call.L = 3, call.S = 40, call.E = 40;
    call.causal = heads == 7;
    all.push_back(call);
  }
  for (int E : {1, 33, 100, 128}) {
    Case call{"E=" + std::to_string(E)};
    call.E = E, call.causal = E % 2 == 0;
    all.push_back(call);
  }
}

void add_masks(std::vector<Case>& all) {
  const char* kinds[] = {"", "bool", "f32", "f16", "bf16"};
  for (int kind : {kBooleanMask, kFloatMask, kHalfMask, kBfloatMask}) {
    for (const char* axes : {"k", "rk", "bhrk"}) {
      Case call{std::string("mask ") + kinds[kind] + " " + axes};
      call.batch = 2, call.heads = 4, call.kv_heads = 2, call.L = 5, call.S = 37, call.E = 48;
      call.mask = axes, call.mask_kind = kind, call.causal = kind == kHalfMask;
      all.push_back(call);
    }
  }
  Case hidden{"NaN in a hidden key"};
  hidden.L = 2, hidden.S = 40, hidden.mask = "k", hidden.mask_kind = kFloatMask;
  hidden.nan_in_hidden_key = true;
  all.push_back(hidden);
}

// A fast kernel is compiled for the features of a call; fast_kernels.py lists those of the calls here.
void add_fast(std::vector<Case>& all) {
  const char* elements[] = {"f32", "f16", "bf16"};
  for (Element element : {f32, f16, bf16}) {
    for (bool causal : {false, true}) {
      const std::string end = std::string(" ") + elements[element] + (causal ? " causal" : "");
      Case call{"prefill" + end, Kernel::prefill, element};
      call.S = 70, call.E = 80, call.causal = causal;
      all.push_back(call);
      call.name = "decode" + end;
      call.kernel = Kernel::decode, call.L = 2, call.heads = 7;
      all.push_back(call);
      call.name = "split decode" + end;
      call.splits = 3;
      all.push_back(call);
    }
  }
  for (Kernel kernel : {Kernel::prefill, Kernel::decode}) {
    const std::string name = kernel == Kernel::prefill ? "prefill" : "decode";
    Case call{name + " rows without keys", kernel};
    call.L = 40, call.S = 17, call.E = 80, call.causal = true;
    all.push_back(call);
    call.name = name + " mask";
    call.batch = 2, call.heads = 4, call.L = 5, call.S = 37;
    call.mask = "bhrk", call.mask_kind = kHalfMask;
    all.push_back(call);
    Case padded{name + " padded head", kernel};
    padded.E = 72, padded.L = kernel == Kernel::prefill ? 33 : 3;
    all.push_back(padded);
  }
}

}  // namespace

std::vector<Case> cases() {
  std::vector<Case> all;
  add_sizes(all);
  add_masks(all);
  add_fast(all);
  return all;
}

}  // namespace metal_on_cuda
