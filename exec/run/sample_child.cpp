// Runs the worker that samples: its command line and its one answer.
#include "exec/run/sample_child.h"

#include <fmt/format.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "exec/events.h"
#include "exec/failure.h"
#include "exec/launch/child.h"

namespace orrery::exec {

SampleOutcome sample_with_worker(const SampleCommand& command, const std::atomic<bool>* stop) {
  constexpr std::chrono::milliseconds kPoll{50};
  const SampleOptions& o = command.options;
  if (!std::filesystem::exists(command.worker))
    throw Failure(
        fmt::format("the worker {} does not exist: building it needs MPI and a BLAS", command.worker.string()),
        FailureKind::environment);
  std::vector<std::string> line = {command.worker.string(),
                                   "--sample",
                                   "--run",
                                   command.run.string(),
                                   "--transport",
                                   "threads",
                                   "--tokens",
                                   std::to_string(o.tokens),
                                   "--temperature",
                                   fmt::format("{}", o.temperature),
                                   "--seed",
                                   std::to_string(o.seed),
                                   "--threads",
                                   std::to_string(command.threads)};
  const auto add = [&](const char* flag, const std::string& value) {
    line.emplace_back(flag);
    line.push_back(value);
  };
  if (!o.prompt.empty()) add("--prompt", o.prompt);
  if (!o.tokenizer.empty()) add("--tokenizer", o.tokenizer);
  if (o.top_k > 0) add("--top-k", std::to_string(o.top_k));
  SampleOutcome outcome;
  Child child(line);
  bool stopped = false;
  const auto said = [&](const std::string& text) {
    const nlohmann::json event = event_of_line(text);
    if (event.is_null()) return;
    if (event["event"] == "sample" && event.contains("text") && event["text"].is_string())
      outcome.text = event["text"].get<std::string>();
    if (auto found = diagnostic_of(event)) outcome.diagnostics.push_back(std::move(*found));
  };
  while (child.pump(kPoll, said, [&](const std::string& text) { outcome.error_tail += text + "\n"; }))
    if (!stopped && stop && stop->load()) {
      stopped = true;
      child.signal(SIGKILL);  // there is nothing to save
    }
  outcome.exit_code = child.exit_code();
  return outcome;
}

}  // namespace orrery::exec
