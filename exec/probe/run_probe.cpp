// Interleaves rounds over workloads and messages, so that a busy second of the machine affects all of them alike.
#include "exec/probe/run_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json_tree.h"
#include "exec/engine/execute.h"
#include "exec/failure.h"
#include "exec/run/measured.h"

namespace orrery::exec {
namespace {

/// Shares of the budget.
constexpr double kAlone = 0.45, kTogether = 0.2, kMessages = 0.2;
constexpr int kMostPasses = 12;  ///< of a workload in one round

/// Parses a rank's measurements as it sent them.
nlohmann::json times_of(const std::string& text) {
  auto tree = base::parse_json(text, "the times of a rank");
  if (!tree) throw Failure(base::render(tree.error(), false));
  return std::move(*tree);
}

class Probe {
 public:
  Probe(const std::vector<Workload>& workloads, const std::vector<MessageCase>& messages, Backend& backend,
        Transport& transport, const Waiter& waiter, const ProbeOptions& options)
      : workloads_(workloads),
        messages_(messages),
        backend_(backend),
        transport_(transport),
        waiter_(waiter),
        options_(options),
        begin_(now()) {}

  Measured run() {
    measure_alone();
    if (transport_.size() > 1) measure_together();
    measure_streams();
    measure_copies();
    if (transport_.size() > 1 && !messages_.empty()) measure_messages();
    out_.device = backend_.device_name();
    out_.backend = backend_.name();
    out_.ranks = transport_.size();
    out_.threads = options_.threads;
    out_.oversubscribed = options_.oversubscribed;
    out_.seconds = static_cast<double>(now() - begin_) * 1e-9;
    if (!first()) return {};
    for (const WorkloadTimes& one : out_.workloads) report(event_of(one));
    for (const StreamTime& one : out_.streams) report(event_of(one));
    for (const MessageTime& one : out_.messages) report(event_of(one));
    for (const CopyTime& one : out_.copies) report(event_of(one));
    report(end_event_of(out_));
    return std::move(out_);
  }

 private:
  [[nodiscard]] bool first() const { return transport_.rank() == 0; }
  void report(const nlohmann::ordered_json& event) const {
    if (first() && options_.report) options_.report(event.dump());
  }
  void progress(const char* what, double share) const {
    report({{"event", "progress"}, {"what", what}, {"share", share}});
  }

  /// Number of passes that a share of the budget allows, the same on all ranks.
  [[nodiscard]] int passes_for(double pass_s, double share) const {
    const double each = options_.budget_s * share / (static_cast<double>(workloads_.size()) * options_.rounds);
    const int least = (options_.least_passes + options_.rounds - 1) / options_.rounds;
    return std::clamp(static_cast<int>(each / std::max(1e-9, pass_s)), least, kMostPasses);
  }

  /// Whether time is left for another round; on a busy or slow machine one must do.
  [[nodiscard]] bool within(Nanoseconds begin, double share) const {
    return static_cast<double>(now() - begin) * 1e-9 <= options_.budget_s * share;
  }

  [[nodiscard]] static double seconds_of(LoadedWorkload& loaded) {
    const Nanoseconds from = now();
    loaded.pass(nullptr);
    return static_cast<double>(now() - from) * 1e-9;
  }

  /// Measures on rank 0 alone while the others sleep in the barrier.
  void measure_alone() {
    for (const Workload& w : workloads_) loaded_.emplace_back(w, backend_);
    samples_.resize(workloads_.size());
    pass_s_.resize(workloads_.size());
    const Nanoseconds begin = now();
    if (first())
      for (int round = 0; round < options_.rounds && within(begin, kAlone); ++round)
        for (std::size_t i = 0; i < loaded_.size(); ++i) {
          progress("operators on one core", share_of(round, i, loaded_.size()));
          visit(i, round);
        }
    transport_.barrier();
    if (!first()) return;
    for (std::size_t i = 0; i < loaded_.size(); ++i)
      out_.workloads.push_back({workloads_[i].name, summarise(workloads_[i], samples_[i]), median(pass_s_[i]), 0, 0});
  }

