#pragma once
/// The sources' well-known claims, reproduced by simulation: each headline is a quantity of one run or two, which are
/// given and predicted as published rows are. Only the source's statement is stored.
#include <string>
#include <string_view>
#include <vector>

#include "cost/parameters/validation.h"
#include "sim/validate/translate.h"

namespace orrery::sim {

/// state_ratio       bytes of parameters, gradients and optimizer states per device, first run over second
/// activation_ratio  bytes of saved activations on the first stage, first run over second
/// memory_share      peak of the worst device over its memory
/// rate_ratio        sequences per second and device, first run over second
/// speedup           sequences per second, first run over second
/// teraflops         per device, including recomputation; petaflops: of all devices
/// minutes           of all runs, each with its number of steps
/// largest_model     billions of parameters of the deepest model that is as wide as the run's and whose parts fit every
///                   device, its host and the node's drives
/// device_hours      millions of device-hours of all runs, each with its number of steps
/// states            gigabytes of parameters, gradients and optimizer states per device
/// bubble            share of the step that devices wait for another stage
/// million_a_second  sequences, or samples of a recommendation model
/// exchange_share    share of the step that devices wait for all-to-alls
/// exchange_ratio    time of all-to-alls, exposed or not, first run over second
/// For a recommendation model whose tables fit no device, only memory_share is available.
enum class Quantity {
  state_ratio,
  activation_ratio,
  memory_share,
  rate_ratio,
  speedup,
  teraflops,
  petaflops,
  minutes,
  largest_model,
  bubble,
  million_a_second,
  exchange_share,
  exchange_ratio,
  device_hours,
  states,
  device_gigabytes,  ///< of a node, like the next two
  host_gigabytes,
  nvme_gigabytes
};

struct Headline {
  std::string what, source, unit;
  std::string said;    ///< the source's words
  std::string reason;  ///< why there is no prediction; empty: there is one
  Quantity quantity = Quantity::teraflops;
  std::vector<std::string> runs;         ///< ids of rows
  std::vector<std::int64_t> steps;       ///< of each run, for minutes
  std::optional<double> published = {};  ///< none: the source gives it in words only
  std::optional<plan::Order> order;      ///< replaces the row's
};

struct Headlines {
  std::vector<Headline> headlines;
  std::vector<Row> runs;
};

/// Format of tests/validation/headlines/*.yaml: `headlines` and, as in published rows, `results`. A run that is not
/// among the results is an error at its place.
[[nodiscard]] base::Result<Headlines> parse_headlines(std::string_view text, const std::string& file);

/// Predicts them by the closed form. One whose run cannot be expressed has a reason instead of a figure.
[[nodiscard]] std::vector<cost::HeadlineResult> predict_headlines(const Headlines& headlines, Library library);

}  // namespace orrery::sim
