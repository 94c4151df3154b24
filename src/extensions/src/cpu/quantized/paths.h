// Up to how many rows a product with quantized weights adds up a row in one order: what its documentation
// says.
#pragma once

namespace tiny_llm_ext::cpu {

struct RowOrders {
  const char* where;
  int last[3];  // of each order but the one of all further rows; 0: there is none
};

constexpr RowOrders kOrdersOnAmxOfBf16 = {"AMX, bfloat16", {2, 5, 32}};
constexpr RowOrders kOrdersOnAmx = {"AMX, other types", {2, 5, 8}};
constexpr RowOrders kOrdersOfAvx512 = {"AVX-512", {2, 16}};
constexpr RowOrders kOrdersElsewhere = {"elsewhere", {2, 8}};

}  // namespace tiny_llm_ext::cpu
