// What each guard checks, and how ranks agree.
#include "exec/run/guards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "exec/engine/row_moves.h"
#include "exec/events.h"
#include "exec/run/metrics.h"
#include "exec/run/trainer.h"
#include "exec/state/checkpoint.h"
#include "exec/state/held_states.h"
#include "exec/state/state_hash.h"
#include "plan/schedule/waits.h"

namespace orrery::exec {
namespace {

constexpr char kRanks = '\x01';        // in a fault's text: where to name the ranks that found it
constexpr std::size_t kMostNamed = 3;  // tensors in a message
constexpr const char* kStands = "the last checkpoint remains";
constexpr const char* kGoOn = "--resume continues from the last checkpoint; ";

std::string stage_of(const plan::Schedule& schedule, const std::vector<int>& ranks) {
  std::set<plan::StageId> stages;
  for (const int rank : ranks) stages.insert(schedule.class_of(rank).stage);
  if (schedule.spec.mesh.pipeline == 1) return "";
  return fmt::format(" (stage{} {})", stages.size() > 1 ? "s" : "", fmt::join(stages, ", "));
}

std::string named(const plan::Schedule& schedule, const std::vector<int>& ranks) {
  return fmt::format("rank{} {}{}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "), stage_of(schedule, ranks));
}

/// A rank's contribution to a comparison: one for each part that others may hold too.
struct Held {
  std::uint64_t key = 0, hash = 0;
};

struct Holder {
  int rank = 0;
  std::uint64_t hash = 0;
  std::size_t place = 0;  ///< index among those of its rank
};

std::vector<Held> unpack(const std::string& bytes) {
  std::vector<Held> out(bytes.size() / sizeof(Held));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(Held));
  return out;
}

