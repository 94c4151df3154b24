// The option `on_fallback`.
#include "attention/arguments/fallback.h"

#include <mutex>
#include <set>

#include "core/errors.h"

namespace tiny_llm_ext {

void report_fallback(const char* function, const AttentionOptions& options,
                     const std::vector<std::string>& reasons) {
  std::string reason;
  for (const std::string& text : reasons) reason += (reason.empty() ? "" : "; ") + text;
  if (options.on_fallback == "error" || options.batch_invariant) {
    const bool invariant = options.batch_invariant;
    throw NotImplemented(std::string(function) + ": no fused kernel" +
                         (invariant ? " that is batch invariant: " : ": ") + reason + "; " +
                         (invariant ? "batch_invariant=False and " : "") +
                         "on_fallback='allow' would run attention_reference, with O(L * S) memory");
  }
  if (options.on_fallback == "allow" || !options.warn) return;
  static std::mutex mutex;
  static std::set<std::string> reported;
  {
    std::lock_guard lock(mutex);
    if (!reported.insert(reason).second) return;
  }
  options.warn(std::string(function) +
               ": falling back to attention_reference, with O(L * S) memory: " + reason);
}

void explain_batch_invariance(const AttentionOptions& options, Explanation& explanation) {
  if (options.batch_invariant) {
    explanation.reasons.push_back("batch_invariant: the reference graph is not, so the call is refused");
  }
}

}  // namespace tiny_llm_ext