  void visit(std::size_t i, int round) {
    if (round == 0) loaded_[i].fill();
    const double warm = seconds_of(loaded_[i]);  // warms up caches, pages and clock for this workload
    const int passes = passes_for(warm, kAlone);
    for (int pass = 0; pass < passes; ++pass) {
      const Nanoseconds from = now();
      loaded_[i].pass(&samples_[i]);
      pass_s_[i].push_back(static_cast<double>(now() - from) * 1e-9);
    }
  }

  /// Runs the same workload on all ranks at the same time; a pass lasts as long as its slowest rank.
  void measure_together() {
    plan::Group all;
    all.name = "probe, all";
    all.dimensions = {{1, transport_.size()}};
    const GroupId world = transport_.make_group(all);
    std::byte* flag = backend_.allocate_arena(static_cast<std::int64_t>(sizeof(float)));
    std::vector<std::vector<double>> mine(loaded_.size());
    const Nanoseconds begin = now();
    for (int round = 0; round < options_.rounds && transport_.maximum(within(begin, kTogether) ? 0 : 1) == 0; ++round)
      for (std::size_t i = 0; i < loaded_.size(); ++i) {
        progress("operators on all cores", share_of(round, i, loaded_.size()));
        if (round == 0 && !first()) loaded_[i].fill();
        const int passes = passes_for(transport_.maximum(seconds_of(loaded_[i])), kTogether);
        for (int pass = 0; pass < passes; ++pass) {
          // Ranks leave this awake, and within a message's time of each other.
          const auto meet = transport_.all_reduce(world, plan::Reduce::maximum, models::DType::fp32, flag, 1);
          waiter_.finish(*meet, [] { return std::string("the ranks of a probe to meet"); });
          mine[i].push_back(seconds_of(loaded_[i]));
        }
      }
    const std::vector<std::string> texts = transport_.gather_text(nlohmann::json(mine).dump());
    if (first()) take_together(texts);
  }

  void take_together(const std::vector<std::string>& texts) {
    std::vector<std::vector<std::vector<double>>> ranks;
    for (const std::string& text : texts) ranks.push_back(times_of(text).get<std::vector<std::vector<double>>>());
    for (std::size_t i = 0; i < loaded_.size(); ++i) {
      std::vector<double> slowest = ranks.front()[i], mean(slowest.size(), 0.0);
      for (const auto& rank : ranks)
        for (std::size_t pass = 0; pass < slowest.size(); ++pass) {
          slowest[pass] = std::max(slowest[pass], rank[i][pass]);
          mean[pass] += rank[i][pass] / static_cast<double>(ranks.size());
        }
      out_.workloads[i].pass_together_s = median(std::move(mean));
      out_.workloads[i].pass_slowest_s = median(std::move(slowest));
    }
  }

  [[nodiscard]] double share_of(int round, std::size_t done, std::size_t all) const {
    return (round + static_cast<double>(done) / static_cast<double>(all)) / options_.rounds;
  }

  void measure_streams();
  void stream(LoadedWorkload& loaded, bool alone);
  void measure_copies();
  void measure_messages();

