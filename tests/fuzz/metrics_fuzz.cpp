// metrics.jsonl as a resumed run reads it, and as reports do: what is kept is kept again, and every line is a step or
// an error.
#include <iterator>

#include "apps/verbs/runs.h"
#include "exec/failure.h"
#include "exec/run/metrics.h"
#include "tests/fuzz/target.h"

namespace {

std::string content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

FUZZ_TARGET(metrics) {
  static const orrery::fuzz::Scratch scratch;
  const auto path = scratch.write("metrics.jsonl", text);
  try {
    const orrery::exec::MetricsFile file(path, 20);
    const std::string kept = content(path);
    orrery::fuzz::must(kept.size() <= text.size() + 1, "only lines are taken out");
    const orrery::exec::MetricsFile again(path, 20);
    orrery::fuzz::must(content(path) == kept, "what was kept is kept again");
  } catch (const orrery::exec::Failure& failure) {
    orrery::fuzz::must(*failure.what() != '\0', "a refusal says why");
  }
  const auto steps = orrery::apps::parse_metrics(std::string(text), "metrics.jsonl");
  if (!steps) (void)orrery::base::render(steps.error(), true);
}
