// Checks every memory access of the kernel. The compiler calls the hooks of its thread sanitizer, whose own
// runtime is not linked.
#include "memory.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "constants.h"
#include "report.h"
#include "threadgroup.h"
#include "writers.h"

namespace harness {
namespace {

constexpr uint64_t kGuard = 1 << 20;  // bytes around a buffer in which an access counts as out of its bounds
constexpr uint64_t kCell = 2;         // bytes
constexpr uint32_t kPoison = 0x7fc0dead;  // a NaN

struct Buffer {
  std::string name;
  uintptr_t begin, end;
  bool writable;
  Writers writers;
};

struct Array {
  std::string name;
  uintptr_t begin, end;
};

// The thread of the last access, and how many barriers of threadgroup and SIMD group preceded it.
struct Visit {
  int thread = kScheduler;
  uint32_t epoch = 0, simd_epoch = 0;

  bool none() const { return thread == kScheduler; }
  int simd_group() const { return thread / kLanes; }
  // Whether no barrier separates this visit from `now`.
  bool unordered(const Visit& now) const {
    bool ordered_by_simd_group = simd_group() == now.simd_group() && simd_epoch != now.simd_epoch;
    return !none() && epoch == now.epoch && !ordered_by_simd_group;
  }
};

struct Cell {
  Visit write, read;
  bool more_readers = false, more_simd_groups = false;  // other readers than `read` since the last barrier
};

std::vector<Buffer> buffers;
std::vector<Array> arrays;
uintptr_t arrays_begin, arrays_end;
std::vector<Cell> cells;

bool unordered_readers(const Cell& cell, const Visit& now) {
  if (cell.more_simd_groups) return cell.read.epoch == now.epoch;
  return cell.read.unordered(now) && (cell.more_readers || cell.read.thread != now.thread);
}

void add_reader(Cell& cell, const Visit& now) {
  if (!cell.read.unordered(now)) {
    bool others = cell.more_simd_groups && cell.read.epoch == now.epoch;
    cell.read = now;
    cell.more_readers = cell.more_simd_groups = others;
  } else if (cell.read.thread != now.thread) {
    cell.more_readers = true;
    cell.more_simd_groups |= cell.read.simd_group() != now.simd_group();
  }
}

void visit_threadgroup_memory(uintptr_t address, uint64_t bytes, bool write) {
  auto array = std::find_if(arrays.begin(), arrays.end(),
                            [=](const Array& a) { return address >= a.begin && address + bytes <= a.end; });
  if (array == arrays.end()) return report("threadgroup memory: %s out of bounds", write ? "write" : "read");
  const char* name = array->name.c_str();
  Visit now{running, epoch, simd_groups[running / kLanes].epoch};
  bool uninitialised = false;
  const char* race = nullptr;
  int other = 0;
  for (uint64_t i = 0; i < bytes; i += kCell) {
    Cell& cell = cells[(address + i - arrays_begin) / kCell];
    uninitialised |= !write && cell.write.none();
    if (cell.write.thread != running && cell.write.unordered(now)) {
      race = write ? "write after an unordered write" : "read after an unordered write";
      other = cell.write.simd_group();
    } else if (write && unordered_readers(cell, now)) {
      race = "write after an unordered read";
      other = cell.read.simd_group();
    }
    if (write)
      cell = {now, {}};
    else
      add_reader(cell, now);
  }
  if (uninitialised) report("uninitialised threadgroup memory: read of %s", name);
  if (race)
    report("data race on %s: %s, in %s", name, race,
           other == now.simd_group() ? "one SIMD group" : "two SIMD groups");
}

void visit_buffer(Buffer& buffer, uintptr_t address, uint64_t bytes, bool write) {
  const char* name = buffer.name.c_str();
  if (address + bytes > buffer.end) return report("buffer %s: access across its end", name);
  if (!write) return;
  if (!buffer.writable) return report("buffer %s: write, but it is read-only", name);
  uint32_t me = linear_position * kMostThreads + running + 1;
  for (uint64_t i = 0; i < bytes; i += kCell) {
    uint32_t& writer = buffer.writers[(address + i - buffer.begin) / kCell];
    if (writer && writer != me)
      report("buffer %s: a place written by two threads, of threadgroups %u and %u", name,
             (writer - 1) / kMostThreads, linear_position);
    writer = me;
  }
}

void visit(const void* pointer, uint64_t bytes, bool write) {
  if (running == kScheduler) return;
  auto address = reinterpret_cast<uintptr_t>(pointer);
  const char* what = write ? "write" : "read";
  if (address >= arrays_begin && address < arrays_end) return visit_threadgroup_memory(address, bytes, write);
  for (Buffer& buffer : buffers)
    if (address >= buffer.begin && address < buffer.end) return visit_buffer(buffer, address, bytes, write);
  if (on_a_stack(pointer)) return;
  for (const Buffer& buffer : buffers) {
    if (address + kGuard <= buffer.begin || address >= buffer.end + kGuard) continue;
    report("buffer %s: %s out of bounds", buffer.name.c_str(), what);
    return give_up();
  }
  if (!write && is_constant(pointer, bytes)) return;
  report("%s outside of every buffer and array", what);
  end_run();
}

}  // namespace

void forget_buffers() { buffers.clear(); }

void add_buffer(const char* name, void* address, uint64_t bytes, bool writable) {
  auto begin = reinterpret_cast<uintptr_t>(address);
  buffers.push_back({name, begin, begin + bytes, writable, Writers(writable ? bytes / kCell + 1 : 0)});
}

void add_threadgroup_array(const char* name, void* address, uint64_t bytes) {
  auto begin = reinterpret_cast<uintptr_t>(address);
  if (arrays.empty()) arrays_begin = std::numeric_limits<uintptr_t>::max();
  arrays.push_back({name, begin, begin + bytes});
  arrays_begin = std::min(arrays_begin, begin);
  arrays_end = std::max(arrays_end, begin + bytes);
  cells.resize((arrays_end - arrays_begin) / kCell + 1);
}

void forget_threadgroup_memory() {
  for (const Array& array : arrays)
    for (uintptr_t word = array.begin; word + sizeof kPoison <= array.end; word += sizeof kPoison)
      memcpy(reinterpret_cast<void*>(word), &kPoison, sizeof kPoison);
  std::fill(cells.begin(), cells.end(), Cell{});
}

}  // namespace harness

