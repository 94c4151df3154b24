// The default, the variable and the setting.
#include "cpu/interface/threads.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <mutex>

#include "core/errors.h"
#include "cpu/interface/cpus.h"

namespace tiny_llm_ext::cpu {
namespace {

// 0 if the text is no positive number.
int positive(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::max(number, 0) : 0;
}

ThreadChoice read_choice(const std::string& text, const std::string& argument) {
  const size_t comma = text.find(',');
  const int first = positive(text.substr(0, comma));
  const int second = comma == std::string::npos ? first : positive(text.substr(comma + 1));
  if (first == 0 || second == 0)
    throw ArgumentError("", argument, "'" + text + "'",
                        "a positive integer, or two such as 16,8: for prompts and for decoding");
  return {{first, second}, argument + "=" + text};
}

ThreadChoice first_choice() {
  const char* given = std::getenv("TINY_LLM_THREADS");
  return given ? read_choice(given, "TINY_LLM_THREADS") : default_threads(affinity(), "");
}

std::atomic<Threads> active{};  // read by each new primitive; {0, 0}: not chosen yet

// Guards the reason, and the changes of both.
std::mutex choice_mutex;
std::string reason;

void set_choice(ThreadChoice choice) {
  active = choice.threads;
  reason = std::move(choice.reason);
}

}  // namespace

ThreadChoice default_threads(const std::vector<int>& allowed, const std::string& root) {
  const std::vector<int> fast = fast_cpus(allowed, root);
  const int cpus = static_cast<int>(allowed.size()), quota = quota_cpus(root);
  const int cores = std::max(physical_cores(fast, root), std::min(cpus, 2));
  const int threads = quota > 0 ? std::min(cores, quota) : cores;
  const char* const kind = fast.size() < allowed.size() ? "physical cores that are fast" : "physical cores";
  return {{threads, threads},
          std::to_string(threads) + " of " + std::to_string(cpus) +
              " CPUs: " + (cores == cpus ? "all that are allowed" : kind) + "; quota " +
              (quota > 0 ? std::to_string(quota) : "none")};
}

Threads active_threads() {
  const Threads threads = active;
  return threads.prompts > 0 ? threads : explain_threads().threads;
}

ThreadChoice explain_threads() {
  std::lock_guard lock(choice_mutex);
  if (active.load().prompts == 0) set_choice(first_choice());
  return {active, reason};
}

void set_threads(const std::string& text, const std::string& argument) {
  ThreadChoice choice = read_choice(text, argument);
  std::lock_guard lock(choice_mutex);
  set_choice(std::move(choice));
}

}  // namespace tiny_llm_ext::cpu
