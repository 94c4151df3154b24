// A build with scalar kernels only, as a build in place on a machine without vectors.
#include <stdexcept>
#include <string>

#include "check.h"
#include "cpu/interface/isa.h"
#include "cpu/interface/machine.h"

namespace tiny_llm_ext::tests {
namespace {

void test_only_scalar_is_available() {
  check(cpu::available_isas() == std::vector<std::string>{"scalar"}, "only scalar is available");
  check(cpu::active_kernels().name == std::string("scalar"), "scalar is chosen");
}

void test_the_error_says_how_to_build(const std::string& isa, bool machine_runs_it) {
  if (isa == "scalar") return;
  const std::string how =
      " (this build leaves it out; `TINY_LLM_BUILD_ISAS=all pdm run build-ext` compiles every instruction "
      "set)";
  check_throws<std::invalid_argument>(
      "isa: got '" + isa + "', expected one of scalar" + (machine_runs_it ? how : ""),
      [&] { cpu::kernels_named(isa); });
}

}  // namespace
}  // namespace tiny_llm_ext::tests

int main() {
  using namespace tiny_llm_ext;
  tests::test_only_scalar_is_available();
#define TINY_LLM_TEST(isa) tests::test_the_error_says_how_to_build(#isa, cpu::machine_runs_##isa());
  TINY_LLM_ISAS(TINY_LLM_TEST)
  return tests::finish("absent_isa_test");
}