/// The holders that differ from the majority of holders that should be equal. None if all agree.
std::vector<int> minority(const std::vector<Holder>& holders, bool& majority) {
  std::map<std::uint64_t, std::vector<int>> by_hash;
  for (const Holder& one : holders) by_hash[one.hash].push_back(one.rank);
  if (by_hash.size() < 2) return {};
  const auto most = std::max_element(by_hash.begin(), by_hash.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  majority = 2 * most->second.size() > holders.size();
  std::vector<int> out;
  for (const auto& [hash, ranks] : by_hash)
    if (!majority || hash != most->first) out.insert(out.end(), ranks.begin(), ranks.end());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

Guards::Guards(const CheckpointContext& context, const GuardOptions& options, int threads)
    : context_(context),
      options_(options),
      threads_(threads),
      parts_(held_parts(context.schedule, context.transport.rank())) {
  const plan::RankClass& rank_class = context.schedule.class_of(context.transport.rank());
  has_loss_ = rank_class.loss.exists();
  has_norm_ = rank_class.gradient_norm.exists();
}

Guards::~Guards() = default;

/// Only the first fault of each kind counts: later ones follow from it.
void Guards::fault(const char* code, const std::string& what, const char* help) {
  for (const base::Diagnostic& one : faults_)
    if (one.code == code) return;
  faults_.push_back(
      {base::Severity::error, code, {}, fmt::format("{}; {}", what, kStands), kGoOn + std::string(help), {}});
}

void Guards::see(std::int64_t step, const StepResult& mine) {
  opened_ = true;
  trained_s_ += mine.seconds;
  if (has_loss_ && !std::isfinite(mine.loss))
    fault("R0020", fmt::format("the loss of step {} is {} on {}", step, mine.loss, kRanks),
          "a lower learning rate, clip_norm or other data");
  if (has_norm_ && !mine.skipped && !std::isfinite(mine.gradient_norm))
    fault("R0021", fmt::format("the gradient norm of step {} is {} on {}", step, mine.gradient_norm, kRanks),
          "a lower learning rate, clip_norm or other data");
  counts_.skipped += mine.skipped ? 1 : 0;
  skips_ = mine.skipped && mine.loss_scale <= 1 ? skips_ + 1 : 0;
  if (skips_ >= kMostSkips)
    fault("R0023",
          fmt::format(
              "gradients overflowed in {} steps in a row up to step {}, although the loss was no longer scaled, on {}",
              skips_, step, kRanks),
          "precision: bf16 has fp32's range");
}

void Guards::see_held_out(std::int64_t step, double loss) {
  if (!std::isfinite(loss))
    fault("R0020", fmt::format("the loss on held-out data after step {} is {} on {}", step, loss, kRanks),
          "a lower learning rate, clip_norm or other data");
}

std::vector<std::string> Guards::see_joined(const StepMetrics& step, const Report& report) {
  std::vector<std::string> out;
  if (step.skipped) return out;
  for (const Spike& spike : spikes_.see(step.loss, step.gradient_norm)) {
    out.push_back(spike.quantity);
    report({{"event", "spike"},
            {"step", step.step},
            {"quantity", spike.quantity},
            {"value", spike.value},
            {"median", spike.median},
            {"score", spike.score}});
    const std::string what = fmt::format(
        "the {} of step {} is {:.6g}, far above {:.6g}, the median of the last steps (a score of {:.1f})",
        spike.quantity == "loss" ? "loss" : "gradient norm", step.step, spike.value, spike.median, spike.score);
    if (options_.stop_on_spike)
      fault("R0024", what, "--on-spike warn continues in spite of it");
    else if (counts_.spikes < kMostWarnings)
      report(diagnostic_event({base::Severity::warning, "R0024", {}, what, "--on-spike stop ends a run there", {}}));
    ++counts_.spikes;
  }
  return out;
}

bool Guards::look_due(std::int64_t step) const {
  if (options_.hash_every) return *options_.hash_every > 0 && step - looked_at_ >= *options_.hash_every;
  if (context_.transport.rank() != 0) return false;
  return counts_.looks_s + last_look_s_ <= kShareOfTime * trained_s_;
}

bool Guards::look(std::int64_t step) {
  const Clock::time_point begin = Clock::now();
  settle_tables(context_.schedule, context_.transport.rank(), context_.arena);
  last_ = look_at(parts_, context_, threads_);
  looked_at_ = step;
  not_finite(step);
  std::vector<Held> mine;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (!parts_[i].key.empty()) mine.push_back({hash_of(parts_[i].key), last_[i].hash});
  const std::vector<std::string> all =
      context_.transport.gather_text({reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(Held)});
  if (context_.transport.rank() == 0) compare(step, all);
  const bool bad = context_.transport.maximum(faulty() ? 1.0 : 0.0) > 0;
  last_look_s_ = std::chrono::duration<double>(Clock::now() - begin).count();
  counts_.looks_s += last_look_s_;
  ++counts_.looks;
  return bad;
}

void Guards::not_finite(std::int64_t step) {
  std::int64_t more = -1;
  const HeldPart* first = nullptr;
  std::int64_t element = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!last_[i].not_finite) continue;
    ++more;
    if (first != nullptr) continue;
    first = &parts_[i];
    element = *last_[i].not_finite;
  }
  if (first == nullptr) return;
  fault("R0022",
        fmt::format("after step {} element {} of what {} holds of {} ({}){} is not a finite number", step, element,
                    kRanks, first->tensor, first->state,
                    more > 0 ? fmt::format(", and some of {} other tensors,", more) : ""),
        "a lower learning rate, clip_norm or other data");
}

void Guards::compare(std::int64_t step, const std::vector<std::string>& all) {
  std::map<std::uint64_t, std::vector<Holder>> held;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::vector<Held> theirs = unpack(all[rank]);
    for (std::size_t i = 0; i < theirs.size(); ++i)
      held[theirs[i].key].push_back({static_cast<int>(rank), theirs[i].hash, i});
  }
  std::size_t count = 0;
  std::vector<std::string> tensors;
  for (const auto& [key, holders] : held) {
    bool majority = false;
    const std::vector<int> wrong = minority(holders, majority);
    if (wrong.empty() || ++count > kMostNamed) continue;
    std::vector<HeldPart> parts = held_parts(context_.schedule, wrong.front());
    std::erase_if(parts, [](const HeldPart& one) { return one.key.empty(); });
    const auto place = std::find_if(holders.begin(), holders.end(), [&](const Holder& one) {
                         return one.rank == wrong.front();
                       })->place;
    tensors.push_back(
        fmt::format("{} ({}) on {}{}", parts[place].tensor, parts[place].state, named(context_.schedule, wrong),
                    majority ? fmt::format(", unlike the {} others that hold it", holders.size() - wrong.size()) : ""));
  }
  if (count == 0) return;
  std::sort(tensors.begin(), tensors.end());
  fault("R0025",
        fmt::format("after step {} ranks that must hold equal values do not: {}{}", step, fmt::join(tensors, "; "),
                    count > kMostNamed ? fmt::format("; and {} other tensors", count - kMostNamed) : ""),
        "a rank that is named again and again has bad memory or a bad core");
}

