// The executor's communication steps: what they start, with whom, and what they record in spans.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/ensure.h"
#include "exec/engine/execute.h"
#include "exec/engine/row_moves.h"

namespace orrery::exec {
namespace {

/// A tag for each (step pair, micro-batch) in flight: those of one step, or if the pipeline does not drain, of as many
/// steps as it has stages.
int message_tag(const plan::Step& step, const Instance& of, const plan::PlanSpec& spec) {
  const std::int64_t at_once = spec.micro_batches() * (spec.stages.asynchronous() ? spec.mesh.pipeline : 1);
  const std::int64_t number =
      spec.stages.asynchronous() ? of.step * spec.micro_batches() + of.micro_batch : of.micro_batch;
  return static_cast<int>(step.tag * (at_once + 1) + number % at_once + 1);
}

/// Two requests as one.
class Both : public Request {
 public:
  Both(std::unique_ptr<Request> a, std::unique_ptr<Request> b) : a_(std::move(a)), b_(std::move(b)) {}
  bool test() override {
    // Test both: each drives its own progress.
    const bool a = a_->test(), b = b_->test();
    return a && b;
  }
  Points ends() const override {
    Points a = a_->ends(), b = b_->ends();
    if (a.empty() || b.empty()) return {};
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  /// The marks of the one started first: the receive, which is what a step waits for.
  std::optional<std::pair<Mark, Mark>> marks() const override { return a_->marks(); }

 private:
  std::unique_ptr<Request> a_, b_;
};

/// Hides the points at which a device's request ends, so that the host tests it: the host must know its end.
class Asked : public Request {
 public:
  explicit Asked(std::unique_ptr<Request> request) : request_(std::move(request)) {}
  bool test() override { return request_->test(); }

