// The vector operations of one instruction set against scalar double arithmetic.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "cpu/interface/isa.h"
#include "half.h"
#include "vec_probe.h"

namespace tiny_llm_ext::tests {
namespace {

using Floats = std::vector<float>;

bool same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }
bool same_or_nan(float a, float b) { return (std::isnan(a) && std::isnan(b)) || same(a, b); }

Floats random_floats(int count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats out(count);
  for (float& x : out) x = normal(generator);
  return out;
}

// Calls use(x) with whole vectors that together hold all of `values`.
template <class Use>
void in_vectors(const Floats& values, int lanes, Use use) {
  for (size_t begin = 0; begin < values.size(); begin += lanes) {
    Floats x(lanes, 1.0f);
    for (int i = 0; i < lanes && begin + i < values.size(); ++i) x[i] = values[begin + i];
    use(x);
  }
}

void test_exp2(const VecProbe& vec, int samples) {
  Floats values;
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> wide(-126, 127), near_zero(-1, 1);
  for (int i = 0; i < samples; ++i) values.push_back(i % 2 ? wide(generator) : near_zero(generator));
  for (int n = -126; n <= 127; ++n) {
    for (float x : {n - 0.5f, float(n), n + 0.5f}) {
      for (float y : {std::nextafter(x, -200.0f), x, std::nextafter(x, 200.0f)}) {
        if (y >= -126 && y <= 127) values.push_back(y);
      }
    }
  }
  for (float x = 1; x > 1e-40f; x /= 3) values.push_back(x), values.push_back(-x);
  double worst = 0;
  float where = 0;
  bool exact_at_integers = true;
  in_vectors(values, vec.lanes, [&](const Floats& x) {
    Floats out(vec.lanes);
    vec.exp2(x.data(), out.data());
    for (int i = 0; i < vec.lanes; ++i) {
      const double expected = std::exp2(double(x[i])), error = std::fabs(out[i] - expected) / expected;
      if (!(error <= worst)) worst = error, where = x[i];
      if (x[i] == std::nearbyint(x[i]) && out[i] != expected) exact_at_integers = false;
    }
  });
  check(worst <= 2e-7,
        "exp2: relative error " + std::to_string(worst * 1e7) + "e-7 at " + std::to_string(where));
  check(exact_at_integers, "exp2: exact at integers");

  const float smallest = 0x1p-126f;
  const Floats below = {-126.3f, -126.7f, -127.0f, -127.5f, -130.0f, -149.0f};
  in_vectors(below, vec.lanes, [&](const Floats& x) {
    Floats out(vec.lanes);
    vec.exp2(x.data(), out.data());
    for (int i = 0; i < vec.lanes; ++i) {
      if (x[i] < 0)
        check(out[i] >= 0 && out[i] < smallest, "exp2: subnormal or zero at " + std::to_string(x[i]));
    }
  });
  const Floats zeros = {-INFINITY, -151.0f, -1000.0f, -1e10f, -3e38f};
  in_vectors(zeros, vec.lanes, [&](const Floats& x) {
    Floats out(vec.lanes);
    vec.exp2(x.data(), out.data());
    for (int i = 0; i < vec.lanes; ++i) {
      if (x[i] < 0) check(same(out[i], 0.0f), "exp2: zero at " + std::to_string(x[i]));
    }
  });
  const Floats specials = {
      INFINITY, NAN,    -NAN, std::bit_cast<float>(0x7f800001u), std::bit_cast<float>(0xffc12345u),
      128.0f,   1000.0f};
  in_vectors(specials, vec.lanes, [&](const Floats& x) {
    Floats out(vec.lanes);
    vec.exp2(x.data(), out.data());
    for (int i = 0; i < vec.lanes; ++i) {
      const float expected = std::isnan(x[i]) ? NAN : x[i] == 1.0f ? 2.0f : INFINITY;
      check(same_or_nan(out[i], expected), "exp2: special value " + std::to_string(x[i]));
    }
  });
}

void test_halves(const HalfFormat& format, const std::string& name, int lanes,
                 void (*load)(const uint16_t*, float*), void (*store)(const float*, uint16_t*), int samples) {
  Floats out(lanes);
  int wrong = 0;
  for (int begin = 0; begin < 65536; begin += lanes) {
    std::vector<uint16_t> bits(lanes);
    for (int i = 0; i < lanes; ++i) bits[i] = static_cast<uint16_t>(begin + i);
    load(bits.data(), out.data());
    for (int i = 0; i < lanes; ++i) wrong += !same_or_nan(out[i], static_cast<float>(format.decode(bits[i])));
  }
  check(wrong == 0, name + ": load, patterns wrong: " + std::to_string(wrong));

  // All representable numbers, the midpoints between neighbours, and the floats next to those.
  Floats values;
  for (int bits = 0; bits < format.infinity; ++bits) {
    const double low = format.decode(static_cast<uint16_t>(bits));
    const double step = bits + 1 == format.infinity ? low - format.decode(static_cast<uint16_t>(bits - 1))
                                                    : format.decode(static_cast<uint16_t>(bits + 1)) - low;
    const float middle = static_cast<float>(low + step / 2);
    for (float x :
         {static_cast<float>(low), std::nextafter(middle, 0.0f), middle, std::nextafter(middle, INFINITY)}) {
      values.push_back(bits % 2 ? x : -x);
    }
  }
  std::mt19937 generator(2);
  for (int i = 0; i < samples; ++i)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(generator())));
  values.insert(values.end(),
                {INFINITY, -INFINITY, NAN, std::bit_cast<float>(0x7f800001u),
                 std::bit_cast<float>(0xff800001u), std::bit_cast<float>(0x7fffffffu), 3e38f, 1e-45f});
  wrong = 0;
  float example = 0;
  in_vectors(values, lanes, [&](const Floats& x) {
    std::vector<uint16_t> got(lanes);
    store(x.data(), got.data());
    for (int i = 0; i < lanes; ++i) {
      const bool right = std::isnan(x[i]) ? std::isnan(format.decode(got[i])) : got[i] == format.encode(x[i]);
      if (!right) ++wrong, example = x[i];
    }
  });
  check(wrong == 0, name + ": store, values wrong: " + std::to_string(wrong) + ", the last one " +
                        std::to_string(example));
}

