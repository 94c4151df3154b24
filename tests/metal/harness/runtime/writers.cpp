#include "writers.h"

#include <sys/mman.h>

#include <new>

namespace harness {

Writers::Writers(uint64_t cells) : table_(nullptr, Unmap{cells * sizeof(uint32_t)}) {
  if (cells == 0) return;
  void* table = mmap(nullptr, cells * sizeof(uint32_t), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) throw std::bad_alloc();
  table_.reset(static_cast<uint32_t*>(table));
}

void Writers::Unmap::operator()(uint32_t* table) const { munmap(table, bytes); }

}  // namespace harness
