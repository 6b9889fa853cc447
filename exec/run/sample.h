#pragma once
/// Text from a model: forward passes of the plan's own operators on one rank, one token after the other.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/data/tokenizer.h"
#include "exec/engine/backend.h"
#include "exec/engine/execute.h"
#include "exec/engine/transport.h"
#include "exec/engine/waiter.h"
#include "models/model.h"
#include "plan/spec/plan.h"

namespace orrery::exec {

struct SampleOptions {
  std::string prompt;         ///< empty: the token between documents, or without one a line end
  std::string tokenizer;      ///< path; empty: the job's, else bytes
  std::int64_t tokens = 128;  ///< number to draw
  double temperature = 1;     ///< 0: always the most likely token
  std::int64_t top_k = 0;     ///< draw only from this many most likely tokens; 0: all
  std::uint64_t seed = 1;
};

/// The token chosen by `logits` (one by id). At temperature 0 the largest, among equal ones the lowest id; else drawn
/// from softmax(logits / temperature) over the top_k largest (Fan et al. 2018) by `uniform` in [0, 1). Ids of equal
/// logits keep their order.
[[nodiscard]] std::int32_t choose_token(std::span<const float> logits, const SampleOptions& options, double uniform);

/// A causal model on one rank, in fp32, for sequences up to a length.
class LanguageModel {
 public:
  /// Allocates the arena; the caller loads parameters. `cluster` lends its device. `sequence` is at most the model's.
  [[nodiscard]] static base::Result<std::unique_ptr<LanguageModel>> make(const models::Model& model,
                                                                         const clusters::Cluster& cluster,
                                                                         std::int64_t sequence, Backend& backend,
                                                                         Transport& transport, const Waiter& waiter);
  /// Logits of the token after `ids`, of which the last `sequence` are used, at positions from 0 on.
  [[nodiscard]] std::vector<float> logits(std::span<const std::int32_t> ids);
  [[nodiscard]] const plan::Schedule& schedule() const { return schedule_; }
  [[nodiscard]] Arena& arena() { return executor_->arena(); }
  [[nodiscard]] std::int64_t sequence() const { return plan_.spec().shape.sequence; }

 private:
  LanguageModel(plan::Plan plan, Backend& backend) : plan_(std::move(plan)), backend_(backend) {}
  plan::Plan plan_;
  Backend& backend_;
  plan::Schedule schedule_;
  plan::Placement placement_;
  std::unique_ptr<Executor> executor_;
  plan::BufferId logits_;
};

/// Draws `options.tokens` tokens after `ids` and passes each to `drawn` as it comes.
void draw_tokens(LanguageModel& model, const SampleOptions& options, std::vector<std::int32_t> ids,
                 const std::function<void(std::int32_t)>& drawn);

/// The text, without the prompt, that a run directory's model makes from the run's newest whole checkpoint. Codes
/// E0618, E0619, and those of the files it reads; throws Failure. `transport` is one rank's. `warnings`: about damaged
/// checkpoints.
[[nodiscard]] base::Result<std::string> sample_run(const std::filesystem::path& run, const SampleOptions& options,
                                                   Backend& backend, Transport& transport, const Waiter& waiter,
                                                   base::Diagnostics* warnings = nullptr);

/// For a terminal: replaces invalid UTF-8, and control characters except tabs and line ends, by U+FFFD.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace orrery::exec
