// Corrects clocks and matches spans that meet.
#include "exec/run/measured.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <tuple>
#include <type_traits>

#include "base/ensure.h"

namespace orrery::exec {
namespace {

template <class T>
void put(std::string& out, const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::uint64_t count = values.size();
  out.append(reinterpret_cast<const char*>(&count), sizeof count);
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <class T>
std::vector<T> take(const char*& at, const char* end) {
  std::uint64_t count = 0;
  ENSURE(end - at >= static_cast<std::ptrdiff_t>(sizeof count), "a record of {} bytes", end - at);
  std::memcpy(&count, at, sizeof count);
  at += sizeof count;
  ENSURE(static_cast<std::uint64_t>(end - at) >= count * sizeof(T), "{} values in {} bytes", count, end - at);
  std::vector<T> values(count);
  std::memcpy(values.data(), at, count * sizeof(T));
  at += count * sizeof(T);
  return values;
}

/// Identifies spans that meet: members of one call of a collective, or the two ends of a message.
using Meeting = std::tuple<int, int, int, std::int64_t, int>;

class Merger {
 public:
  Merger(const plan::Schedule& schedule, const std::vector<RankRecord>& records)
      : schedule_(schedule), records_(records) {}

  plan::Timeline merge(bool oversubscribed) {
    timeline_.origin = plan::Origin::measured;
    timeline_.spec = schedule_.spec;
    timeline_.oversubscribed = oversubscribed;
    origin_ = records_.front().iterations.empty() ? 0 : records_.front().iterations.front().begin;
    find_steps();
    for (std::size_t rank = 0; rank < records_.size(); ++rank) add_spans(static_cast<int>(rank));
    for (const auto& [span, meeting] : meets_) {
      plan::Span& s = timeline_.spans[span];
      s.start = std::clamp(latest_.at(meeting), s.ready, s.end);
    }
    add_operators();
    return std::move(timeline_);
  }

 private:
  double seconds(int rank, Nanoseconds local) const {
    return records_[static_cast<std::size_t>(rank)].clock.seconds(local, origin_);
  }

  void find_steps() {
    std::map<std::int32_t, std::pair<double, double>> steps;
    for (std::size_t rank = 0; rank < records_.size(); ++rank)
      for (const IterationRecord& one : records_[rank].iterations) {
        const double begin = seconds(static_cast<int>(rank), one.begin);
        const double end = seconds(static_cast<int>(rank), one.end);
        const auto [at, fresh] = steps.try_emplace(one.iteration, begin, end);
        if (!fresh) at->second = {std::min(at->second.first, begin), std::max(at->second.second, end)};
      }
    std::vector<double> durations;
    // Steps of a pipeline that does not drain overlap: the time from one end to the next is a step's.
    const bool apart = schedule_.spec.stages.asynchronous() && steps.size() > 1;
    for (auto at = steps.begin(); at != steps.end(); ++at) {
      const auto& [iteration, times] = *at;
      zero_[iteration] = times.first;
      if (!apart)
        durations.push_back(times.second - times.first);
      else if (at != steps.begin())
        durations.push_back(times.second - std::prev(at)->second.second);
    }
    if (durations.size() >= 3) durations.erase(durations.begin());  // the first touches pages and makes connections
    timeline_.step_time = median(durations);
  }

  void add_spans(int rank) {
    const plan::RankClass& rank_class = schedule_.class_of(rank);
    std::map<std::tuple<int, int, int>, std::int64_t> sequence;  // (iteration, group, stream) -> calls so far
    for (const RawSpan& raw : records_[static_cast<std::size_t>(rank)].spans) {
      const plan::Entry& entry = rank_class.program[static_cast<std::size_t>(raw.at.entry)];
      const plan::Step& step =
          rank_class.blocks[static_cast<std::size_t>(entry.block)].steps[static_cast<std::size_t>(raw.at.step)];
      const double zero = zero_.at(raw.iteration);
      const double ready = std::max(0.0, seconds(rank, raw.ready) - zero);
      const double end = std::max(ready, seconds(rank, raw.end) - zero);
      timeline_.spans.push_back({rank, raw.iteration, raw.at, raw.micro_batch, ready, ready, end});
      if (step.kind == plan::StepKind::compute || step.kind == plan::StepKind::copy) continue;
      const Meeting meeting = meeting_of(rank, raw, step, sequence);
      const auto [at, fresh] = latest_.try_emplace(meeting, ready);
      if (!fresh) at->second = std::max(at->second, ready);
      if (step.kind != plan::StepKind::send) meets_.emplace_back(timeline_.spans.size() - 1, meeting);
    }
  }

  /// Means over the ranks of a class, each weighted by its executions.
  void add_operators() {
    std::map<std::tuple<int, int, int, int>, std::pair<std::int64_t, double>> sums;
    for (std::size_t rank = 0; rank < records_.size(); ++rank) {
      const auto of = &schedule_.class_of(static_cast<int>(rank)) - schedule_.classes.data();
      for (const OperatorRecord& one : records_[rank].operators) {
        auto& [count, seconds] = sums[{static_cast<int>(of), one.block, one.step, one.op}];
        count += one.count;
        seconds += static_cast<double>(one.count) * one.seconds;
      }
    }
    for (const auto& [at, sum] : sums) {
      const auto& [rank_class, block, step, op] = at;
      timeline_.operators.push_back(
          {rank_class, block, step, op, sum.first, sum.second / static_cast<double>(sum.first)});
    }
  }

  Meeting meeting_of(int rank, const RawSpan& raw, const plan::Step& step,
                     std::map<std::tuple<int, int, int>, std::int64_t>& sequence) const {
    const int stream = static_cast<int>(step.stream);
    if (step.kind == plan::StepKind::collective) {
      const int first = schedule_.groups[step.group].base(rank);
      const auto group = static_cast<int>(step.group.index());
      const std::int64_t call = sequence[{raw.iteration, group, stream}]++;
      return {raw.iteration, group * static_cast<int>(plan::kStreams) + stream, first, call, 0};
    }
    const int peer = rank + step.peer * schedule_.spec.mesh.ranks_per_stage();
    const int from = step.kind == plan::StepKind::send ? rank : peer;
    const int to = step.kind == plan::StepKind::send ? peer : rank;
    const std::int64_t micro_batches = schedule_.spec.micro_batches();
    const plan::Entry& entry = schedule_.class_of(rank).program[static_cast<std::size_t>(raw.at.entry)];
    return {raw.iteration, -1 - step.tag, from, to, raw.micro_batch + static_cast<int>(entry.ahead * micro_batches)};
  }

  const plan::Schedule& schedule_;
  const std::vector<RankRecord>& records_;
  plan::Timeline timeline_;
  Nanoseconds origin_ = 0;
  std::map<std::int32_t, double> zero_;
  std::map<Meeting, double> latest_;
  std::vector<std::pair<std::size_t, Meeting>> meets_;
};

}  // namespace

std::string pack(const RankRecord& record) {
  std::string out;
  put(out, std::vector<ClockLine>{record.clock});
  put(out, record.iterations);
  put(out, record.spans);
  put(out, record.operators);
  return out;
}

RankRecord unpack(const std::string& bytes) {
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  RankRecord record;
  record.clock = take<ClockLine>(at, end).at(0);
  record.iterations = take<IterationRecord>(at, end);
  record.spans = take<RawSpan>(at, end);
  record.operators = take<OperatorRecord>(at, end);
  return record;
}

plan::Timeline measured_timeline(const plan::Schedule& schedule, const std::vector<RankRecord>& records,
                                 bool oversubscribed) {
  return Merger(schedule, records).merge(oversubscribed);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace orrery::exec
