// The operation `rope`: rotary embedding. It is linear in x, and its transpose is the inverse rotation.
#include "core/checks.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kRope = "rope";

void check_table(const char* function, const mx::array& x, const mx::array& cos, const mx::array& sin) {
  for (auto [argument, table] : {std::pair{"cos", &cos}, std::pair{"sin", &sin}}) {
    if (table->dtype() != mx::float32) reject(function, argument, to_text(table->dtype()), "float32");
    if (table->ndim() != 2 || 2 * int64_t{table->shape(1)} != x.shape(3)) {
      reject(function, argument, to_text(table->shape()), "(P, D / 2) with D of x " + to_text(x.shape()));
    }
  }
  if (sin.shape() != cos.shape()) {
    reject(function, "sin", to_text(sin.shape()), to_text(cos.shape()) + ", the shape of cos");
  }
}

void check_offset(const char* function, int64_t offset, int64_t length, int64_t positions) {
  if (offset < 0 || offset > positions - length) {
    reject(function, "offset", std::to_string(offset) + " for " + std::to_string(length) + " tokens",
           "all of them at positions 0.." + std::to_string(positions - 1) + " of cos");
  }
}

void check_offsets(const char* function, const Offsets& offset, const mx::array& x, const mx::array& cos) {
  const int64_t N = x.shape(0), length = x.shape(1), positions = cos.shape(0);
  if (auto number = std::get_if<int64_t>(&offset)) {
    check_offset(function, *number, length, positions);
  } else if (auto numbers = std::get_if<std::vector<int64_t>>(&offset)) {
    if (static_cast<int64_t>(numbers->size()) != N) {
      reject(function, "offset", std::to_string(numbers->size()) + " numbers",
             "one for each of " + std::to_string(N) + " rows of x");
    }
    for (int64_t number : *numbers) check_offset(function, number, length, positions);
  } else {
    const mx::array& array = std::get<mx::array>(offset);
    if (length > positions) check_offset(function, 0, length, positions);  // with any offset
    if (array.dtype() != mx::int32 && array.dtype() != mx::int64)
      reject(function, "offset", to_text(array.dtype()), "int32 or int64");
    if (array.ndim() > 1 || (array.ndim() == 1 && array.shape(0) != N))
      reject(function, "offset", to_text(array.shape()), "() or (" + std::to_string(N) + ",)");
    if (array.is_available()) read_offsets(array, x, cos, throws_argument_error(function));
  }
}

mx::Shape output_shape(const mx::array& x, const RopeParams& params) {
  mx::Shape shape = x.shape();
  if (params.heads_first) std::swap(shape[1], shape[2]);
  return shape;
}

mx::array rotated(std::vector<mx::array> inputs, RopeParams params, mx::Stream stream) {
  mx::Shape shape = output_shape(inputs[0], params);
  mx::Dtype dtype = inputs[0].dtype();
  return mx::array(std::move(shape), dtype, std::make_shared<Rope>(stream, std::move(params)),
                   std::move(inputs));
}

void only_along_x(const char* transform, bool only_x) {
  if (!only_x) throw NotImplemented(std::string(kRope) + ": " + transform + " is supported along x only");
}

}  // namespace

void check_rotation(const char* function, const mx::array& x, const mx::array& cos, const mx::array& sin,
                    const Offsets& offset) {
  check_table(function, x, cos, sin);
  check_offsets(function, offset, x, cos);
}

int64_t offset_of(const TokenOffsets& offsets, int64_t row) {
  auto number = std::get_if<int64_t>(&offsets);
  return number ? *number : std::get<std::vector<int64_t>>(offsets)[row];
}

std::vector<int64_t> read_offsets(const mx::array& offset, const mx::array& x, const mx::array& cos,
                                  const ReportError& report) {
  const int64_t largest = int64_t{cos.shape(0)} - x.shape(1);
  const int64_t stride = offset.ndim() == 0 ? 0 : offset.strides(0);
  std::vector<int64_t> offsets;
  for (int64_t row = 0; row < x.shape(0); row++) {
    const int64_t place = row * stride;
    const int64_t number =
        offset.dtype() == mx::int64 ? offset.data<int64_t>()[place] : offset.data<int32_t>()[place];
    if (number < 0 || number > largest) {
      report("offset", std::to_string(number) + " for row " + std::to_string(row),
             "0 to " + std::to_string(largest));
    }
    offsets.push_back(number);
  }
  return offsets;
}

