// The thread that wrote each cell of a buffer. Pages of the table exist only once they are written, because a
// buffer may be larger than the machine's memory.
#pragma once

#include <cstdint>
#include <memory>

namespace harness {

class Writers {
 public:
  explicit Writers(uint64_t cells);

  // The writing thread + 1, or 0 if there was none.
  uint32_t& operator[](uint64_t cell) { return table_.get()[cell]; }

 private:
  struct Unmap {
    uint64_t bytes;
    void operator()(uint32_t* table) const;
  };
  std::unique_ptr<uint32_t, Unmap> table_;
};

}  // namespace harness
