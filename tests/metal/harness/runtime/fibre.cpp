#include "fibre.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#if !defined(__x86_64__)
#error "the switch between fibres is written for x86-64 only"
#endif

extern "C" void harness_switch(void** save, void* load);
asm(R"(
.text
.globl harness_switch
.hidden harness_switch
.type harness_switch,@function
harness_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  popq %rcx
  jmp *%rcx
.size harness_switch,.-harness_switch
)");

namespace harness {
namespace {

constexpr size_t kStack = 32768;
char* stacks;
void* saved[kMostThreads];
void* scheduler;

void*& place(int thread) { return thread == kScheduler ? scheduler : saved[thread]; }

}  // namespace

int running = kScheduler;

void make_stacks() {
  if (stacks) return;
  void* memory = mmap(nullptr, kStack * kMostThreads, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  stacks = static_cast<char*>(memory);
}

bool on_a_stack(const void* address) { return address >= stacks && address < stacks + kStack * kMostThreads; }

void start_fibre(int thread, void (*entry)()) {
  constexpr int kSavedRegisters = 6;
  // Staggered, because equal offsets would map all stacks to the same cache sets.
  char* top = stacks + (thread + 1) * kStack - 64 - thread * 576 % 12288;
  auto** stack = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15});
  *--stack = nullptr;  // return address: `entry` has no caller
  *--stack = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kSavedRegisters; i++) *--stack = nullptr;
  saved[thread] = stack;
}

void switch_to(int thread) {
  int me = running;
  running = thread;
  harness_switch(&place(me), place(thread));
}

}  // namespace harness
