#pragma once
/// Text from a model: a forward pass of the plan's own operators on one rank, one token after the other.
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
  std::string prompt;         ///< empty: the token between documents, or without one a line's end
  std::string tokenizer;      ///< path; empty: the job's, else bytes
  std::int64_t tokens = 128;  ///< to be drawn
  double temperature = 1;     ///< 0: always the most likely token
  std::int64_t top_k = 0;     ///< only the so many most likely; 0: all
  std::uint64_t seed = 1;
};

/// The token that `logits` (one by id) give: of the largest the lowest id at temperature 0, else drawn from softmax(
/// logits / temperature) over the top_k largest (Fan et al. 2018) by `uniform` in [0, 1). Ids of equal logits come in
/// their order.
[[nodiscard]] std::int32_t choose_token(std::span<const float> logits, const SampleOptions& options, double uniform);

/// A causal model on one rank, in fp32, for sequences up to a length.
class LanguageModel {
 public:
  /// Allocates the arena; parameters are to be loaded. `cluster` lends its device. `sequence` is at most the model's.
  [[nodiscard]] static base::Result<std::unique_ptr<LanguageModel>> make(const models::Model& model,
                                                                         const clusters::Cluster& cluster,
                                                                         std::int64_t sequence, Backend& backend,
                                                                         Transport& transport, const Waiter& waiter);
  /// Logits of what follows `ids`, of which the last `sequence` count, at positions from 0 on.
  [[nodiscard]] std::vector<float> logits(std::span<const std::int32_t> ids);
  [[nodiscard]] const plan::Schedule& schedule() const { return schedule_; }
  [[nodiscard]] Arena& arena() { return executor_->arena(); }
  [[nodiscard]] std::int64_t sequence() const { return plan_.spec().sequence; }

 private:
  LanguageModel(plan::Plan plan, Backend& backend) : plan_(std::move(plan)), backend_(backend) {}
  plan::Plan plan_;
  Backend& backend_;
  plan::Schedule schedule_;
  plan::Placement placement_;
  std::unique_ptr<Executor> executor_;
  int logits_ = -1;  ///< buffer
};

/// `options.tokens` tokens behind `ids`, each passed to `drawn` as it comes.
void draw_tokens(LanguageModel& model, const SampleOptions& options, std::vector<std::int32_t> ids,
                 const std::function<void(std::int32_t)>& drawn);

/// What the model of a run directory says from its newest whole checkpoint; the prompt is not in it. Codes E0618,
/// E0619, and those of the files it reads; throws Failure. `transport` is one rank's. `warnings`: of damaged
/// checkpoints.
[[nodiscard]] base::Result<std::string> sample_run(const std::filesystem::path& run, const SampleOptions& options,
                                                   Backend& backend, Transport& transport, const Waiter& waiter,
                                                   base::Diagnostics* warnings = nullptr);

/// For a terminal: what is no UTF-8, and control characters but tabs and ends of lines, as U+FFFD.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace orrery::exec
