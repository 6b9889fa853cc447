/// Fits network.* coefficients to collectives timed by nccl-tests.
#include "cost/fit/nccl_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/units.h"
#include "clusters/routes.h"
#include "cost/fit/least_squares.h"
#include "cost/network/collectives.h"

namespace orrery::cost {
namespace {

constexpr double kRevealed = 1e-3;  // least sensitivity for a coefficient to count as determined by the data

/// One message size in one log.
struct Timed {
  int log = 0;
  Tested operation = Tested::all_reduce;
  std::vector<int> members;
  clusters::GroupSpan span;
  double bytes = 0, seconds = 0;
};

std::optional<Operation> operation_of(Tested tested) {
  switch (tested) {
    case Tested::all_reduce: return Operation::all_reduce;
    case Tested::all_gather: return Operation::all_gather;
    case Tested::reduce_scatter: return Operation::reduce_scatter;
    case Tested::broadcast: return Operation::broadcast;
    case Tested::all_to_all: return Operation::all_to_all;
    case Tested::reduce: return Operation::reduce;
    case Tested::send: break;
  }
  return std::nullopt;
}

double predicted_seconds(const Timed& one, const Network& network) {
  if (const auto operation = operation_of(one.operation))
    return collective_time(network, *operation, one.span, static_cast<int>(one.members.size()), base::Bytes{one.bytes})
        .value;
  return send_time(network, one.span, base::Bytes{one.bytes}).value;
}

base::Diagnostic refusal(const char* code, const NcclTest& test, std::string message, std::string help) {
  return {base::Severity::error, code, {test.file, 1, 1, 1}, std::move(message), std::move(help), {}};
}

/// Only letters and digits, in lower case: "NVIDIA H100 80GB HBM3" contains "h100".
std::string plain(const std::string& text) {
  std::string out;
  for (const unsigned char c : text)
    if (std::isalnum(c) != 0) out += static_cast<char>(std::tolower(c));
  return out;
}

/// Maps ranks to the cluster's devices: hosts are nodes in the order of their first rank; CUDA's number is the device
/// in the node if all numbers fit.
base::Result<std::vector<int>> members_of(const NcclTest& test, const clusters::Cluster& cluster) {
  const std::string& name = cluster.device().name;
  const std::string model = plain(name.substr(0, name.find_first_of("- ")));
  std::map<std::string, std::vector<const TestedRank*>> hosts;
  std::vector<std::string> order;
  for (const TestedRank& rank : test.ranks) {
    if (!rank.device_name.empty() && plain(rank.device_name).find(model) == std::string::npos)
      return base::fail({refusal(
          "E0310", test,
          fmt::format("rank {} ran on {}, but the cluster has {}", rank.rank, base::quoted(rank.device_name), name),
          "name the measured cluster with --cluster")});
    auto& ranks = hosts[rank.host];
    if (ranks.empty()) order.push_back(rank.host);
    ranks.push_back(&rank);
  }
  if (static_cast<int>(hosts.size()) > cluster.nodes)
    return base::fail({refusal(
        "E0310", test, fmt::format("the test ran on {} hosts, but the cluster has {}", hosts.size(), cluster.nodes),
        "name the measured cluster with --cluster, in the measured size or larger")});
  std::vector<int> members;
  for (std::size_t n = 0; n < order.size(); ++n) {
    const auto& ranks = hosts[order[n]];
    if (static_cast<int>(ranks.size()) > cluster.devices_per_node)
      return base::fail({refusal(
          "E0310", test,
          fmt::format("{} has {}, but a node of the cluster has {}", base::quoted(order[n]),
                      base::count_of(std::ssize(ranks), "rank"), base::count_of(cluster.devices_per_node, "device")),
          "name the measured cluster with --cluster")});
    std::set<int> devices;
    for (const TestedRank* rank : ranks) devices.insert(rank->device);
    const bool numbered = devices.size() == ranks.size() && *devices.rbegin() < cluster.devices_per_node;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      members.push_back(static_cast<int>(n) * cluster.devices_per_node +
                        (numbered ? ranks[i]->device : static_cast<int>(i)));
  }
  std::sort(members.begin(), members.end());
  return members;
}

/// sendrecv_perf sends along the ring of ranks: a hop between nodes, if any, determines the time.
std::vector<int> slowest_pair(const clusters::Cluster& cluster, const std::vector<int>& members) {
  for (std::size_t i = 0; i + 1 < members.size(); ++i)
    if (cluster.node_of(members[i]) != cluster.node_of(members[i + 1])) return {members[i], members[i + 1]};
  return {members[0], members[1]};
}

class NcclProblem {
 public:
  NcclProblem(const clusters::Cluster& cluster, const Calibration& before, std::vector<Timed> timed)
      : cluster_(cluster), before_(before), timed_(std::move(timed)) {
    for (const ParameterKind& kind : known_parameters()) {
      const double value = before.get(kind.name, 0);
      if (kind.name.rfind("network.", 0) == 0 && kind.prior > 0 && value > 0) {
        kinds_.push_back(kind);
        unknowns_.push_back({std::log(value), kind.prior, kind.low, kind.high});
      }
    }
    std::map<int, double> sizes;
    for (const Timed& one : timed_) sizes[one.log] += 1;
    const double average = static_cast<double>(timed_.size()) / static_cast<double>(sizes.size());
    for (const Timed& one : timed_) weights_.push_back(std::sqrt(average / sizes[one.log]));
  }

