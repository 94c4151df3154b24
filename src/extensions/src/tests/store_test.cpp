// Tokens written to slots of pages, in memory with guard pages.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "cpu/attention/cached/store_tokens.h"
#include "guarded.h"

namespace tiny_llm_ext::tests {
namespace {

struct StoreCase {
  int64_t pages, page_size, heads, row_bytes;
  bool slots_outside;  // (pages, slots, heads, E), else (pages, heads, slots, E)
  Guard guard;

  // The first byte of a row.
  int64_t offset(int64_t page, int64_t slot, int64_t head) const {
    const int64_t within = slots_outside ? slot * heads + head : head * page_size + slot;
    return (page * page_size * heads + within) * row_bytes;
  }
  std::string name() const {
    return std::to_string(pages) + " pages of " + std::to_string(page_size) + ", " + std::to_string(heads) +
           " heads, " + std::to_string(row_bytes) + " bytes" + (slots_outside ? ", slots outside" : "");
  }
};

// Half of the slots in another order, among them the first and the last, and tokens without a slot.
std::vector<int64_t> slots_of(const StoreCase& c) {
  std::vector<int64_t> slots;
  for (int64_t slot = c.pages * c.page_size - 1; slot >= 0; slot -= slot > 1 ? 2 : 1) {
    slots.push_back(slot);
    if (slot % 3 == 0) slots.push_back(-1);
  }
  return slots;
}

void test_case(const StoreCase& c) {
  const std::vector<int64_t> slots = slots_of(c);
  const auto count = static_cast<int64_t>(slots.size());
  const size_t pool_bytes = c.pages * c.page_size * c.heads * c.row_bytes;
  const Guarded tokens(count * c.heads * c.row_bytes, c.guard), pool(pool_bytes, c.guard);
  std::mt19937 generator(static_cast<unsigned>(pool_bytes));
  for (int64_t i = 0; i < count * c.heads * c.row_bytes; ++i)
    tokens.as<uint8_t>()[i] = static_cast<uint8_t>(generator());
  const auto row = [&](int64_t token, int64_t head) {
    return tokens.as<uint8_t>() + (token * c.heads + head) * c.row_bytes;
  };

  std::vector<uint8_t> expected(pool_bytes, 0xff);
  for (int64_t token = 0; token < count; ++token) {
    for (int64_t head = 0; head < c.heads && slots[token] >= 0; ++head) {
      const int64_t page = slots[token] / c.page_size, slot = slots[token] - page * c.page_size;
      std::memcpy(&expected[c.offset(page, slot, head)], row(token, head), c.row_bytes);
    }
  }
  const cpu::PageSlots pages = {pool.as<std::byte>(), c.page_size, c.offset(1, 0, 0),
                                c.slots_outside ? c.row_bytes : c.page_size * c.row_bytes,
                                c.slots_outside ? c.heads * c.row_bytes : c.row_bytes};
  cpu::store_tokens(slots.data(), 0, count / 2, c.heads, c.row_bytes, pages, row);
  cpu::store_tokens(slots.data(), count / 2, count, c.heads, c.row_bytes, pages, row);
  check(std::memcmp(pool.as<void>(), expected.data(), pool_bytes) == 0, c.name());
}

int test_all() {
  for (int64_t pages : {1, 3})
    for (int64_t page_size : {1, 3, 16})
      for (int64_t heads : {1, 3})
        for (int64_t row_bytes : {2, 28, 256})
          for (bool slots_outside : {false, true})
            for (Guard guard : {Guard::before, Guard::after})
              test_case({pages, page_size, heads, row_bytes, slots_outside, guard});
  return finish("store_test");
}

}  // namespace
}  // namespace tiny_llm_ext::tests

int main() { return tiny_llm_ext::tests::test_all(); }
