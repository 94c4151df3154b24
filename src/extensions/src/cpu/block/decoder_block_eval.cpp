// CPU evaluation of a decoder's block: its operations one after the other, on one trip to the worker thread.
#include <algorithm>

#include "core/dtype.h"
#include "cpu/attention/cached/append_and_attend.h"
#include "cpu/attention/cached/cache_dispatch.h"
#include "cpu/quantized/eval.h"
#include "cpu/rows/norm_rows.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/thread_pool.h"
#include "decoder_block.h"

namespace tiny_llm_ext {
namespace {

// Multiply-adds of a block that are worth one of the threads that are woken for it. Most of its operations
// alone are not worth that, and those of small models would never be shared.
constexpr double kWorkOfThread = 5e5;

struct Machine {
  const cpu::Kernels* kernels;
  int threads;
};

// Calculates y, which has memory.
void multiply(const mx::array& x, const PackedLayer& layer, const std::optional<mx::array>& residual,
              bool gated, Machine machine, cpu::Arrays y) {
  const QuantizedParams params = {layer.group_size, layer.bits, machine.kernels, machine.threads};
  cpu::multiply_quantized({x, layer.matrices, layer.norm, residual, gated, params}, y);
}

double multiply_adds(const DecoderParts& parts, int64_t rows) {
  double work = 0;
  for (const PackedLayer* layer : {&parts.heads, &parts.output, &parts.gate_up, &parts.down}) {
    for (const QuantizedMatrix& matrix : layer->matrices)
      work += static_cast<double>(matrix.scales.size()) * layer->group_size;
  }
  return work * rows;
}

void normalise(mx::array& heads, const std::optional<FirstNorm>& norm, Machine machine) {
  if (!norm || heads.size() == 0) return;
  cpu::NormRows rows(heads, norm->weight, static_cast<float>(norm->eps));
  rows.y = heads.data<std::byte>();
  rows.run(machine.kernels->rows[static_cast<int>(element_of(heads.dtype()))], machine.threads);
}

}  // namespace

void DecoderBlock::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  // Before the caches are placed: who is still asked about them then holds them.
  const cpu::CacheArrays caches = {kFirstCache, attention_.places(attention_inputs(inputs)),
                                   inputs[0].shape(1)};
  cpu::dispatch_on_caches(
      stream(), inputs, outputs, caches,
      [parts = parts_, params = attention_.params(), places = caches.places,
       machine = Machine{&kernels_, threads_}](const cpu::Arrays& arrays, cpu::Arrays& results,
                                               const std::vector<bool>& in_place) {
        const mx::array& x = arrays[0];
        const int B = x.shape(0), L = x.shape(1), size = parts->head_size;
        const double worth = multiply_adds(*parts, int64_t{B} * L) / kWorkOfThread;
        const int woken = static_cast<int>(std::min<double>(machine.threads, worth));
        std::optional<cpu::KeepSpinning> spinning;
        if (woken > 1) spinning.emplace(woken);
        const auto like_x = [&](mx::Shape shape) { return cpu::new_array(std::move(shape), x.dtype()); };

        cpu::Arrays heads;
        for (const QuantizedMatrix& matrix : parts->heads.matrices)
          heads.push_back(like_x({B, L, matrix.weight.shape(0) / size, size}));
        multiply(x, parts->heads, {}, false, machine, heads);
        normalise(heads[0], parts->query_norm, machine);
        normalise(heads[1], parts->key_norm, machine);

        heads.insert(heads.end(), {parts->cos, parts->sin});
        heads.insert(heads.end(), arrays.begin() + kFirstCache, arrays.end());
        cpu::Arrays grown = results;
        grown[0] = like_x({B, L, heads[0].shape(2) * size});
        cpu::append_and_attend(heads, grown, params, places, *machine.kernels, machine.threads, in_place);

        const mx::array attended = like_x(x.shape());
        multiply(grown[0], parts->output, x, false, machine, {attended});
        const mx::array hidden =
            like_x({B, L, parts->down.matrices[0].scales.shape(1) * parts->down.group_size});
        multiply(attended, parts->gate_up, {}, true, machine, {hidden});
        multiply(hidden, parts->down, attended, false, machine, {results[0]});
      });
}

}  // namespace tiny_llm_ext
