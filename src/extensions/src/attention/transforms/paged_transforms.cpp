// The gradient and vmap of attention over pages.
#include "attention/inputs.h"
#include "attention/transforms/mapping.h"
#include "attention/transforms/paged_gradient.h"
#include "core/checks.h"

namespace tiny_llm_ext {
namespace {

constexpr int kTable = 3, kContexts = 4, kFirstOptional = 5;

std::string paged_input_name(int n, const PagedParams& params) {
  if (n == kTable) return "block_table";
  if (n == kContexts) return "context_lens";
  return n > kContexts ? input_name(n - 2, params) : std::array{"query", "key_pages", "value_pages"}[n];
}

mx::array join_first_axes(const mx::array& x, mx::Stream stream) { return mx::flatten(x, 0, 1, stream); }

// The inputs of PagedAttention for all entries of the mapped axis: a batch axis more of a query by heads; the
// rows of a flat query, of the table and of the contexts one entry after another. Pages that are mapped, or
// with `pages_of_each`, also follow each other, so that the ids of an entry count from its first page.
std::vector<mx::array> map_paged_inputs(const std::vector<mx::array>& inputs, const std::vector<int>& axes,
                                        int size, bool pages_of_each, const PagedParams& params,
                                        mx::Stream stream) {
  const auto of_each = [&](int n) { return mapped_or_repeated(inputs[n], axes[n], size, stream); };
  const bool flat = params.num_heads > 0;
  std::vector<mx::array> mapped = {flat ? join_first_axes(of_each(0), stream) : of_each(0)};
  mx::array table = mx::astype(of_each(kTable), mx::int64, stream);
  if (pages_of_each || axes[1] >= 0 || axes[2] >= 0) {
    const mx::array keys = of_each(1);
    const int pages = keys.shape(1);
    mapped.insert(mapped.end(), {join_first_axes(keys, stream), join_first_axes(of_each(2), stream)});
    const mx::array entry = mx::reshape(mx::arange(0, size, 1, mx::int64, stream), {size, 1, 1}, stream);
    const mx::array first = mx::multiply(entry, mx::array(int64_t{pages}), stream);
    // The id of no page stays one: a negative id as it is, any other after the pages of all entries.
    const mx::array is_page = mx::less(table, mx::array(pages), stream);
    const mx::array moved =
        mx::add(table, mx::where(is_page, first, mx::array(int64_t{size - 1} * pages), stream), stream);
    table = mx::where(mx::less(table, mx::array(0), stream), table, moved, stream);
  } else {
    mapped.insert(mapped.end(), {inputs[1], inputs[2]});
  }
  mapped.push_back(join_first_axes(table, stream));
  mapped.push_back(join_first_axes(of_each(kContexts), stream));
  const int batch_axes = static_cast<int>(mapped[0].ndim()) - 3;
  for (const mx::array& x : map_optional_inputs(inputs, axes, kFirstOptional, batch_axes, params, stream))
    mapped.push_back(x);
  return mapped;
}

mx::array split_entries(const mx::array& x, int size, mx::Stream stream) {
  return mx::unflatten(x, 0, {size, x.shape(0) / size}, stream);
}

}  // namespace

std::vector<mx::array> PagedAttention::vjp(const std::vector<mx::array>& primals,
                                           const std::vector<mx::array>& cotangents,
                                           const std::vector<int>& argnums,
                                           const std::vector<mx::array>& outputs) {
  const auto name_of = [&](int n) { return paged_input_name(n, params_); };
  const PagedGradientParams params = {wanted_gradients(kPagedFunction, argnums, name_of), params_};
  const auto computed = gradients_of<PagedAttentionGradient>(
      with_cotangents(primals, outputs, cotangents, stream()), params, stream());
  return select_gradients(params, computed, primals, argnums, stream());
}

std::vector<mx::array> PagedAttention::jvp(const std::vector<mx::array>&, const std::vector<mx::array>&,
                                           const std::vector<int>&) {
  refuse_forward_mode(kPagedFunction);
}

std::pair<std::vector<mx::array>, std::vector<int>> PagedAttention::vmap(const std::vector<mx::array>& inputs,
                                                                         const std::vector<int>& axes) {
  const int size = mapped_size(inputs, axes);
  const std::vector<mx::array> mapped = map_paged_inputs(inputs, axes, size, false, params_, stream());
  auto shapes = output_shapes(mapped);
  std::vector<mx::array> outputs =
      mx::array::make_arrays(std::move(shapes), {mapped[0].dtype(), mx::float32},
                             std::make_shared<PagedAttention>(stream(), params_), mapped);
  if (params_.num_heads > 0)
    for (mx::array& output : outputs) output = split_entries(output, size, stream());
  return {outputs, {0, 0}};
}

// Each entry has gradients of its own, also for inputs that are not mapped.
std::pair<std::vector<mx::array>, std::vector<int>> PagedAttentionGradient::vmap(
    const std::vector<mx::array>& inputs, const std::vector<int>& axes) {
  const int size = mapped_size(inputs, axes);
  const bool flat = params_.attention.num_heads > 0;
  std::vector<mx::array> mapped =
      map_paged_inputs(inputs, axes, size, params_.key_value, params_.attention, stream());
  for (size_t i = inputs.size() - kCotangents; i < inputs.size(); i++) {
    const mx::array cotangent = mapped_or_repeated(inputs[i], axes[i], size, stream());
    mapped.push_back(flat ? join_first_axes(cotangent, stream()) : cotangent);
  }
  std::vector<mx::array> gradients = gradients_of<PagedAttentionGradient>(mapped, params_, stream());
  // Those of rows and pages that follow each other.
  const size_t first_key = params_.query ? 1 : 0;
  if (params_.query && flat) gradients[0] = split_entries(gradients[0], size, stream());
  if (params_.key_value)
    for (size_t i : {first_key, first_key + 1}) gradients[i] = split_entries(gradients[i], size, stream());
  return {gradients, std::vector<int>(gradients.size(), 0)};
}

}  // namespace tiny_llm_ext
