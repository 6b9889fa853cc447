#pragma once
/// Faults that tests plant in a rank of a training run, to see that they are found. Only for tests; off by default:
///
///   ORRERY_FAULT=KIND:rank=R,step=S[,KEY=VALUE…][;KIND:…]
///
/// | kind | what the rank does |
/// |---|---|
/// | `flip` | flips one bit of what it holds from step to step |
/// | `nan`, `inf` | puts a NaN, an infinity there |
/// | `kill`, `stop` | sends itself SIGKILL, SIGSTOP |
/// | `exit` | exits with `code=N` (0) and without a message |
/// | `abort` | calls abort() |
/// | `throw` | throws a Failure |
/// | `spin` | computes for ever |
/// | `slow` | sleeps `ms=N` (100) before this step and every later one |
/// | `collective` | enters a barrier that no other rank enters |
///
/// A fault acts before training step `step` (from 1), or with `at=within` before the middle step of the program in that
/// training step. `once=FILE`: only if FILE does not exist, and creates it: for runs that are restarted. For `flip`,
/// `nan` and `inf`: `state=NAME` (exec/state/held_states.h; `weight`; `any`: all states in one list), `part=N`,
/// `element=N` and `bit=N`, each modulo the number that exists, so that random numbers fit.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/state/checkpoint.h"

namespace orrery::exec {

enum class FaultKind { flip, nan, infinity, kill, stop, exit, abort, raise, spin, slow, collective };

struct Fault {
  FaultKind kind{};
  std::int64_t rank = 0;
  std::int64_t step = 1;  ///< from 1
  bool within = false;
  std::string state = "weight";
  std::int64_t part = 0, element = 0, bit = 20;
  std::int64_t milliseconds = 100, code = 0;
  std::string once;
};

/// Empty text: none. E0651 if it does not have the form above.
[[nodiscard]] base::Result<std::vector<Fault>> parse_faults(const std::string& text);

/// Plants the faults of this rank.
class FaultInjector {
 public:
  FaultInjector(const std::vector<Fault>& all, const CheckpointContext& context);
  /// Between two training steps: before step `step`, from 1.
  void before_step(std::int64_t step);
  /// A function to call before each step of the program in training step `step`; empty if no fault acts in it.
  [[nodiscard]] std::function<void(const plan::StepRef&)> within_step(std::int64_t step);

 private:
  [[nodiscard]] bool due(const Fault& fault, std::int64_t step, bool within) const;
  void act(const Fault& fault);
  void corrupt(const Fault& fault);
  CheckpointContext context_;
  std::vector<Fault> faults_;
};

}  // namespace orrery::exec
