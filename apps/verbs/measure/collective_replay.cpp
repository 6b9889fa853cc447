// collective --replay.
#include "apps/verbs/measure/collective_replay.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/units.h"
#include "clusters/paths.h"
#include "sim/collectives/collective_replay.h"

namespace orrery::apps {
namespace {

using nlohmann::json;

std::optional<plan::Goal> goal_of(cost::Operation operation) {
  switch (operation) {
    case cost::Operation::all_reduce: return plan::Goal::all_reduce;
    case cost::Operation::all_gather: return plan::Goal::all_gather;
    case cost::Operation::reduce_scatter: return plan::Goal::reduce_scatter;
    case cost::Operation::broadcast: return plan::Goal::broadcast;
    case cost::Operation::reduce: return plan::Goal::reduce;
    case cost::Operation::all_to_all: return plan::Goal::all_to_all;
    case cost::Operation::send: return std::nullopt;
  }
  return std::nullopt;
}

/// The algorithms to replay, and why others that can do the operation elsewhere are left out.
struct Chosen {
  std::vector<plan::Algorithm> algorithms;
  std::vector<std::string> left_out;
};

/// `what`: the case without algorithm and message.
base::Result<Chosen> chosen_of(const CollectiveOptions& options, const clusters::Cluster& cluster,
                               sim::CollectiveCase what) {
  Chosen chosen;
  std::vector<std::string> names, able;
  std::string why = fmt::format("there is no algorithm `{}` to replay", options.algorithm);
  for (std::size_t a = 0; a < plan::kAlgorithms; ++a) {
    what.algorithm = static_cast<plan::Algorithm>(a);
    const std::string name = plan::name_of(what.algorithm);
    const std::string not_here = sim::why_not(cluster, what, options.operation);
    names.push_back(name);
    if (not_here.empty()) able.push_back(name);
    if (name == options.algorithm) why = not_here;
    if (!options.algorithm.empty() && name != options.algorithm) continue;
    if (not_here.empty()) {
      chosen.algorithms.push_back(what.algorithm);
    } else if (plan::can(what.algorithm, what.goal, {2, 1, 1})) {
      chosen.left_out.push_back("left out: " + not_here);
    }
  }
  if (!chosen.algorithms.empty()) return chosen;
  if (options.algorithm.empty()) return base::fail("U0001", chosen.left_out.front(), "choose fewer ranks");
  return base::fail("U0001", "--algorithm: " + why,
                    fmt::format("{} among these ranks: {}; all known algorithms: {}", options.operation,
                                fmt::join(able, ", "), fmt::join(names, ", ")));
}

json json_of(const sim::CollectiveCase& what, const cost::CollectivePrice& library,
             const sim::CollectiveReplay& replay) {
  json links = json::array();
  for (const cost::LinkRow& row : replay.links) {
    links.push_back({{"class", row.name},
                     {"bytes", row.bytes},
                     {"mean_utilisation", row.mean_utilisation},
                     {"peak_utilisation", row.peak_utilisation}});
  }
  return {{"bytes", what.message.value},
          {"algorithm", plan::name_of(what.algorithm)},
          {"pieces", plan::in_pieces(what.algorithm, what.goal) ? json(what.pieces) : json(nullptr)},
          {"library_time_s", library.time.value},
          {"library_algorithm", library.algorithm},
          {"library_protocol", library.protocol},
          {"closed_form_s", replay.closed_form.value},
          {"replay_s", replay.replay.value},
          {"latency_s", replay.latency.value},
          {"messages", replay.messages},
          {"binds", replay.binds()},
          {"bound_share", replay.bound_share()},
          {"links", std::move(links)}};
}

/// The link classes other than the bottleneck, with the load of their busiest link.
std::string others(const sim::CollectiveReplay& replay) {
  std::vector<std::string> texts;
  for (const cost::LinkRow& row : replay.links)
    if (row.name != replay.binds()) texts.push_back(row.name + " " + reports::percent(row.peak_utilisation));
  return fmt::format("{}", fmt::join(texts, ", "));
}

reports::Table head_of(const CollectiveOptions& options, const clusters::Cluster& cluster, std::size_t ranks) {
  using reports::Align;
  reports::Table table;
  table.title = fmt::format("{} over {} ranks of {}, replayed on its links", options.operation, ranks, cluster.name);
  if (options.tasks > 1)
    table.title = fmt::format("{} of {} at once, each over {} ranks of {}, replayed on its links", options.tasks,
                              options.operation, ranks / static_cast<std::size_t>(options.tasks), cluster.name);
  table.columns = {{"size"},
                   {"algorithm", Align::left},
                   {"pieces", Align::right, 0, 2},
                   {"library"},
                   {"by", Align::left, 0, 1},
                   {"closed form"},
                   {"replay"},
                   {"binds", Align::left},
                   {"use"},
                   {"other links", Align::left, 0, 3}};
  table.notes = {fmt::format("library: as the library is tuned. closed form: {} alone on the network, by the links' "
                             "datasheets. replay: every message on these links{}.",
                             options.channels > 1 ? "one channel" : "the algorithm",
                             options.tasks > 1 ? ", all tasks at once" : ""),
                 "binds: the busiest links, and their share of the time; or latency, if empty messages would take more "
                 "than half."};
  return table;
}

}  // namespace

base::Result<ReplayedOnLinks> replay_on_links(const CollectiveOptions& options, const clusters::Cluster& cluster,
                                              cost::Operation operation, const std::vector<int>& ranks,
                                              const std::vector<double>& sizes, const LibraryPrice& library) {
  const std::optional<plan::Goal> goal = goal_of(operation);
  if (!goal) return base::fail("U0001", "--replay: a send is a single message, not a collective", "leave out --replay");
  sim::CollectiveCase what;
  what.goal = *goal;
  what.channels = options.channels;
  what.tasks = sim::dealt_out(cluster, ranks, options.tasks);
  if (what.tasks.empty() || what.tasks.front().size() < 2)
    return base::fail("U0001",
                      fmt::format("--tasks: {} ranks cannot be dealt out evenly to {}", ranks.size(), options.tasks),
                      "choose a divisor of a node's ranks, or a multiple of them that leaves each task two ranks");
  const auto chosen = chosen_of(options, cluster, what);
  if (!chosen) return base::fail(chosen.error());
  clusters::Paths paths(cluster);
  const sim::Fabric fabric(cluster);
  ReplayedOnLinks result{head_of(options, cluster, ranks.size()), {}};
  json rows = json::array();
  for (const double bytes : sizes) {
    what.message = base::Bytes{bytes};
    what.pieces = options.pieces > 0 ? options.pieces : sim::pieces_of(what.message / options.channels);
    const cost::CollectivePrice price = library(what.message, what.tasks.front());
    for (const plan::Algorithm algorithm : chosen->algorithms) {
      what.algorithm = algorithm;
      const sim::CollectiveReplay replay = sim::replay_collective(cluster, paths, fabric, what);
      rows.push_back(json_of(what, price, replay));
      const json& pieces = rows.back().at("pieces");
      result.table.rows.push_back({base::human(what.message), plan::name_of(algorithm),
                                   pieces.is_null() ? "" : pieces.dump(), reports::time_text(price.time.value),
                                   price.algorithm + " " + price.protocol, reports::time_text(replay.closed_form.value),
                                   reports::time_text(replay.replay.value), replay.binds(),
                                   reports::percent(replay.bound_share()), others(replay)});
    }
  }
  result.table.notes.insert(result.table.notes.end(), chosen->left_out.begin(), chosen->left_out.end());
  result.json = json{{"tasks", options.tasks}, {"channels", options.channels}, {"rows", std::move(rows)}}.dump();
  return result;
}

}  // namespace orrery::apps
