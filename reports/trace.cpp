/// Writes Chrome trace events.
#include "reports/trace.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "reports/spans.h"

namespace orrery::reports {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Whole nanoseconds: rounding preserves the order of times, so spans that touch still touch and never overlap.
std::int64_t nanoseconds(double seconds) {
  return std::llround(seconds * 1e9);
}

std::string microseconds(std::int64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

class TraceWriter {
 public:
  template <class... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  void complete(int pid, int tid, const std::string& name, const char* category, std::int64_t from, std::int64_t to,
                const std::string& args) {
    event(R"({{"ph":"X","pid":{},"tid":{},"name":{},"cat":"{}","ts":{},"dur":{},"args":{{{}}}}})", pid, tid,
          quoted(name), category, microseconds(from), microseconds(to - from), args);
  }
  void metadata(int pid, int tid, const char* name, const char* key, const std::string& value) {
    event(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"{}":{}}}}})", pid, tid, name, key, value);
  }
  [[nodiscard]] std::string take(const std::string& other) {
    return "{\"displayTimeUnit\":\"ms\",\"otherData\":{" + other + "},\"traceEvents\":[" + std::move(text_) + "\n]}\n";
  }

 private:
  std::string text_;
  bool first_ = true;
};

std::string label(const plan::Step& step) {
  if (step.layer) return fmt::format("{} {}", step.part, step.layer);
  return step.part.empty() ? plan::name_of(step.kind) : step.part;
}

std::string arguments(const plan::Span& span, const plan::Step& step, const plan::Schedule& schedule) {
  std::string args = fmt::format(R"("iteration":{},"entry":{},"step":{})", span.iteration, span.at.entry, span.at.step);
  if (span.micro_batch >= 0) args += fmt::format(R"(,"micro_batch":{})", span.micro_batch);
  if (step.layer) args += fmt::format(R"(,"layer":{})", step.layer);
  if (step.kind != plan::StepKind::compute)
    args += fmt::format(R"(,"bytes":{})", step.message_bytes(schedule.class_of(span.rank).buffers));
  if (step.kind == plan::StepKind::collective) {
    args += fmt::format(R"(,"collective":"{}")", plan::name_of(step.collective));
    if (step.group) args += fmt::format(R"(,"group":{})", quoted(schedule.groups[step.group].name));
  }
  return args;
}

/// Pairs sends with receives: by ends, tag and micro-batch, in order of occurrence.
class Flows {
 public:
  Flows(TraceWriter& out, const plan::Schedule& schedule) : out_(out), schedule_(schedule) {}

  void add(const plan::Span& span, const plan::Step& step) {
    const int peer = peer_of(span.rank, step, schedule_.spec);
    const bool sends = step.kind == plan::StepKind::send;
    const Key key{sends ? span.rank : peer, sends ? peer : span.rank, step.tag, span.micro_batch};
    const End end{static_cast<int>(step.stream), nanoseconds(span.start), nanoseconds(span.end)};
    (sends ? sent_ : received_)[key].push_back(end);
  }

  /// One arrow per pair whose ends are both shown.
  void write() {
    int id = 0;
    for (const auto& [key, sent] : sent_) {
      const auto found = received_.find(key);
      if (found == received_.end()) continue;
      const auto& [from, to, tag, micro_batch] = key;
      for (std::size_t i = 0; i < std::min(sent.size(), found->second.size()); ++i) {
        const End& a = sent[i];
        const End& b = found->second[i];
        const std::int64_t arrival = std::max(a.start, b.start);
        if (arrival > b.end) continue;  // the ranks' clocks disagree by more than the transfer took
        ++id;
        out_.event(R"({{"ph":"s","pid":{},"tid":{},"name":"message","cat":"flow","id":{},"ts":{}}})", from, a.tid, id,
                   microseconds(a.start));
        out_.event(R"({{"ph":"f","bp":"e","pid":{},"tid":{},"name":"message","cat":"flow","id":{},"ts":{}}})", to,
                   b.tid, id, microseconds(arrival));
      }
    }
  }