void test_arithmetic(const VecProbe& vec) {
  const int lanes = vec.lanes;
  const Floats a = random_floats(lanes, 3), b = random_floats(lanes, 4), c = random_floats(lanes, 5);
  Floats out(lanes);
  vec.fma(a.data(), b.data(), c.data(), out.data());
  for (int i = 0; i < lanes; ++i) {
    const double bound = 0x1p-23 * (std::fabs(double(a[i]) * b[i]) + std::fabs(c[i]));
    check(std::fabs(out[i] - (double(a[i]) * b[i] + c[i])) <= bound, "fma");
  }
  vec.div(a.data(), b.data(), out.data());
  for (int i = 0; i < lanes; ++i) check(same(out[i], a[i] / b[i]), "div");

  for (int hot = 0; hot < lanes; ++hot) {  // one lane differs: no lane is forgotten, none is mixed up
    Floats x(lanes, 1.0f), y(lanes, 2.0f), yes = random_floats(lanes, 6), no = random_floats(lanes, 7);
    const auto expect_select = [&](auto select, bool hot_lane, bool others, const std::string& what) {
      select(x.data(), y.data(), yes.data(), no.data(), out.data());
      for (int i = 0; i < lanes; ++i)
        check(same(out[i], (i == hot ? hot_lane : others) ? yes[i] : no[i]), what);
    };
    x[hot] = 3;
    expect_select(vec.select_less_equal, false, true, "select: 3 <= 2");
    check(!vec.all_between(x.data(), y.data(), y.data()), "all: low above in one lane");
    check(!vec.all_between(y.data(), y.data(), x.data()), "all: high below");
    x[hot] = 2;
    expect_select(vec.select_less_equal, true, true, "select: 2 <= 2");
    expect_select(vec.select_equal, true, false, "select: 2 == 2");
    check(vec.all_between(x.data(), y.data(), y.data()), "all: every lane inside");
    x[hot] = NAN;
    expect_select(vec.select_less_equal, false, true, "select: NaN <= 2");
    expect_select(vec.select_equal, false, false, "select: NaN == 2");
    check(!vec.all_between(x.data(), y.data(), y.data()), "all: NaN in one lane");
    yes[hot] = NAN, no[hot] = -INFINITY;
    x[hot] = y[hot] = -INFINITY;
    vec.select_equal(x.data(), y.data(), no.data(), yes.data(), out.data());
    check(same(out[hot], -INFINITY), "select drops the NaN of the other side");

    x.assign(lanes, 1.0f), y.assign(lanes, 2.0f);
    x[hot] = 5;
    vec.max(x.data(), y.data(), out.data());
    for (int i = 0; i < lanes; ++i) check(out[i] == (i == hot ? 5 : 2), "max");
    vec.min(x.data(), y.data(), out.data());
    for (int i = 0; i < lanes; ++i) check(out[i] == (i == hot ? 2 : 1), "min");
    y[hot] = NAN;
    vec.max(x.data(), y.data(), out.data());
    check(std::isnan(out[hot]), "max: NaN in the second operand");
    vec.min(x.data(), y.data(), out.data());
    check(std::isnan(out[hot]), "min: NaN in the second operand");
  }
}

