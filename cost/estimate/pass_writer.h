#pragma once
/// Writes a pass down, step by step. Private to cost/estimate/.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cost/estimate/fold.h"
#include "cost/estimate/layer_costs.h"
#include "cost/estimate/rank_clock.h"
#include "cost/prices/exchange.h"

namespace orrery::cost {

/// Steps of a pass, and what they wait for.
class PassWriter {
 public:
  explicit PassWriter(double message_host, std::size_t steps = 0) : message_host_(ticks(message_host)) {
    steps_.reserve(steps);
  }

  [[nodiscard]] std::vector<PassStep>& steps() { return steps_; }
  [[nodiscard]] std::size_t size() const { return steps_.size(); }
  [[nodiscard]] std::uint32_t reach() const { return reach_; }  ///< PassProgram::reach

  void compute(double device, double host, bool reads_input = false) {
    steps_.push_back({.reads_input = reads_input, .time = ticks(device), .host = ticks(host)});
  }
  /// Messages that are already in flight.
  void has_begun(plan::Stream stream, int messages) { begun(stream) += messages; }
  /// Returns the number of the message on its stream.
  int begin(plan::Stream stream, double time, bool frees = false, Ticks host = 0) {
    return begin(stream, lane_of(stream), time, frees, host);
  }
  int begin(plan::Stream stream, Lane lane, double time, bool frees = false, Ticks host = 0) {
    steps_.push_back({PassStep::Kind::begin, stream, frees, false, 0, ticks(time), host, lane});
    return begun(stream)++;
  }
  void wait(plan::Stream stream, int message) { refer(PassStep::Kind::wait, stream, message); }
  void after(plan::Stream stream, int message) { refer(PassStep::Kind::after, stream, message); }

  /// A layer's segments, which write gradients or add to them. `before` is called before each segment, `behind` after
  /// it; both with its number.
  template <class Before, class Behind>
  void layer(const std::vector<Segment>& segments, const BesideCompute& exchange, const Before& before,
             const Behind& behind, const std::array<bool, 3>& writes = {}) {
    const int shifted = begun(plan::Stream::context);
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const Segment& s = segments[i];
      before(i);
      switch (s.kind) {
        case Segment::Kind::compute:
          for (const plan::Stream stream : {plan::Stream::tensor, plan::Stream::exchange})
            if (pending(stream)) wait(stream, begun(stream) - 1);
          pending_ = {};
          if (s.shifts > 0) wait(plan::Stream::context, shifted + s.shifts - 1);
          compute(s.writing(writes), s.host, s.reads_input);
          break;
        case Segment::Kind::tensor: meet(plan::Stream::tensor, s, s.seconds, message_host_); break;
        case Segment::Kind::exchange:
          lengthen(exchange.taken * s.seconds);
          meet(plan::Stream::exchange, s, exchange.left * s.seconds, 0);
          break;
        case Segment::Kind::shift: begin(plan::Stream::context, s.seconds); break;
      }
      behind(i);
    }
  }

 private:
  int& begun(plan::Stream stream) { return begun_[static_cast<std::size_t>(stream)]; }
  bool& pending(plan::Stream stream) { return pending_[static_cast<std::size_t>(stream)]; }
  void refer(PassStep::Kind kind, plan::Stream stream, int message) {
    const auto back = static_cast<std::uint32_t>(begun(stream) - message);
    steps_.push_back({kind, stream, false, false, back});
    reach_ = std::max(reach_, back);
  }
  // The last compute step.
  void lengthen(double time) {
    const auto computes = [](const PassStep& step) { return step.kind == PassStep::Kind::compute; };
    const auto last = std::find_if(steps_.rbegin(), steps_.rend(), computes);
    if (last != steps_.rend()) last->time += ticks(time);
  }
  // A message of a layer. The layer's next operators, or its next message on another stream, read its result.
  void meet(plan::Stream stream, const Segment& s, double time, Ticks host) {
    for (const plan::Stream other : {plan::Stream::tensor, plan::Stream::exchange})
      if (other != stream && pending(other)) after(other, begun(other) - 1);
    begin(stream, s.message.of_experts ? kExpertTensorLane : lane_of(stream), time, false, host);
    steps_.back().reads_input = s.reads_input;
    pending(stream) = true;
  }

  Ticks message_host_;
  std::vector<PassStep> steps_;
  std::uint32_t reach_ = 0;
  std::array<int, plan::kStreams> begun_ = {};
  std::array<bool, plan::kStreams> pending_ = {};
};

/// A bucket's reduction while it is written, part by part.
struct TimedReduction {
  const std::vector<TimedItem>* items = nullptr;
  int message = -1;                ///< its latest message so far
  std::vector<int> messages = {};  ///< by item
};
inline void write_part(PassWriter& out, TimedReduction& r, int part) {
  r.messages.resize(r.items->size(), -1);
  for (std::size_t i = 0; i < r.items->size(); ++i) {
    const TimedItem& item = (*r.items)[i];
    if (item.part != part) continue;
    if (item.is_message) {
      r.message = r.messages[i] = out.begin(plan::Stream::data, item.lane, item.seconds, item.frees);
      continue;
    }
    if (item.awaits >= 0) out.wait(plan::Stream::data, r.messages[static_cast<std::size_t>(item.awaits)]);
    out.compute(item.seconds, item.host);
  }
}
struct WriteReduction {
  PassWriter* out;
  void operator()(TimedReduction& r, int part) const { write_part(*out, r, part); }
};

}  // namespace orrery::cost