std::map<plan::StepRef, std::vector<std::size_t>> Guards::first_writes(std::int64_t index) const {
  const plan::RankClass& rank_class = context_.schedule.class_of(context_.transport.rank());
  std::map<plan::BufferId, std::vector<std::size_t>> waiting;  // by buffer
  for (std::size_t i = 0; i < parts_.size(); ++i) waiting[parts_[i].buffer].push_back(i);
  std::map<plan::StepRef, std::vector<std::size_t>> out;
  for (std::size_t e = 0; e < rank_class.program.size(); ++e) {
    const plan::Entry& entry = rank_class.program[e];
    if (!plan::runs(entry, index, plan::kEveryStep, !opened_)) continue;
    const std::vector<plan::Step>& steps = rank_class.blocks[static_cast<std::size_t>(entry.block)].steps;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      if (!steps[s].runs_in(index + entry.ahead)) continue;
      for (const plan::BufferId buffer : steps[s].writes) {
        const auto found = waiting.find(buffer);
        if (found == waiting.end()) continue;
        auto& here = out[{static_cast<std::int32_t>(e), static_cast<std::int32_t>(s)}];
        here.insert(here.end(), found->second.begin(), found->second.end());
        waiting.erase(found);
      }
    }
  }
  return out;
}

Guards::BeforeEach Guards::watch(std::int64_t index, const BeforeEach& before) {
  if (looked_at_ != index || context_.backend.asynchronous() || options_.hash_every == 0) return before;
  return [this, index, before, due = first_writes(index)](const plan::StepRef& at) {
    if (before) before(at);
    if (const auto found = due.find(at); found != due.end()) check(found->second, index + 1);
  };
}

void Guards::check(const std::vector<std::size_t>& parts, std::int64_t step) {
  const Clock::time_point begin = Clock::now();
  for (const std::size_t i : parts) {
    if (look_at(parts_[i], context_).hash == last_[i].hash) continue;
    fault("R0026",
          fmt::format("what {} holds of {} ({}) changed in memory between the end of step {} and its update in step {}",
                      kRanks, parts_[i].tensor, parts_[i].state, step - 1, step),
          "a rank that is named again and again has bad memory");
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  last_look_s_ += seconds;
  counts_.looks_s += seconds;
}

base::Diagnostics Guards::faults() const {
  const std::vector<std::string> all = context_.transport.gather_text(pack_diagnostics(faults_));
  if (context_.transport.rank() != 0) {
    if (faults_.empty())
      return {{base::Severity::error, "R0020", {}, "the guards of another rank ended the run", "rank 0 says why", {}}};
    return faults_;
  }
  base::Diagnostics out;
  std::vector<std::vector<int>> ranks;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (base::Diagnostic& one : unpack_diagnostics(all[rank])) {
      const auto at = static_cast<std::size_t>(std::find(out.begin(), out.end(), one) - out.begin());
      if (at == out.size()) {
        out.push_back(std::move(one));
        ranks.emplace_back();
      }
      ranks[at].push_back(static_cast<int>(rank));
    }
  for (std::size_t i = 0; i < out.size(); ++i)
    if (const std::size_t at = out[i].message.find(kRanks); at != std::string::npos)
      out[i].message.replace(at, 1, named(context_.schedule, ranks[i]));
  return out;
}

}  // namespace orrery::exec