  void solve(const FitOptions& options) {
    solved_ = least_squares(
        unknowns_, weights_, [&](const std::vector<double>& theta) { return residuals_at(theta); }, options.huber,
        options.rounds);
  }

  [[nodiscard]] const std::vector<ParameterKind>& kinds() const { return kinds_; }
  [[nodiscard]] bool revealed(std::size_t j) const { return solved_.sensitivity[j] > kRevealed; }
  [[nodiscard]] double value(std::size_t j) const {
    return value_between(solved_.theta[j], kinds_[j].low, kinds_[j].high);
  }
  /// With values within their bounds; while solving they may leave them, or a derivative at a bound would be none.
  [[nodiscard]] Calibration calibration() const {
    Calibration c = at(solved_.theta);
    for (std::size_t j = 0; j < kinds_.size(); ++j) c.parameters[kinds_[j].name].value = value(j);
    return c;
  }

 private:
  [[nodiscard]] Calibration at(const std::vector<double>& theta) const {
    Calibration c = before_;
    for (std::size_t j = 0; j < kinds_.size(); ++j) c.parameters[kinds_[j].name].value = std::exp(theta[j]);
    return c;
  }
  [[nodiscard]] std::vector<double> residuals_at(const std::vector<double>& theta) const {
    const Network network = collective_network(cluster_, at(theta));
    std::vector<double> out;
    for (const Timed& one : timed_)
      out.push_back(std::log(std::max(1e-12, predicted_seconds(one, network)) / one.seconds));
    return out;
  }