using harness::visit;

#define HOOKS(bytes)                                                                        \
  void __tsan_read##bytes(void* p) { visit(p, bytes, false); }                              \
  void __tsan_write##bytes(void* p) { visit(p, bytes, true); }                              \
  void __tsan_unaligned_read##bytes(void* p) { visit(p, bytes, false); }                    \
  void __tsan_unaligned_write##bytes(void* p) { visit(p, bytes, true); }                    \
  void __tsan_read_write##bytes(void* p) { visit(p, bytes, false), visit(p, bytes, true); } \
  void __tsan_unaligned_read_write##bytes(void* p) { visit(p, bytes, false), visit(p, bytes, true); }

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_read_range(void* p, uint64_t bytes) { visit(p, bytes, false); }
void __tsan_write_range(void* p, uint64_t bytes) { visit(p, bytes, true); }
void* __tsan_memset(void* p, int value, uint64_t bytes) {
  visit(p, bytes, true);
  return memset(p, value, bytes);
}
void* __tsan_memcpy(void* to, const void* from, uint64_t bytes) {
  visit(from, bytes, false);
  visit(to, bytes, true);
  return memcpy(to, from, bytes);
}

// The hook of -fsanitize=bounds: an index beyond its own dimension may still be inside its array.
struct SourceLocation {
  const char* file;
  uint32_t line, column;
};
void __ubsan_handle_out_of_bounds(const SourceLocation* where, const void*) {
  harness::report("index out of bounds at line %u", where->line);
}
}