// Memory that is written as integers between two reads as floats: a compiler must read it twice.
void test_memory_of_other_types(const VecProbe& vec) {
  Floats before(vec.lanes), after(vec.lanes);
  for (int G = 0; G <= vec.lanes; G = G == 0 ? 1 : 2 * G) {
    std::vector<uint32_t> words(vec.lanes);
    std::iota(words.begin(), words.end(), 0x3f800000);
    vec.reread(G, words.data(), before.data(), after.data());
    for (int i = 0; i < vec.lanes; ++i) {
      const uint32_t word = 0x3f800000 + (G == 0 ? i : i % G);
      check(std::bit_cast<uint32_t>(before[i]) == word, "read before it is written");
      check(std::bit_cast<uint32_t>(after[i]) == word + 1, "read after it is written");
    }
  }
  if (!vec.pairs) return;
  uint16_t pair[] = {0x3f80, 0x4000}, other[] = {0x4080, 0x4100};
  vec.pairs->reread(pair, other, before.data(), after.data());
  check(before[0] == 3 && after[0] == 12, "pairs read before and after they are written");
}

void test_lane_movement(const VecProbe& vec) {
  const int lanes = vec.lanes;
  Floats out(lanes);
  for (int G = 1; G <= lanes; G *= 2) {
    const Floats source = random_floats(G, 8);  // exactly G long: the sanitizer sees a wider read
    vec.broadcast(G, source.data(), out.data());
    for (int i = 0; i < lanes; ++i)
      check(same(out[i], source[i % G]), "broadcast<" + std::to_string(G) + ">");

    Floats x(lanes);
    for (int i = 0; i < lanes; ++i) x[i] = static_cast<float>(1 << i);  // sums of different groups all differ
    vec.sum_neighbours(G, x.data(), out.data());
    for (int i = 0; i < lanes; ++i) {
      const float expected = static_cast<float>(((1 << G) - 1) << i / G * G);
      check(out[i] == expected, "sum_neighbours<" + std::to_string(G) + ">");
    }
  }
  Floats x = random_floats(lanes, 9);
  x[0] = std::bit_cast<float>(0xffc12345u);   // bits are moved, whatever they stand for
  for (int step = 0; step < lanes; ++step) {  // 0: one lane into all of them
    for (int first = 0; first < lanes; ++first) {
      std::vector<int32_t> from(lanes);
      for (int i = 0; i < lanes; ++i) from[i] = (first + step * i) % lanes;
      vec.permute(x.data(), from.data(), out.data());
      for (int i = 0; i < lanes; ++i) check(same(out[i], x[from[i]]), "permute");
    }
  }
  const int stride = lanes + 3;
  Floats vectors((lanes - 1) * stride + lanes);
  for (size_t i = 0; i < vectors.size(); ++i)
    vectors[i] = static_cast<float>(i * i % 10007);  // sums are exact
  vec.sum_lanes(vectors.data(), stride, out.data());
  for (int i = 0; i < lanes; ++i)
    check(out[i] == std::accumulate(&vectors[i * stride], &vectors[i * stride] + lanes, 0.0f), "sum_lanes");

  Floats square(lanes * lanes);
  for (int i = 0; i < lanes * lanes; ++i) square[i] = static_cast<float>(i);
  vec.transpose(square.data());
  for (int i = 0; i < lanes; ++i) {
    for (int j = 0; j < lanes; ++j)
      check(square[i * lanes + j] == static_cast<float>(j * lanes + i), "transpose");
  }
}

