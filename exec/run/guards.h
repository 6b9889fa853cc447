#pragma once
/// Guards of a training run: that its numbers are finite, that replicas hold the same, that nothing changes what no
/// step writes. What one rank finds all ranks agree on at the end of the step, before anything becomes a checkpoint.
///
///  - Each step: the loss and the gradient norm, on each rank that has them; with fp16 how many updates in a row were
///    skipped at the smallest scale.
///  - Looks: at the start, before each checkpoint, at the end, and every so many steps all ranks hash what they hold
///    from step to step (exec/state/held_states.h) and look for values that are not finite. What several ranks hold
///    must be equal bit by bit: rank 0 compares.
///  - Watches: in the step behind a look each part is hashed again just before that step first writes it. What then has
///    another hash has changed in memory, whoever else holds it or not. On backends whose memory is the host's.
///  - Spikes, on rank 0: exec/run/spikes.h.
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/run/spikes.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

struct CheckpointContext;
struct HeldPart;
struct PartLook;
struct StepMetrics;
struct StepResult;

struct GuardOptions {
  bool stop_on_spike = false;  ///< else a warning
  /// Steps between looks; 0: none but those that must be; -1: as often as looks and watches take kShareOfTime at most.
  std::int64_t hash_every = -1;
};

class Guards {
 public:
  static constexpr double kShareOfTime = 0.004;
  static constexpr int kMostSkips = 20;              ///< in a row, at a loss scale of 1
  static constexpr std::int64_t kMostWarnings = 10;  ///< of spikes; all are counted

  Guards(const CheckpointContext& context, const GuardOptions& options, int threads);
  ~Guards();
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;

  /// What is to be called before each step of the program in training step `index` (from 0), `before` first; empty:
  /// nothing is watched, and `before` is empty.
  using BeforeEach = std::function<void(const plan::StepRef&)>;
  [[nodiscard]] BeforeEach watch(std::int64_t index, const BeforeEach& before);
  /// This rank's own values of step `step` (from 1), when it is done.
  void see(std::int64_t step, const StepResult& mine);
  /// Rank 0: the step's values over all ranks. Reports its spikes as events; returns what had one.
  using Report = std::function<void(const nlohmann::ordered_json& event)>;
  [[nodiscard]] std::vector<std::string> see_joined(const StepMetrics& step, const Report& report);
  void see_held_out(std::int64_t step, double loss);

  /// Whether this rank has found a fault; whether it thinks that a look is due.
  [[nodiscard]] bool faulty() const { return !faults_.empty(); }
  [[nodiscard]] bool look_due(std::int64_t step) const;
  /// Collective: looks, after `step` steps. True when some rank has found a fault, on all alike.
  [[nodiscard]] bool look(std::int64_t step);
  /// Collective: on rank 0 what all ranks found; on others what they found themselves, or that another did.
  [[nodiscard]] base::Diagnostics faults() const;

  struct Counts {
    std::int64_t spikes = 0, skipped = 0, looks = 0;
    double looks_s = 0;  ///< on this rank, watches included
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  using Clock = std::chrono::steady_clock;
  void fault(const char* code, const std::string& what, const char* help);
  void not_finite(std::int64_t step);
  void compare(std::int64_t step, const std::vector<std::string>& all);
  [[nodiscard]] std::map<plan::StepRef, std::vector<std::size_t>> first_writes(std::int64_t index) const;
  void check(const std::vector<std::size_t>& parts, std::int64_t step);

  const CheckpointContext& context_;
  GuardOptions options_;
  int threads_;
  bool has_loss_ = false, has_norm_ = false;
  bool opened_ = false;  ///< a step has run
  std::vector<HeldPart> parts_;
  std::vector<PartLook> last_;   ///< what the last look saw
  std::int64_t looked_at_ = -1;  ///< steps done then
  double trained_s_ = 0;         ///< all steps so far
  double last_look_s_ = 0;       ///< what the last look took, and the watch behind it
  int skips_ = 0;                ///< in a row, at the smallest scale
  SpikeDetector spikes_;
  base::Diagnostics faults_;
  Counts counts_;
};

}  // namespace orrery::exec