  const std::vector<Workload>& workloads_;
  const std::vector<MessageCase>& messages_;
  Backend& backend_;
  Transport& transport_;
  const Waiter& waiter_;
  const ProbeOptions& options_;
  Nanoseconds begin_;
  Measured out_;
  std::vector<LoadedWorkload> loaded_;
  std::vector<std::vector<std::vector<double>>> samples_;  ///< by workload, operator, pass
  std::vector<std::vector<double>> pass_s_;
};

/// Measures large arrays, on one rank and on all at once.
void Probe::measure_streams() {
  constexpr std::int64_t kDefault = std::int64_t{64} << 20;
  const Workload large = streams_workload(options_.stream_bytes > 0 ? options_.stream_bytes : kDefault, 1);
  LoadedWorkload loaded(large, backend_);
  loaded.fill();
  progress("memory", 0);
  if (first()) stream(loaded, true);
  transport_.barrier();
  progress("memory", 0.5);
  if (transport_.size() > 1) stream(loaded, false);
}

void Probe::stream(LoadedWorkload& loaded, bool alone) {
  constexpr int kPasses = 5;
  std::vector<std::vector<double>> samples;
  for (int pass = 0; pass < kPasses; ++pass) {
    if (!alone) transport_.barrier();
    loaded.pass(&samples);
  }
  const Workload& w = loaded.workload();
  for (std::size_t i = 0; i < w.ops.size(); ++i) {
    double seconds = median(samples[i]);
    if (!alone) seconds = transport_.maximum(seconds);
    const double bytes = models::bytes_of(w.ops[i]);
    const int ranks = alone ? 1 : transport_.size();
    if (first())
      out_.streams.push_back({models::name_of(w.ops[i].kind), static_cast<std::int64_t>(bytes), ranks,
                              ranks * bytes / std::max(1e-12, seconds)});
  }
}

/// Measures all ranks at once, as they offload: they share the host's memory and, with GPUs, the way to it.
void Probe::measure_copies() {
  constexpr std::int64_t kSmallest = std::int64_t{64} << 10, kLargest = std::int64_t{64} << 20, kStep = 4;
  constexpr int kPasses = 5;
  const std::int64_t most = std::min(kLargest, options_.most_bytes / 4);
  std::byte *device = nullptr, *host = nullptr;
  try {
    host = backend_.allocate_host(most);
    device = backend_.allocate_arena(most);
  } catch (const Failure&) {
    return;  // a backend without host memory: nothing can be offloaded
  }
  const std::vector<std::byte> zeros(static_cast<std::size_t>(most));  // touches every page
  backend_.copy_to_device(device, zeros);
  std::memcpy(host, zeros.data(), zeros.size());
  progress("copies to the host's memory and back", 0);
  for (std::int64_t bytes = kSmallest; bytes <= most; bytes *= kStep)
    for (const bool to_host : {true, false}) {
      std::vector<double> samples;
      for (int pass = 0; pass <= kPasses; ++pass) {
        transport_.barrier();
        const Nanoseconds from = now();
        backend_.copy_between(to_host ? host : device, to_host ? device : host, static_cast<std::size_t>(bytes), false);
        if (pass > 0) samples.push_back(static_cast<double>(now() - from) * 1e-9);
      }
      const double seconds = transport_.maximum(median(std::move(samples)));
      if (first()) out_.copies.push_back({to_host, bytes, transport_.size(), seconds});
    }
}

void Probe::measure_messages() {
  MessageTimer timer(messages_, backend_, transport_, waiter_);
  std::vector<std::vector<MessageTimer::Interval>> intervals(messages_.size());
  const Nanoseconds begin = now();
  const double budget_ns = 1e9 * options_.budget_s * kMessages;
  for (int round = 0; round < options_.rounds; ++round) {
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      progress("messages", share_of(round, i, messages_.size()));
      for (int s = 0; s < options_.message_samples; ++s) intervals[i].push_back(timer.sample(messages_[i]));
    }
    if (transport_.maximum(static_cast<double>(now() - begin)) > budget_ns) break;
  }
  nlohmann::json mine = nlohmann::json::array();
  for (const auto& samples : intervals) {
    mine.emplace_back(nlohmann::json::array());
    for (const auto& s : samples) mine.back().push_back({s.begin, s.end});
  }
  const std::vector<std::string> texts = transport_.gather_text(mine.dump());
  if (!first()) return;
  std::vector<nlohmann::json> ranks;
  for (const std::string& text : texts) ranks.push_back(times_of(text));
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    std::vector<std::vector<MessageTimer::Interval>> by_rank;
    for (const nlohmann::json& rank : ranks) {
      by_rank.emplace_back();
      for (const nlohmann::json& s : rank[i])
        by_rank.back().push_back({s[0].get<std::int64_t>(), s[1].get<std::int64_t>()});
    }
    out_.messages.push_back({messages_[i], message_seconds(by_rank)});
  }
}

}  // namespace

Measured run_probe(const std::vector<Workload>& workloads, const std::vector<MessageCase>& messages, Backend& backend,
                   Transport& transport, const Waiter& waiter, const ProbeOptions& options) {
  return Probe(workloads, messages, backend, transport, waiter, options).run();
}

}  // namespace orrery::exec