void test_unpacking(const VecProbe& vec) {
  const int lanes = vec.lanes;
  Floats out(lanes);
  for (int first = 0; first < 256; ++first) {
    std::vector<uint8_t> bytes(lanes);  // exactly as many as there are lanes, below half of that
    for (int i = 0; i < lanes; ++i) bytes[i] = static_cast<uint8_t>(first + 37 * i);
    vec.load_u8(bytes.data(), out.data());
    for (int i = 0; i < lanes; ++i) check(out[i] == bytes[i], "load_u8");
    bytes.resize(lanes / 2);
    bytes.shrink_to_fit();
    vec.load_u4(bytes.data(), out.data());
    for (int i = 0; i < lanes; ++i) check(out[i] == (bytes[i / 2] >> 4 * (i % 2) & 15), "load_u4");
  }
}

// Words whose numbers run through all values; every lane has its own.
std::vector<uint32_t> words_from(int first, int lanes) {
  std::vector<uint32_t> words(lanes);
  for (int i = 0; i < lanes; ++i) {
    for (int byte = 0; byte < 4; ++byte)
      words[i] |= static_cast<uint32_t>((first + 37 * i + 91 * byte) & 255) << 8 * byte;
  }
  return words;
}

void test_numbers_in_words(const VecProbe& vec) {
  const int lanes = vec.lanes;
  Floats out(lanes);
  for (int first = 0; first < 256; ++first) {
    const std::vector<uint32_t> words = words_from(first, lanes);
    for (int bits : {4, 8}) {
      for (int index = 0; index < 32 / bits; ++index) {
        vec.decode_quant(bits, index, words.data(), out.data());
        for (int i = 0; i < lanes; ++i) {
          const int field = static_cast<int>(words[i] >> bits * index & ((1u << bits) - 1));
          check(out[i] == field - (1 << (bits - 1)), "decode_quant<" + std::to_string(bits) + ">");
        }
      }
    }
  }
}

using Halves = std::vector<uint16_t>;

Halves random_halves(int count, unsigned seed) {
  Halves out;
  for (float x : random_floats(count, seed)) out.push_back(kBfloat16.encode(x));
  return out;
}