 private:
  std::unique_ptr<Request> request_;
};

}  // namespace

void Executor::communicate(const plan::Step& step, const Place& place) {
  Communication::Observer observer;
  RawSpan* span = nullptr;
  const std::size_t index = spans_.size();
  if (recording_) span = &spans_.emplace_back(RawSpan{current_iteration_, place.at, place.of.micro_batch, now(), 0});
  const bool copy = step.kind == plan::StepKind::copy;
  const bool queues = queued(step);
  RawSpan* span_of_host = span;  // noted here; for copies and device's messages it is noted elsewhere
  if (copy || queues) span_of_host = nullptr;
  if (span_of_host != nullptr || recorder_ != nullptr) {
    const int message = recorder_ != nullptr ? messages_.at({block_of(place), place.at.step}) : -1;
    observer.started = [this, span_of_host, message, micro_batch = place.of.micro_batch] {
      if (span_of_host != nullptr) span_of_host->ready = now();
      if (recorder_ != nullptr) recorder_->began(message, micro_batch);
    };
    observer.finished = [this, span_of_host, message, micro_batch = place.of.micro_batch] {
      if (span_of_host != nullptr) span_of_host->end = now();
      if (recorder_ != nullptr) recorder_->ended(message, micro_batch);
    };
  }
  // A message may send only what has been computed.
  Communication::Start start = starter(step, place.of, span);
  if (transport_.queues() && !queues && !copy)
    start = [start](const Points& behind) { return std::make_unique<Asked>(start(behind)); };
  if (queues && span != nullptr)
    start = [this, start, index](const Points& behind) {
      auto request = start(behind);
      if (const auto marks = request->marks()) marked_.push_back({index, marks->first, marks->second});
      return request;
    };
  communication_.submit(
      step.stream, operands_.touches(step, place.of), !step.deaths.empty(), std::move(start), observer,
      [this, &step, place] { return names_.describe(step, current_iteration_, place.at, place.of.micro_batch); },
      {backend_.point(), queues, copy && host_shares_});
}

/// Whether a message is the device's. Sums on the host, and files, are the host's own.
bool Executor::queued(const plan::Step& step) const {
  if (!options_.queue_messages) return false;
  if (step.kind != plan::StepKind::copy) return transport_.queues();
  const bool of_device = step.stream == plan::Stream::to_host || step.stream == plan::Stream::from_host;
  return of_device && !step.accumulate && backend_.queues_copies();
}

Communication::Start Executor::copier(const plan::Step& step, const Instance& of, RawSpan* span) {
  const std::byte* from = operands_.address(step.source, of);
  std::byte* to = operands_.address(step.target, of);
  const models::DType dtype = class_.buffers[step.source.buffer].dtype;
  const auto bytes = static_cast<std::size_t>(step.source.elements * models::size_of(dtype));
  if (queued(step))
    return [this, lane = static_cast<std::size_t>(step.stream), to, from, bytes, marks = recording_](
               const Points& behind) { return backend_.queue_copy(lane, to, from, bytes, behind, marks); };
  StateFile* file = arena_.state_file();
  std::function<void()> work;
  if (step.rows.any()) {
    const plan::View& list = class_.views[static_cast<std::size_t>(step.rows.list)];
    const std::span<const std::int32_t> words(reinterpret_cast<const std::int32_t*>(operands_.address(list, of)),
                                              static_cast<std::size_t>(list.elements));
    const bool files = step.stream == plan::Stream::to_nvme || step.stream == plan::Stream::from_nvme;
    const RowMoveEnds ends{from, to, dtype};
    work = [=, this, rows = step.rows, rank = transport_.rank()] {
      move_rows(schedule_, rank, rows, words, ends, files ? file : nullptr);
    };
  } else if (step.stream == plan::Stream::to_nvme) {
    work = [=] { file->write(to, {from, bytes}); };
  } else if (step.stream == plan::Stream::from_nvme) {
    work = [=] { file->read({to, bytes}, from); };
  } else if (step.accumulate) {
    work = [=, this, elements = step.source.elements] { add_between(backend_, to, from, elements, dtype); };
  } else {
    work = [=, this] { backend_.copy_between(to, from, bytes, false); };
  }
  // The copying thread takes the time; this one may see the end much later.
  return [this, stream = step.stream, work, span](const Points&) {
    return copies_.run(stream, [work, span] {
      if (span != nullptr) span->ready = now();
      work();
      if (span != nullptr) span->end = now();
    });
  };
}

Communication::Start Executor::starter(const plan::Step& step, const Instance& of, RawSpan* span) {
  if (step.kind == plan::StepKind::copy) return copier(step, of, span);
  const std::string what = transport_.queues() ? names_.summary(step, current_iteration_, of.micro_batch)
                                               : std::string();  // nobody asks about it later
  const plan::View& source = step.source;
  const plan::View& target = step.target;
  const std::byte* from = source.buffer ? operands_.address(source, of) : nullptr;
  std::byte* to = target.buffer ? operands_.address(target, of) : nullptr;
  const int stage = schedule_.spec.mesh.ranks_per_stage();
  const int peer = transport_.rank() + step.peer * stage;
  const int tag = message_tag(step, of, schedule_.spec);
  if (step.kind == plan::StepKind::send) {
    const models::DType dtype = class_.buffers[source.buffer].dtype;
    return [this, what, peer, tag, dtype, from, n = source.elements](const Points& behind) {
      transport_.prepare({behind, what});
      return transport_.send(peer, tag, dtype, from, n);
    };
  }
  const models::DType dtype = class_.buffers[target.buffer].dtype;
  if (step.kind == plan::StepKind::recv)
    return [this, what, peer, tag, dtype, to, n = target.elements](const Points& behind) {
      transport_.prepare({behind, what});
      return transport_.receive(peer, tag, dtype, to, n);
    };
  if (step.collective == plan::CollectiveKind::ring_shift)
    return [this, what, ring = ring_of(step), dtype, from, to,
            n = target.elements](const Points& behind) -> std::unique_ptr<Request> {
      // All messages between two neighbours use this stream, which keeps them in order.
      constexpr int kRingTag = 0;
      transport_.prepare({behind, what});
      auto receive = transport_.receive(ring.previous, kRingTag, dtype, to, n);
      transport_.prepare({behind, what});
      auto send = transport_.send(ring.next, kRingTag, dtype, from, n);
      return std::make_unique<Both>(std::move(receive), std::move(send));
    };
  const GroupId group = groups_.at(std::make_pair(step.group, step.stream));
  switch (step.collective) {
    case plan::CollectiveKind::all_reduce:
      return [this, what, group, reduce = step.reduce, dtype, to, n = target.elements](const Points& behind) {
        transport_.prepare({behind, what});
        return transport_.all_reduce(group, reduce, dtype, to, n);
      };
    case plan::CollectiveKind::all_gather:
      return [this, what, group, dtype, from, to, n = source.elements](const Points& behind) {
        transport_.prepare({behind, what});
        return transport_.all_gather(group, dtype, from, to, n);
      };
    case plan::CollectiveKind::reduce_scatter:
      return [this, what, group, dtype, from, to, n = target.elements](const Points& behind) {
        transport_.prepare({behind, what});
        return transport_.reduce_scatter(group, dtype, from, to, n);
      };
    case plan::CollectiveKind::all_to_all: {
      if (step.counted.any()) return counted_exchange(step, of, group);
      const std::int64_t members = schedule_.groups[step.group].size();
      return [this, what, group, dtype, from, to, n = source.elements / members](const Points& behind) {
        transport_.prepare({behind, what});
        return transport_.all_to_all(group, dtype, from, to, n);
      };
    }
    case plan::CollectiveKind::ring_shift: break;
  }
  ENSURE(false, "unknown collective {}", static_cast<int>(step.collective));
}

// Counts are read when the message starts: by then they are written, or the message is ordered after what writes them.
Communication::Start Executor::counted_exchange(const plan::Step& step, const Instance& of, GroupId group) {
  const std::byte* from = operands_.address(step.source, of);
  std::byte* to = operands_.address(step.target, of);
  const models::DType dtype = class_.buffers[step.source.buffer].dtype;
  const std::int64_t members = schedule_.groups[step.group].size();
  const std::int64_t slot = step.source.elements / members;
  const std::string what =
      transport_.queues() ? names_.summary(step, current_iteration_, of.micro_batch) : std::string();
  // Looked up now: this step may be the last that uses them, and the message may start when the step is over.
  const auto place = [&](int view) { return operands_.address(view, of); };
  const MessageCounts::At at{place(step.counted.sent), place(step.counted.received)};
  return [=, this, counted = step.counted, queues = queued(step)](const Points& behind) {
    if (queues) counts_.fetch(counted, at, of, behind);
    const auto elements = [&](int view) {
      const std::vector<std::int32_t> counts =
          queues ? counts_.known(view, of) : read_counts(view, view == counted.sent ? at.sent : at.received);
      const std::size_t width = counts.size() / static_cast<std::size_t>(members);
      std::vector<std::int64_t> out(static_cast<std::size_t>(members));
      for (std::size_t i = 0; i < width * out.size(); ++i) out[i / width] += counted.unit * counts[i];
      for (const std::int64_t count : out)
        if (count < 0 || count > slot)
          throw Failure(fmt::format("rank {}: {}: {} values for a slot that has room for {}", transport_.rank(),
                                    operands_.buffer_of(view).name, count, slot));
      return out;
    };
    const std::vector<std::int64_t> out = elements(counted.sent), in = elements(counted.received);
    transport_.prepare({behind, what});
    return transport_.all_to_all_counted(group, dtype, from, to, slot, out, in);
  };
}

std::vector<std::int32_t> Executor::read_counts(int view, const std::byte* at) const {
  std::vector<std::int32_t> out(static_cast<std::size_t>(operands_.view_at(view).elements));
  backend_.copy_to_host(std::as_writable_bytes(std::span(out)), at);
  return out;
}

void Executor::find_counts() {
  for (const plan::Block& block : class_.blocks)
    for (const plan::Step& step : block.steps)
      if (step.counted.any() && queued(step)) counts_.expect(step.counted);
}

Executor::Ring Executor::ring_of(const plan::Step& step) const {
  const std::vector<int> members = schedule_.groups[step.group].members(transport_.rank());
  const auto own = std::find(members.begin(), members.end(), transport_.rank());
  ENSURE(own != members.end(), "rank {} is in no such ring", transport_.rank());
  const std::size_t at = static_cast<std::size_t>(own - members.begin()), n = members.size();
  return {members[(at + 1) % n], members[(at + n - 1) % n]};
}

std::int32_t Executor::block_of(const Place& place) const {
  return class_.program[static_cast<std::size_t>(place.at.entry)].block;
}

}  // namespace orrery::exec
