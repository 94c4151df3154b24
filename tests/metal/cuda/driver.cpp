// Runs the readable kernel on CUDA, on the grid of the Metal host, and compares with attention in double
// precision.
//
//     driver [--unset] [prefix]     the cases whose names begin so; --unset leaves the outputs uninitialised
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "attention.h"
#include "metal/launch.h"

// In the translated kernel: the buffers by slot, and a kernel by its name.
struct Slots {
  void* at[8];
};
const void* kernel_named(const char* name);

namespace metal_on_cuda {
namespace {

using namespace tiny_llm_ext;

bool leave_unset = false;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(error));
  std::exit(2);
}

// A buffer of exactly its size, an allocation of its own, so that memcheck sees its end.
class Buffer {
 public:
  template <class T>
  explicit Buffer(const std::vector<T>& content) : Buffer(content.size() * sizeof(T)) {
    check(cudaMemcpy(data, content.data(), size_, cudaMemcpyHostToDevice));
  }
  explicit Buffer(size_t size) : size_(size) { check(cudaMalloc(&data, size)); }
  Buffer(const Buffer&) = delete;
  ~Buffer() { cudaFree(data); }

  std::vector<uint8_t> content() const {
    std::vector<uint8_t> copy(size_);
    check(cudaMemcpy(copy.data(), data, size_, cudaMemcpyDeviceToHost));
    return copy;
  }

  void* data = nullptr;

 private:
  size_t size_;
};

// An output is full of NaN before a kernel runs, unless a tool watches for what nobody wrote.
struct Output : Buffer {
  explicit Output(size_t floats) : Buffer(floats * sizeof(float)) {
    if (!leave_unset) check(cudaMemset(data, 0xff, floats * sizeof(float)));
  }
};

void dispatch(const metal::Launch& launch, Slots slots) {
  const void* kernel = kernel_named(launch.kernel.c_str());
  if (!kernel) {
    std::printf("no kernel %s\n", launch.kernel.c_str());
    std::exit(2);
  }
  const metal::Size grid = launch.threadgroups, threads = launch.threads;
  void* arguments[] = {&slots};
  check(cudaLaunchKernel(kernel, {grid.x, grid.y, grid.z}, {threads.x, threads.y, threads.z}, arguments, 0,
                         nullptr));
  check(cudaDeviceSynchronize());
}

std::vector<double> doubles(const Buffer& buffer) {
  const std::vector<uint8_t> bytes = buffer.content();
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return {numbers.begin(), numbers.end()};
}

Answer run(const Problem& given) {
  const Case& call = given.call;
  const int N = call.batch * call.heads;
  const int64_t* strides = given.mask_strides;
  const AttentionArguments values = {strides[0],  strides[1],  strides[2],
                                     strides[3],  call.L,      call.S,
                                     call.E,      call.heads,  call.heads / call.kv_heads,
                                     given.scale, call.causal, call.mask_kind};
  const Buffer query(given.query), key(given.key), value(given.value);
  const Buffer mask(given.mask.empty() ? std::vector<uint8_t>(1) : given.mask);
  const Buffer arguments(std::vector{values});
  const Output output(size_t(N) * call.L * call.E), lse(size_t(N) * call.L);
  Slots slots;
  slots.at[kQuerySlot] = query.data;
  slots.at[kKeySlot] = key.data;
  slots.at[kValueSlot] = value.data;
  slots.at[kMaskSlot] = mask.data;
  slots.at[kOutputSlot] = output.data;
  slots.at[kLseSlot] = lse.data;
  slots.at[kArgumentsSlot] = arguments.data;
  dispatch(metal::readable_attention(N, call.L), slots);
  return {doubles(output), doubles(lse)};
}

// The tolerance of all tests: a correctly rounded kernel on normal inputs, or twice the error of dense
// attention in float.
double allowed(double dense) { return std::max(2e-6, 2 * dense); }

bool is_right(const Case& call) {
  const Problem given = problem(call);
  const Answer expected = attention<double>(given), dense = attention<float>(given), found = run(given);
  const double output = largest_error(found.output, expected.output);
  const double lse = largest_error(found.lse, expected.lse);
  const double output_limit = allowed(largest_error(dense.output, expected.output));
  const double lse_limit = allowed(largest_error(dense.lse, expected.lse));
  const bool right = output <= output_limit && lse <= lse_limit;
  std::printf("%-38s O %8.2e of %8.2e  LSE %8.2e of %8.2e  %s\n", call.name.c_str(), output, output_limit,
              lse, lse_limit, right ? "right" : "WRONG");
  return right;
}

}  // namespace

int main(int count, char** words) {
  std::string prefix;
  for (int i = 1; i < count; i++) {
    if (std::string(words[i]) == "--unset")
      leave_unset = true;
    else
      prefix = words[i];
  }
  int run = 0, wrong = 0;
  for (const Case& call : cases()) {
    if (call.name.rfind(prefix, 0) != 0) continue;
    run++;
    wrong += !is_right(call);
    std::fflush(stdout);
  }
  std::printf("%d cases, %d wrong\n", run, wrong);
  return wrong != 0 || run == 0;
}

}  // namespace metal_on_cuda

int main(int count, char** words) { return metal_on_cuda::main(count, words); }
