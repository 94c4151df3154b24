// CPU evaluation of decoder blocks over pages.
#include "block/packed_block.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "core/bytes.h"
#include "core/dtype.h"
#include "cpu/attention/cached/store_tokens.h"
#include "cpu/attention/forward_pass.h"
#include "cpu/attention/layout/mask_and_pages.h"
#include "cpu/block/block_operations.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/dispatch.h"
#include "cpu/runtime/region_log.h"
#include "cpu/runtime/rows.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext {
namespace {

constexpr double kNanosecondsPerNewElement = 0.3;  // of rotation and copy

// The pages of keys or of values, (P, Hkv, page, E).
struct Pages {
  std::byte* data;
  int64_t count;
};

// Appends the rows of a step to the pages and attends.
class AppendAndAttend {
 public:
  AppendAndAttend(const DecoderParts& parts, const PackedStep& step, Element element,
                  const cpu::RowReader& cos, const cpu::RowReader& sin, const Pages& keys,
                  const Pages& values, const cpu::Kernels& kernels, int threads)
      : parts_(parts),
        step_(step),
        element_(element),
        cos_(cos),
        sin_(sin),
        keys_(keys),
        values_(values),
        kernels_(kernels),
        threads_(threads),
        E_(parts.head_size),
        row_bytes_(E_ * size_of(element)) {}

  // Query, key and value (T, H * E) to `attended` (T, Hq * E).
  void run(const std::vector<cpu::BlockRows>& heads, std::byte* attended) {
    Hq_ = heads[0].stride / E_;
    Hkv_ = heads[1].stride / E_;
    append(heads[0].data, heads[1].data, heads[2].data);
    attend(heads[0].data, attended);
  }

 private:
  // Rotates queries in place, and keys into their slots.
  void append(std::byte* query, const std::byte* key, const std::byte* value) const {
    const cpu::PageSlots keys = slots_of(keys_), values = slots_of(values_);
    const auto rotate = kernels_.rows[static_cast<int>(element_)].rope;
    const double cost = kNanosecondsPerNewElement * static_cast<double>((Hq_ + 2 * Hkv_) * E_);
    const cpu::Operation operation("append");
    cpu::parallel_rows(step_.rows(), cost, threads_, [&](int64_t begin, int64_t end) {
      auto* scratch = static_cast<std::byte*>(cpu::thread_scratch(cos_.row_bytes() + sin_.row_bytes()));
      for (int64_t t = begin; t < end; t++) {
        const int64_t position = step_.positions()[t], slot = step_.slots()[t];
        cpu::RopeTask task = {};
        task.cos = reinterpret_cast<const float*>(cos_.row(position, scratch));
        task.sin = reinterpret_cast<const float*>(sin_.row(position, scratch + cos_.row_bytes()));
        task.half = E_ / 2;
        task.traditional = parts_.traditional;
        task.x_head_stride = task.y_head_stride = E_;
        task.heads = Hq_;
        task.x = task.y = query + t * Hq_ * row_bytes_;
        rotate(task);
        task.heads = Hkv_;
        task.x = key + t * Hkv_ * row_bytes_;
        task.y = keys.at(slot, 0);
        task.y_head_stride = step_.page_size() * E_;
        rotate(task);
        for (int64_t h = 0; h < Hkv_; h++)
          std::memcpy(values.at(slot, h), value + (t * Hkv_ + h) * row_bytes_, row_bytes_);
      }
    });
  }

  cpu::PageSlots slots_of(const Pages& pages) const {
    const int64_t page = step_.page_size();
    return {pages.data, page, Hkv_ * page * row_bytes_, page * row_bytes_, row_bytes_};
  }