  const clusters::Cluster& cluster_;
  const Calibration& before_;
  const std::vector<Timed> timed_;
  std::vector<ParameterKind> kinds_;
  std::vector<Unknown> unknowns_;
  std::vector<double> weights_;
  Solved solved_;
};

double mean_error(const std::vector<Timed>& timed, const clusters::Cluster& cluster, const Calibration& calibration) {
  const Network network = collective_network(cluster, calibration);
  double sum = 0;
  for (const Timed& one : timed) sum += std::abs(predicted_seconds(one, network) / one.seconds - 1);
  return timed.empty() ? std::nan("") : sum / static_cast<double>(timed.size());
}

double time_weighted_error(const std::vector<Timed>& timed, const clusters::Cluster& cluster,
                           const Calibration& calibration) {
  const Network network = collective_network(cluster, calibration);
  double wrong = 0, total = 0;
  for (const Timed& one : timed) {
    wrong += std::abs(predicted_seconds(one, network) - one.seconds);
    total += one.seconds;
  }
  return total > 0 ? wrong / total : 0;
}

double held_out_error(const std::vector<Timed>& timed, int logs, const clusters::Cluster& cluster,
                      const Calibration& before, const FitOptions& options) {
  const int folds = logs > 1 ? logs : 2;
  double sum = 0;
  int judged = 0;
  for (int fold = 0; fold < folds; ++fold) {
    std::vector<Timed> kept, out;
    for (std::size_t i = 0; i < timed.size(); ++i)
      ((logs > 1 ? timed[i].log : static_cast<int>(i % 2)) == fold ? out : kept).push_back(timed[i]);
    if (kept.empty() || out.empty()) continue;
    NcclProblem problem(cluster, before, kept);
    problem.solve(options);
    sum += mean_error(out, cluster, problem.calibration());
    ++judged;
  }
  return judged > 0 ? sum / judged : std::nan("");
}

/// Message sizes by log, fitted or too small, and what is excluded.
struct NcclEvidence {
  std::vector<Timed> fitted, small;
  std::vector<std::string> names, notes;
  base::Diagnostics wrong;
};

NcclEvidence evidence_of(const std::vector<NcclTest>& tests, const clusters::Cluster& cluster) {
  NcclEvidence out;
  for (const NcclTest& test : tests) {
    const auto members = members_of(test, cluster);
    if (!members) {
      out.wrong.insert(out.wrong.end(), members.error().begin(), members.error().end());
      continue;
    }
    const clusters::GroupSpan span =
        clusters::span_of(cluster, test.operation == Tested::send ? slowest_pair(cluster, *members) : *members);
    const auto log = static_cast<int>(out.names.size());
    std::size_t used = 0;
    for (const TestedSize& size : test.sizes) {
      const Timed one{log, test.operation, *members, span, size.bytes, size.seconds};
      (size.bytes >= kFittedFrom ? out.fitted : out.small).push_back(one);
      used += size.bytes >= kFittedFrom ? 1 : 0;
    }
    if (used == 0) {
      out.notes.push_back(
          fmt::format("{}: left out, since it has no size of {:.0f} bytes or more", test.file, kFittedFrom));
      std::erase_if(out.small, [&](const Timed& one) { return one.log == log; });
      continue;
    }
    out.names.push_back(test.file);
  }
  return out;
}

}  // namespace

base::Result<Fitted> fit_nccl_tests(const std::vector<NcclTest>& tests, const clusters::Cluster& cluster,
                                    const std::vector<Calibration>& calibrations, const FitOptions& options) {
  NcclEvidence evidence = evidence_of(tests, cluster);
  if (!evidence.wrong.empty()) return base::fail(std::move(evidence.wrong));
  if (evidence.fitted.empty())
    return base::fail("F01", fmt::format("no log can be used for calibration: {}", fmt::join(evidence.notes, "; ")),
                      "measure sizes up to 1 GiB or more: all_reduce_perf -b 8 -e 8G -f 2");
  const Calibration before = merge(defaults(cluster), calibrations);
  NcclProblem problem(cluster, before, evidence.fitted);
  problem.solve(options);
  const Calibration after = problem.calibration();

  Fitted out;
  out.result.notes = std::move(evidence.notes);
  out.result.error_before = mean_error(evidence.fitted, cluster, before);
  out.result.error_after = mean_error(evidence.fitted, cluster, after);
  out.result.time_weighted_error_before = time_weighted_error(evidence.fitted, cluster, before);
  out.result.time_weighted_error_after = time_weighted_error(evidence.fitted, cluster, after);
  out.result.held_out_error_after =
      held_out_error(evidence.fitted, static_cast<int>(evidence.names.size()), cluster, before, options);
  if (!evidence.small.empty())
    out.result.notes.push_back(
        fmt::format("{} sizes below {:.0f} MB were not fitted; their predictions have a mean error of {:.1f} %",
                    evidence.small.size(), kFittedFrom / 1e6, 100 * mean_error(evidence.small, cluster, after)));
  const Network earlier = collective_network(cluster, before), later = collective_network(cluster, after);
  for (const Timed& one : evidence.fitted)
    out.result.residuals.push_back({evidence.names[static_cast<std::size_t>(one.log)],
                                    fmt::format("{} {} ranks", name_of(one.operation), one.members.size()), one.seconds,
                                    predicted_seconds(one, earlier), predicted_seconds(one, later), false});

  const std::string source = fmt::format("fit {} to nccl-tests: {}", options.date, fmt::join(evidence.names, "; "));
  out.calibration.name = options.name;
  out.calibration.network = before.network;
  for (std::size_t j = 0; j < problem.kinds().size(); ++j) {
    if (!problem.revealed(j)) continue;
    const std::string& name = problem.kinds()[j].name;
    const Parameter& old = before.parameters.at(name);
    out.calibration.set(name, problem.value(j), source);
    out.result.parameters.push_back({name, old.value, problem.value(j), name_of(old.unit), source});
  }
  return out;
}

}  // namespace orrery::cost