 private:
  using Key = std::tuple<int, int, int, int>;  // from, to, tag, micro-batch
  struct End {
    int tid = 0;
    std::int64_t start = 0, end = 0;
  };
  TraceWriter& out_;
  const plan::Schedule& schedule_;
  std::map<Key, std::vector<End>> sent_, received_;
};

void write_memory(TraceWriter& out, int rank, const std::vector<plan::Span>& spans, const plan::Schedule& schedule) {
  const std::vector<MemoryPoint> points = memory_of(spans, schedule);
  std::set<plan::Purpose> purposes;
  for (const MemoryPoint& point : points)
    for (const auto& [purpose, bytes] : point.bytes)
      if (bytes > 0) purposes.insert(purpose);
  for (const MemoryPoint& point : points) {
    std::string args;
    for (const plan::Purpose purpose : purposes) {
      const auto found = point.bytes.find(purpose);
      args += fmt::format("{}\"{}\":{}", args.empty() ? "" : ",", plan::name_of(purpose),
                          found == point.bytes.end() ? 0 : found->second);
    }
    out.event(R"({{"ph":"C","pid":{},"tid":0,"name":"memory, bytes","ts":{},"args":{{{}}}}})", rank,
              microseconds(nanoseconds(point.time)), args);
  }
}

void write_names(TraceWriter& out, int rank, const std::vector<plan::Span>& spans, const plan::Schedule& schedule) {
  const plan::RankClass& c = schedule.class_of(rank);
  out.metadata(rank, 0, "process_name", "name", quoted(fmt::format("rank {} · stage {}", rank, c.stage)));
  out.metadata(rank, 0, "process_sort_index", "sort_index", std::to_string(rank));
  std::set<plan::Stream> streams;
  for (const plan::Span& s : spans) streams.insert(step_of(s, schedule).stream);
  for (const plan::Stream stream : streams) {
    const int tid = static_cast<int>(stream);
    out.metadata(rank, tid, "thread_name", "name", quoted(plan::name_of(stream)));
    out.metadata(rank, tid, "thread_sort_index", "sort_index", std::to_string(tid));
  }
}

}  // namespace

std::string trace_json(const plan::Timeline& timeline, const plan::Schedule& schedule, const TraceOptions& options) {
  const int iteration = options.iteration ? *options.iteration : typical_iteration(timeline);
  TraceWriter out;
  Flows flows(out, schedule);
  for (const int rank : ranks_of(timeline, schedule, options.all_ranks)) {
    const std::vector<plan::Span> spans = spans_of(timeline, schedule, rank, iteration);
    if (spans.empty()) continue;
    write_names(out, rank, spans, schedule);
    for (const plan::Span& span : spans) {
      const plan::Step& step = step_of(span, schedule);
      const int tid = static_cast<int>(step.stream);
      const std::int64_t ready = nanoseconds(span.ready), start = nanoseconds(span.start);
      const std::string args = arguments(span, step, schedule);
      const bool communicates = step.kind != plan::StepKind::compute;
      if (communicates && start > ready) out.complete(rank, tid, "waiting", "waiting", ready, start, args);
      out.complete(rank, tid, label(step), plan::name_of(step.phase), start, nanoseconds(span.end), args);
      if (step.kind == plan::StepKind::send || step.kind == plan::StepKind::recv) flows.add(span, step);
    }
    if (options.memory) write_memory(out, rank, spans, schedule);
  }
  flows.write();
  return out.take(fmt::format(R"("origin":"{}","plan":{},"iteration":{},"step_time_s":{})",
                              timeline.origin == plan::Origin::predicted ? "predicted" : "measured",
                              quoted(plan::describe(schedule.spec)), iteration, timeline.step_time));
}

}  // namespace orrery::reports
