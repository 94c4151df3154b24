// The list of instruction sets, and the two environment variables, which are read once per process.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>

#include "check.h"
#include "core/errors.h"
#include "cpu/interface/isa.h"
#include "cpu/interface/threads.h"

namespace tiny_llm_ext::tests {
namespace {

void test_every_instruction_set_has_its_kernels() {
  const std::vector<std::string>& names = cpu::available_isas();
  check(names.back() == "scalar", "scalar is last");
  check(std::set<std::string>(names.begin(), names.end()).size() == names.size(), "names are unique");
  for (const std::string& name : names) {
    const cpu::Kernels& kernels = cpu::kernels_named(name);
    check(kernels.name == name, name + " has the kernels of " + kernels.name);
    for (int element = 0; element < kElements; ++element) {
      const cpu::AttentionKernels& attention = kernels.attention[element];
      const bool complete = attention.forward.run && attention.forward.scratch_bytes &&
                            attention.forward.row_tile > 0 && attention.forward.key_tile > 0 &&
                            attention.forward.tiles_per_task > 0 && attention.keys_outside_scratch_bytes &&
                            attention.peak;
      check(complete, name + ": a kernel and its sizes for element " + std::to_string(element));
    }
  }
}

void test_the_environment_variables(const std::string& isa, const std::string& threads) {
  std::string listed;
  for (const std::string& name : cpu::available_isas()) listed += (listed.empty() ? "" : ", ") + name;
  setenv("TINY_LLM_CPU_ISA", "sse9", 1);
  check_throws<std::invalid_argument>("TINY_LLM_CPU_ISA: got 'sse9', expected one of " + listed,
                                      [] { cpu::active_kernels(); });
  for (const char* wrong :
       {"", "0", "-2", "2x", " 2", "99999999999", ",", "2,", ",2", "2,0", "2, 1", "4,2,1"}) {
    const auto refused_as = [wrong](const char* name) {
      return std::string(name) + ": got '" + wrong +
             "', expected a positive integer, or two such as 16,8: for prompts and for decoding";
    };
    setenv("TINY_LLM_THREADS", wrong, 1);
    check_throws<ArgumentError>(refused_as("TINY_LLM_THREADS"), [] { cpu::active_threads(); });
    check_throws<ArgumentError>(refused_as("threads"), [wrong] { cpu::set_threads(wrong, "threads"); });
  }
  setenv("TINY_LLM_CPU_ISA", isa.c_str(), 1);
  setenv("TINY_LLM_THREADS", threads.c_str(), 1);
  check(cpu::active_kernels().name == isa, "the forced instruction set is the active one");
  const cpu::ThreadChoice choice = cpu::explain_threads();
  const int number = std::stoi(threads);
  check(choice.threads == cpu::Threads{number, number} && cpu::active_threads() == choice.threads,
        "the given number of threads is used");
  check(choice.reason == "TINY_LLM_THREADS=" + threads, "the reason is the variable, got " + choice.reason);
  setenv("TINY_LLM_CPU_ISA", "sse9", 1);
  check(cpu::active_kernels().name == isa, "the variable is read once");
}

void test_a_setting_wins_over_the_variable() {
  cpu::set_threads("5,2", "--threads");
  const cpu::ThreadChoice choice = cpu::explain_threads();
  check(choice.threads == cpu::Threads{5, 2}, "5 threads in prompts, 2 in decoding");
  check(choice.threads.of(true) == 2 && choice.threads.of(false) == 5, "few rows are decoding");
  check(choice.reason == "--threads=5,2", "the reason is the option, got " + choice.reason);
  cpu::set_threads("7", "threads");
  check(cpu::active_threads() == cpu::Threads{7, 7}, "the last setting holds");
}

}  // namespace
}  // namespace tiny_llm_ext::tests

int main() {
  using namespace tiny_llm_ext::tests;
  test_every_instruction_set_has_its_kernels();
  test_the_environment_variables("scalar", "3");
  test_a_setting_wins_over_the_variable();
  return finish("isa_test");
}
