// Arrays that end, or begin, at an inaccessible page: an access out of bounds crashes.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

namespace tiny_llm_ext::tests {

enum class Guard { before, after };

class Guarded {
 public:
  // Every byte starts as 0xff, a NaN in each floating-point type. With Guard::after the bytes end at the
  // guard page, rounded up to the alignment.
  Guarded(size_t bytes, Guard side, size_t alignment = 1) {
    const size_t page = sysconf(_SC_PAGESIZE);
    const size_t body = (bytes + page) / page * page;
    size_ = body + 2 * page;
    base_ = static_cast<uint8_t*>(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    if (mprotect(base_ + page, body, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    std::memset(base_ + page, 0xff, body);
    const size_t shift = side == Guard::before ? 0 : (body - bytes) / alignment * alignment;
    data_ = base_ + page + shift;
  }
  Guarded(Guarded&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), data_(other.data_), size_(other.size_) {}
  ~Guarded() {
    if (base_) munmap(base_, size_);
  }

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  uint8_t* base_;
  uint8_t* data_;
  size_t size_;
};

}  // namespace tiny_llm_ext::tests
