/// The sentence that explanations begin with.
#include "reports/tables/binding.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/units.h"
#include "reports/tables/tables.h"

namespace orrery::reports {
namespace {

constexpr double kLargeLoss = 0.25;  // of the step

bool is_compute(const std::string& part) {
  return part == "forward" || part == "backward" || part == "optimizer";
}

/// Both are the bubble (cost::Prediction::bubble_fraction).
bool is_waiting(const std::string& part) {
  return part == "pipeline bubble" || part == "imbalance";
}

std::string amount(double seconds, double step) {
  return fmt::format("{} ({})", time_text(seconds), percent(step > 0 ? seconds / step : 0));
}

}  // namespace

Binding binding_of(const cost::Prediction& p) {
  double compute = 0;
  Part loss{"", 0};
  for (const Part& part : parts_of(p.breakdown)) {
    if (is_compute(part.name))
      compute += part.seconds;
    else if (!is_waiting(part.name) && part.seconds > loss.seconds)
      loss = part;
  }
  const double imbalance = p.breakdown.imbalance;
  const double waits = p.breakdown.bubble + imbalance;
  const bool waiting = waits > loss.seconds;
  if (waiting) loss = {"bubble", waits};
  const double step = p.step_time_s;
  const bool lost = loss.seconds >= kLargeLoss * step;
  Binding out{lost ? loss.name : "compute", lost ? loss.seconds : compute, 0, {}};
  out.share = step > 0 ? out.seconds / step : 0;
  const std::string rate = p.mfu > 0 ? fmt::format(", {} MFU", percent(p.mfu)) : "";
  if (lost)
    out.sentence = fmt::format("{} binds: {} of the step of {}{}; compute is {}.", loss.name,
                               amount(loss.seconds, step), time_text(step), rate, amount(compute, step));
  else if (loss.seconds > 0)
    out.sentence = fmt::format("compute binds: {} of the step of {}{}; the largest loss beside it is {}, {}{}.",
                               amount(compute, step), time_text(step), rate, loss.name, amount(loss.seconds, step),
                               waiting && imbalance > 0 ? ", of it imbalance " + percent(imbalance / step) : "");
  else
    out.sentence = fmt::format("compute binds: all of the step of {}{}.", time_text(step), rate);
  out.sentence.front() = static_cast<char>(out.sentence.front() - 'a' + 'A');
  if (p.memory_capacity_bytes > 0 && p.memory_peak_bytes > p.memory_capacity_bytes)
    out.sentence = fmt::format("Memory binds: it needs {} more than a device has. Apart from that: {}",
                               base::human(base::Bytes{p.memory_peak_bytes - p.memory_capacity_bytes}), out.sentence);
  return out;
}

}  // namespace orrery::reports
