// The number of threads of CPU kernels, one choice for the whole process.
#pragma once

#include <string>
#include <vector>

namespace tiny_llm_ext::cpu {

struct Threads {
  int prompts;   // of operations on many rows, which are bound by arithmetic
  int decoding;  // of operations on few, which are bound by memory: products of at most max_streamed_rows
                 // rows, and attention where no sequence has more than one query position

  int of(bool few_rows) const { return few_rows ? decoding : prompts; }
  bool operator==(const Threads&) const = default;
};

struct ThreadChoice {
  Threads threads;
  std::string reason;  // one line for people
};

// The default, for a process that may use the CPUs `allowed`: a thread for each physical core among the fast
// CPUs, but 2 where these are fewer and 2 CPUs are allowed, and no more than the quota of control groups.
// Decoding has as many as prompts. See cpus.h, also for `root`.
ThreadChoice default_threads(const std::vector<int>& allowed, const std::string& root);

// What `set_threads` chose last; else what the variable TINY_LLM_THREADS says, read at the first call; else
// the default. Primitives keep what holds when they are made. A wrong value of the variable is an
// ArgumentError.
Threads active_threads();
ThreadChoice explain_threads();

// Chooses by a text: "16" for both numbers, "16,8" for prompts and decoding. Anything else is an
// ArgumentError of `argument`.
void set_threads(const std::string& text, const std::string& argument);

}  // namespace tiny_llm_ext::cpu
