#pragma once
/// What the sources are known for, by simulation: each headline is a quantity read off one run or two, which are given
/// as published rows are, and predicted as they are. Nothing in it is stored but what the source says.
#include <string>
#include <string_view>
#include <vector>

#include "cost/parameters/validation.h"
#include "sim/validate/translate.h"

namespace orrery::sim {

/// state_ratio       bytes of parameters, gradients and optimizer states of a device, first run over second
/// activation_ratio  bytes of saved activations on the first stage, first run over second
/// memory_share      peak of the worst device over its memory
/// rate_ratio        sequences a second for each device, first run over second
/// speedup           sequences a second, first run over second
/// teraflops         of a device, what is recomputed counted in; petaflops: of all
/// minutes           of all runs, each of so many steps
/// largest_model     billions of parameters of the deepest model as wide as the run's whose every device, host and
/// node's
///                   drives hold their part
/// device_hours      millions of hours of a device, of all runs, each of so many steps
/// states            gigabytes of parameters, gradients and optimizer states of a device
/// bubble            share of the step that devices wait for another stage
/// million_a_second  sequences, or samples of a recommendation model
/// exchange_share    share of the step that devices wait for all-to-alls
/// exchange_ratio    time that all-to-alls take, waited for or not, first run over second
/// Of a recommendation model whose tables no device holds nothing but memory_share is read off.
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
  device_gigabytes,  ///< of a node, as the next two
  host_gigabytes,
  nvme_gigabytes
};

struct Headline {
  std::string what, source, unit;
  std::string said;    ///< the source's words
  std::string reason;  ///< why nothing is predicted; empty: it is
  Quantity quantity = Quantity::teraflops;
  std::vector<std::string> runs;         ///< ids of rows
  std::vector<std::int64_t> steps;       ///< of each run, for minutes
  std::optional<double> published = {};  ///< none: the source says it in words alone
  std::optional<plan::Order> order;      ///< in place of the row's
};

struct Headlines {
  std::vector<Headline> headlines;
  std::vector<Row> runs;
};

/// tests/validation/headlines/*.yaml: `headlines` and, as in published rows, `results`. A run that is not among the
/// results is an error with its place.
[[nodiscard]] base::Result<Headlines> parse_headlines(std::string_view text, const std::string& file);

/// Predicts them by the closed form. One whose run cannot be expressed has the reason instead of a figure.
[[nodiscard]] std::vector<cost::HeadlineResult> predict_headlines(const Headlines& headlines, Library library);

}  // namespace orrery::sim