// Only the first `count` elements are read; zeros follow them.
void test_loading_pairs(const VecProbe& vec) {
  const int lanes = vec.lanes;
  Halves out(2 * lanes);
  for (int count = 0; count <= 2 * lanes; ++count) {
    const Halves source = random_halves(count, 10);
    vec.pairs->load_pairs(source.data(), count, out.data());
    for (int i = 0; i < 2 * lanes; ++i) check(out[i] == (i < count ? source[i] : 0), "load_pairs");
  }
  for (int count = 1; count <= lanes; ++count) {
    const Halves low = random_halves(count, 11), high = random_halves(count, 12);
    for (const uint16_t* second : {high.data(), static_cast<const uint16_t*>(nullptr)}) {
      vec.pairs->zip_pairs(low.data(), second, count, out.data());
      for (int i = 0; i < lanes; ++i) {
        check(out[2 * i] == (i < count ? low[i] : 0), "zip_pairs: low");
        check(out[2 * i + 1] == (i < count && second ? high[i] : 0), "zip_pairs: high");
      }
    }
  }
}

void test_rounding_and_multiplying_pairs(const VecProbe& vec) {
  const int lanes = vec.lanes;
  const Floats a = random_floats(lanes, 13), b = random_floats(lanes, 14);
  Halves out(2 * lanes);
  vec.pairs->make_pairs(a.data(), b.data(), out.data());
  for (int i = 0; i < lanes; ++i) {
    check(out[2 * i] == kBfloat16.encode(a[i]), "make_pairs: low");
    check(out[2 * i + 1] == kBfloat16.encode(b[i]), "make_pairs: high");
  }
  const Halves x = random_halves(2 * lanes, 15), y = random_halves(2 * lanes, 16);
  Floats sums(lanes);
  vec.pairs->dot_pairs(x.data(), y.data(), a.data(), sums.data());
  for (int i = 0; i < lanes; ++i) {
    double sum = a[i], size = std::fabs(sum);
    for (int j = 2 * i; j < 2 * i + 2; ++j) {
      sum += kBfloat16.decode(x[j]) * kBfloat16.decode(y[j]);
      size += std::fabs(kBfloat16.decode(x[j]) * kBfloat16.decode(y[j]));
    }
    check(std::fabs(sums[i] - sum) <= 0x1p-22 * size, "dot_pairs");
  }
}

void test_nibbles_to_pairs(const VecProbe& vec) {
  const int lanes = vec.lanes;
  for (int first = 0; first < 256; ++first) {
    const std::vector<uint32_t> words = words_from(first, lanes);
    Halves out(2 * lanes);
    for (const auto& [zero_point, step] : {std::pair{8, 1}, std::pair{0, 1}, std::pair{8, 16}}) {
      for (int index = 0; index < 4; ++index) {
        vec.pairs->look_up(zero_point, step, index, words.data(), out.data());
        for (int i = 0; i < 2 * lanes; ++i) {
          const int nibble = static_cast<int>(words[i / 2] >> (16 * (i % 2) + 4 * index) & 15);
          check(kBfloat16.decode(out[i]) == (nibble - zero_point) * step, "look_up");
        }
      }
    }
  }
}

int run(const std::string& isa, int samples) {
  try {
    cpu::kernels_named(isa);
  } catch (const std::invalid_argument&) {
    return kSkipped;
  }
  const VecProbe& vec = vec_probe();
  test_exp2(vec, samples);
  test_halves(kFloat16, "f16", vec.lanes, vec.load_f16, vec.store_f16, samples);
  test_halves(kBfloat16, "bf16", vec.lanes, vec.load_bf16, vec.store_bf16, samples);
  test_arithmetic(vec);
  test_unpacking(vec);
  test_numbers_in_words(vec);
  if (vec.pairs) {
    test_loading_pairs(vec);
    test_rounding_and_multiplying_pairs(vec);
    test_nibbles_to_pairs(vec);
  }
  test_lane_movement(vec);
  test_memory_of_other_types(vec);
  return finish("vec_test " + isa);
}

}  // namespace
}  // namespace tiny_llm_ext::tests

// vec_test ISA SAMPLES
int main(int, char** argv) { return tiny_llm_ext::tests::run(argv[1], std::stoi(argv[2])); }