  void attend(std::byte* query, std::byte* attended) const {
    const int64_t T = step_.rows(), itemsize = size_of(element_), page = step_.page_size();
    Problem problem = {};
    problem.B = 1;
    problem.Hq = Hq_;
    problem.Hkv = Hkv_;
    problem.L = T;
    problem.S = step_.block_table().shape(1) * page;
    problem.E = problem.V = E_;
    problem.dtype = element_;
    problem.left = kUnbounded;
    problem.scale = 1 / std::sqrt(static_cast<float>(E_));
    problem.packed = problem.paged = problem.lengths = true;
    problem.sequences = step_.sequences();
    problem.backend = Backend::cpu;
    problem.kernels = &kernels_;
    problem.threads = {threads_, threads_};
    const mx::Shape one = {1};
    const mx::Strides of_rows = {0, E_, Hq_ * E_}, of_pages = {Hkv_ * page * E_, page * E_, E_};
    const mx::allocator::Data lse = cpu::allocate(bytes_of({Hq_, T, int64_t{sizeof(float)}}));
    const cpu::PageTables pages(step_.block_table(), keys_.count, page);
    cpu::run_forward({one,
                      {query, itemsize, one, of_rows},
                      {keys_.data, itemsize, one, of_pages},
                      {values_.data, itemsize, one, of_pages},
                      {attended, itemsize, one, of_rows},
                      {static_cast<std::byte*>(lse.buffer().raw_ptr()), sizeof(float), one, {0, T, 1}}},
                     problem, &pages);
  }

  const DecoderParts& parts_;
  const PackedStep& step_;
  const Element element_;
  const cpu::RowReader &cos_, &sin_;
  const Pages keys_, values_;
  const cpu::Kernels& kernels_;
  const int threads_;
  const int64_t E_, row_bytes_;
  int64_t Hq_ = 0, Hkv_ = 0;
};

// A block with what it reads and writes; made before the step runs.
struct Block {
  std::shared_ptr<const DecoderParts> parts;
  cpu::RowReader cos, sin;
  Pages keys, values;
};

}  // namespace

void PackedDecoderBlocks::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  for (size_t i = 1; i < inputs.size(); i += 2)
    check_pages(inputs[i], inputs[i + 1], throws_runtime_error(name()));
  cpu::allocate_for(outputs[0]);
  for (size_t i = 1; i < inputs.size(); i++) outputs[i].copy_shared_buffer(inputs[i]);
  if (step_->rows() == 0) return;
  const mx::array& x = inputs[0];
  const auto pages_of = [](mx::array& pages) { return Pages{pages.data<std::byte>(), pages.shape(0)}; };
  std::vector<Block> blocks;
  for (size_t i = 0; i < blocks_.size(); i++) {
    const auto& parts = blocks_[i];
    blocks.push_back({parts, cpu::RowReader(parts->cos), cpu::RowReader(parts->sin),
                      pages_of(outputs[2 * i + 1]), pages_of(outputs[2 * i + 2])});
  }
  cpu::enqueue(stream(), [blocks = std::move(blocks), step = step_, element = element_of(x.dtype()),
                          reader = cpu::RowReader(x), width = x.shape(2), result = cpu::memory_of(outputs[0]),
                          kernels = &kernels_, threads = threads_for(step_->rows(), x.dtype())] {
    try {
      std::optional<cpu::RowMatrix> rows;
      rows.emplace(reader, step->rows(), size_of(element), threads);
      for (const Block& block : blocks) {
        AppendAndAttend attention(*block.parts, *step, element, block.cos, block.sin, block.keys,
                                  block.values, *kernels, threads);
        cpu::BlockOperations(*block.parts, step->rows(), element, result.data, *kernels, threads)
            .run(*rows, [&](const std::vector<cpu::BlockRows>& heads, std::byte* attended) {
              attention.run(heads, attended);
            });
        // The next block reads the result in place: its last product, which alone writes it, no longer does.
        rows.emplace(result.data, width, size_of(element));
      }
    } catch (...) {
      cpu::fill_with_nan(result);  // the slots of the step may be written
      throw;
    }
  });
}

}  // namespace tiny_llm_ext
