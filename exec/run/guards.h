#pragma once
/// Guards of a training run: numbers are finite, replicas hold the same, and nothing changes memory that no step
/// writes. All ranks agree at the end of the step on what one rank finds, before anything becomes a checkpoint.
///
///  - Each step: the loss and the gradient norm, on each rank that has them; with fp16, how many updates in a row were
///    skipped at the smallest scale.
///  - Looks: at the start, before each checkpoint, at the end, and at intervals all ranks hash what they hold from
///    step to step (exec/state/held_states.h) and search it for values that are not finite. What several ranks
///    hold must be equal bit by bit; rank 0 compares.
///  - Watches: in the step after a look each part is hashed again just before that step first writes it. If the hash is
///    different, memory has changed, even if no other rank holds the part. Only where a backend's memory is the host's.
///  - Spikes, on rank 0: exec/run/spikes.h.
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
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
  /// Steps between looks; 0: only the required ones; none: as often as looks and watches stay within kShareOfTime.
  std::optional<std::int64_t> hash_every = {};
};

class Guards {
 public:
  static constexpr double kShareOfTime = 0.004;
  static constexpr int kMostSkips = 20;              ///< in a row, at a loss scale of 1
  static constexpr std::int64_t kMostWarnings = 10;  ///< about spikes; all spikes are counted

  Guards(const CheckpointContext& context, const GuardOptions& options, int threads);
  ~Guards();
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;

  /// A function to call before each step of the program in training step `index` (from 0); it calls `before` first.
  /// Empty if nothing is watched and `before` is empty.
  using BeforeEach = std::function<void(const plan::StepRef&)>;
  [[nodiscard]] BeforeEach watch(std::int64_t index, const BeforeEach& before);
  /// Takes this rank's own values of step `step` (from 1) after it.
  void see(std::int64_t step, const StepResult& mine);
  /// Rank 0: takes the step's values over all ranks. Reports its spikes as events; returns the quantities that had one.
  using Report = std::function<void(const nlohmann::ordered_json& event)>;
  [[nodiscard]] std::vector<std::string> see_joined(const StepMetrics& step, const Report& report);
  void see_held_out(std::int64_t step, double loss);

  /// Whether this rank has found a fault, and whether a look is due in its view.
  [[nodiscard]] bool faulty() const { return !faults_.empty(); }
  [[nodiscard]] bool look_due(std::int64_t step) const;
  /// Collective: looks, after `step` steps. True, on all ranks alike, if some rank has found a fault.
  [[nodiscard]] bool look(std::int64_t step);
  /// Collective: on rank 0 the faults of all ranks; on other ranks their own, or that another rank has one.
  [[nodiscard]] base::Diagnostics faults() const;

  struct Counts {
    std::int64_t spikes = 0, skipped = 0, looks = 0;
    double looks_s = 0;  ///< on this rank, including watches
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
  bool opened_ = false;  ///< whether a step has run
  std::vector<HeldPart> parts_;
  std::vector<PartLook> last_;   ///< results of the last look
  std::int64_t looked_at_ = -1;  ///< number of steps done then
  double trained_s_ = 0;         ///< in all steps so far
  double last_look_s_ = 0;       ///< of the last look and the watch after it
  int skips_ = 0;                ///< in a row, at the smallest scale
  SpikeDetector spikes_;
  base::Diagnostics faults_;
  Counts counts_;
};

}  // namespace orrery::exec