mx::array rope(const mx::array& x, const mx::array& cos, const mx::array& sin, const Offsets& offset,
               bool traditional, bool heads_first, mx::StreamOrDevice stream) {
  check_floating(kRope, "x", x);
  if (x.ndim() != 4) reject(kRope, "x", to_text(x.shape()), "(N, S, H, D)");
  check_rotation(kRope, x, cos, sin, offset);
  RopeParams params = {{}, traditional, heads_first};
  std::vector<mx::array> inputs = {x, cos, sin};
  if (auto number = std::get_if<int64_t>(&offset)) params.offset = *number;
  if (auto numbers = std::get_if<std::vector<int64_t>>(&offset)) params.offset = *numbers;
  if (auto array = std::get_if<mx::array>(&offset)) inputs.push_back(*array);
  return rotated(std::move(inputs), std::move(params), cpu_stream(kRope, stream));
}

std::vector<mx::array> Rope::vjp(const std::vector<mx::array>& primals,
                                 const std::vector<mx::array>& cotangents, const std::vector<int>& argnums,
                                 const std::vector<mx::array>&) {
  only_along_x("the gradient", argnums == std::vector<int>{0});
  std::vector<mx::array> inputs = primals;
  inputs[0] = params_.heads_first ? mx::swapaxes(cotangents[0], 1, 2, stream()) : cotangents[0];
  RopeParams back = params_;
  back.inverse = !back.inverse;
  back.heads_first = false;
  return {rotated(std::move(inputs), std::move(back), stream())};
}

std::vector<mx::array> Rope::jvp(const std::vector<mx::array>& primals,
                                 const std::vector<mx::array>& tangents, const std::vector<int>& argnums) {
  only_along_x("jvp", argnums == std::vector<int>{0});
  std::vector<mx::array> inputs = primals;
  inputs[0] = tangents[0];
  return {rotated(std::move(inputs), params_, stream())};
}

// Mapped rows are more rows; each keeps its offset.
std::pair<std::vector<mx::array>, std::vector<int>> Rope::vmap(const std::vector<mx::array>& inputs,
                                                               const std::vector<int>& axes) {
  only_along_x("vmap", axes[1] < 0 && axes[2] < 0);
  const bool late = inputs.size() == 4;
  const int size = axes[0] >= 0 ? inputs[0].shape(axes[0]) : inputs[3].shape(axes[3]);
  mx::array x = mapped_axis_first(inputs[0], axes[0], size);
  const int N = x.shape(1);
  std::vector<mx::array> mapped = inputs;
  mapped[0] = mx::flatten(x, 0, 1, stream());
  RopeParams params = params_;
  if (late) {
    mx::array offset = mapped_axis_first(inputs[3], axes[3], size);
    if (offset.ndim() == 1) offset = mx::expand_dims(offset, 1, stream());
    mapped[3] = mx::flatten(mx::broadcast_to(offset, {size, N}, stream()), 0, 1, stream());
  } else if (auto numbers = std::get_if<std::vector<int64_t>>(&params_.offset)) {
    std::vector<int64_t> all;
    for (int i = 0; i < size; i++) all.insert(all.end(), numbers->begin(), numbers->end());
    params.offset = std::move(all);
  }
  mx::array result = rotated(std::move(mapped), std::move(params), stream());
  return {{mx::unflatten(result, 0, {size, N}, stream())}, {0}};
}

bool Rope::is_equivalent(const mx::Primitive& other) const {
  return params_ == static_cast<const Rope&>(other).params_;
}

// A shapeless compiled graph calls this for every new set of shapes.
std::vector<mx::Shape> Rope::output_shapes(const std::vector<mx::array>& inputs) {
  const Offsets offset = inputs.size() == 4
                             ? Offsets(inputs[3])
                             : std::visit([](const auto& own) -> Offsets { return own; }, params_.offset);
  check_rotation(kRope, inputs[0], inputs[1], inputs[2], offset);
  return {output_shape(inputs[0], params_)};
}

}  // namespace tiny_llm_ext
