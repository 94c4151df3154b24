// Writes rows of tokens to slots of pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tiny_llm_ext::cpu {

// The slots of all pages and heads. Strides count bytes.
struct PageSlots {
  std::byte* data;
  int64_t page_size;  // slots
  int64_t page_stride, head_stride, slot_stride;

  std::byte* at(int64_t slot, int64_t head) const {
    return data + slot / page_size * page_stride + head * head_stride + slot % page_size * slot_stride;
  }
};

// Copies the rows of the tokens begin .. end - 1 to slots[token]; a negative slot skips its token.
// row(token, head) is the address of a row.
template <class Row>
void store_tokens(const int64_t* slots, int64_t begin, int64_t end, int64_t heads, size_t row_bytes,
                  const PageSlots& pages, Row row) {
  for (int64_t token = begin; token < end; token++) {
    if (slots[token] < 0) continue;
    for (int64_t head = 0; head < heads; head++)
      std::memcpy(pages.at(slots[token], head), row(token, head), row_bytes);
  }
}

}  // namespace tiny_llm_ext::cpu
