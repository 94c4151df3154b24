// The path of a quantized product by instruction set, element type and number of rows. docs/quantized.md
// describes the paths and cites what each gained.
//
// A path is a driver (GEMV, skinny or blocked) with the arithmetic that its codec decodes weights for. Each
// path has its own order of summation, so the last bits of a row may change where the path does.
#pragma once

namespace tiny_llm_ext::cpu {

enum class Path {
  gemv_fma,   // float32 in vectors
  gemv_bf16,  // pairs of bfloat16 in vectors
  gemv_int8,  // x as int8 digits, VNNI
  skinny_fma,
  skinny_bf16,
  skinny_amx_int8,     // x as int8 digits in one tile
  skinny_amx_int8_x2,  // x as int8 digits in two tiles
  skinny_amx_bf16,     // x of float32 and float16 as split bf16
  blocked_fma,
  blocked_bf16,      // weights rounded to bfloat16
  blocked_amx_bf16,  // likewise
};

struct RowRange {
  int max_rows;  // 0: the range is empty
  Path path;
};

struct PathTable {
  const char* label;
  RowRange streamed[4];  // each task has all rows, and the weights are read once
  Path blocked;          // for more rows; a skinny path here runs on pieces of max_streamed_rows() rows

  consteval int max_streamed_rows() const {
    int rows = 0;
    for (RowRange range : streamed)
      if (range.max_rows > 0) rows = range.max_rows;
    return rows;
  }

  // The path of batch-invariant products, on pieces of max_streamed_rows() rows: the skinny one with the most
  // rows, whose sums have one order for any number of them.
  consteval Path invariant() const {
    Path path = blocked;
    for (RowRange range : streamed)
      if (range.max_rows > 0) path = range.path;
    return path;
  }
};

constexpr PathTable kPaths = {
    "other instruction sets", {{2, Path::gemv_fma}, {8, Path::skinny_fma}}, Path::blocked_fma};
constexpr PathTable kAvx512Paths = {
    "AVX-512", {{2, Path::gemv_fma}, {16, Path::skinny_fma}}, Path::blocked_fma};
constexpr PathTable kAvx512Bf16Paths = {
    "AVX-512 BF16, bfloat16", {{2, Path::gemv_bf16}, {16, Path::skinny_bf16}}, Path::blocked_bf16};
constexpr PathTable kAmxBf16Paths = {
    "AMX, bfloat16",
    {{2, Path::gemv_int8}, {5, Path::skinny_amx_int8}, {32, Path::skinny_amx_bf16}},
    Path::blocked_amx_bf16};
constexpr PathTable kAmxF16Paths = {
    "AMX, float16",
    {{2, Path::gemv_int8}, {5, Path::skinny_amx_int8}, {32, Path::skinny_amx_bf16}},
    Path::skinny_amx_bf16};
constexpr PathTable kAmxF32Paths = {"AMX, float32",
                                    {{2, Path::gemv_int8},
                                     {5, Path::skinny_amx_int8},
                                     {8, Path::skinny_amx_int8_x2},
                                     {32, Path::skinny_amx_bf16}},
                                    Path::skinny_amx_bf16};

}  // namespace tiny_llm_ext::cpu
