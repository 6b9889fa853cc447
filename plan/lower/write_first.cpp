// Walks a program once and notes which parts of each gradient buffer have not been written since it was zeroed.
#include "plan/lower/write_first.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/index.h"
#include "plan/schedule/rewrite.h"

namespace orrery::plan {

using models::Op;
using models::OpKind;

namespace {

using base::at;

/// Elements [first, second) of a buffer.
using Span = std::pair<std::int64_t, std::int64_t>;

/// Operators that will write instead of add.
struct OpRef {
  int step = 0, op = 0;
  auto operator<=>(const OpRef&) const = default;
};
using Writes = std::map<OpRef, BufferId>;  ///< with their buffer

/// What one operator or message does with one buffer.
struct Touch {
  enum class Kind : std::uint8_t { zeroes, adds, other };
  Kind kind = Kind::other;
  OpRef at;
  BufferId buffer;
  bool modifies = false;  ///< other: does more than read
  std::vector<Span> spans = std::vector<Span>();
};

constexpr std::size_t kMostGaps = 1;

class FirstWrites {
 public:
  explicit FirstWrites(RankClass& rank_class) : class_(rank_class), buffers_(rank_class.buffers.size()) {
    for (const BufferId i : buffers_.keys()) {
      const Buffer& b = class_.buffers[i];
      buffers_[i].may = b.purpose == Purpose::gradients && b.space == Space::device && !b.per_micro_batch;
      buffers_[i].spans = {{0, b.elements}};
    }
    // Gaps between parameters are zero from the start of the run.
    for (const Bucket& bucket : class_.buckets) {
      if (!bucket.gradients) continue;
      std::vector<Span>& spans = buffers_[bucket.gradients].spans;
      spans.clear();
      buffers_[bucket.gradients].laid_out = true;
      for (const ParameterRange& range : bucket.ranges) spans.push_back({range.offset, range.offset + range.elements});
    }
    for (const Block& block : class_.blocks) touches_.push_back(touches_of(block));
    plain_.resize(class_.blocks.size());
  }

  void run() {
    std::int64_t index = 0;
    for (const Entry& entry : class_.program) enter(entry, index++);
    for (State& b : buffers_)
      if (!b.left.empty()) b.may = false;  // something reads the zeros, or nothing reads the buffer
    const std::vector<Block> found = class_.blocks;
    for (std::size_t b = 0; b < found.size(); ++b) write(static_cast<std::int32_t>(b), found[b]);
    for (const BufferId i : buffers_.keys())
      for (const Span& gap : buffers_[i].gaps) {
        buffers_[i].gap_views.push_back(static_cast<int>(class_.views.size()));
        class_.views.push_back({i, gap.first, gap.second - gap.first});
      }
    for (Block& block : class_.blocks) zero_no_more(block);
  }

 private:
  struct State {
    bool may = false;
    bool laid_out = false;  ///< `spans` are parameters, and do not cover the buffer
    std::vector<Span> spans = std::vector<Span>();
    std::vector<Span> left = std::vector<Span>();  ///< still zero
    std::vector<Span> gaps = std::vector<Span>();  ///< not written, but read
    std::vector<int> gap_views = std::vector<int>();
    std::int32_t ahead = 0;  ///< of the entry that zeroed it
    bool opening = false;
  };
  /// Entries that find all buffers written.
  struct Plain {
    std::int64_t entries = 0;
    Writes writes;
  };

  std::vector<Touch> touches_of(const Block& block) const {
    std::vector<Touch> out;
    const auto add = [&](Touch::Kind kind, OpRef where, const View& view, bool modifies) {
      if (!buffers_[view.buffer].may) return;
      // Outputs of one operator are next to each other.
      if (kind == Touch::Kind::adds && !out.empty() && out.back().kind == kind && out.back().at == where &&
          out.back().buffer == view.buffer)
        out.back().spans.push_back({view.offset, view.offset + view.elements});
      else
        out.push_back({kind, where, view.buffer, modifies, {{view.offset, view.offset + view.elements}}});
    };
    for (int s = 0; s < static_cast<int>(block.steps.size()); ++s) {
      const Step& step = block.steps[at(s)];
      const bool always = step.from_step == 0 && step.until_step == kEveryStep;
      if (step.kind != StepKind::compute) {
        if (step.source.buffer) add(Touch::Kind::other, {s, -1}, step.source, !always);
        if (step.target.buffer) add(Touch::Kind::other, {s, -1}, step.target, true);
        continue;
      }
      for (int o = 0; o < static_cast<int>(step.ops.size()); ++o) {
        const Op& op = step.ops[at(o)];
        for (const int v : op.in)
          if (v >= 0) add(Touch::Kind::other, {s, o}, class_.views[at(v)], !always);
        const std::vector<std::size_t> sums = models::writable_sums(op);
        for (std::size_t i = 0; i < op.out.size(); ++i) {
          if (op.out[i] < 0) continue;
          const View& view = class_.views[at(op.out[i])];
          const bool sum = std::find(sums.begin(), sums.end(), i) != sums.end();
          add(!always                                                           ? Touch::Kind::other
              : op.kind == OpKind::fill_zero && is_whole(view)                  ? Touch::Kind::zeroes
              : sum && view.dealt == DealtOver::nobody && same_buffer(op, sums) ? Touch::Kind::adds
                                                                                : Touch::Kind::other,
              {s, o}, view, true);
        }
      }
    }
    return out;
  }

  bool is_whole(const View& view) const {
    return view.dealt == DealtOver::nobody && view.elements == class_.buffers[view.buffer].elements;
  }

  // One flag covers all of an operator's sums: write or add.
  bool same_buffer(const Op& op, const std::vector<std::size_t>& sums) const {
    std::set<BufferId> seen;
    for (const std::size_t i : sums)
      if (i < op.out.size() && op.out[i] >= 0) seen.insert(class_.views[at(op.out[i])].buffer);
    return seen.size() == 1;
  }

  void enter(const Entry& entry, std::int64_t index) {
    Plain& plain = plain_[at(entry.block)];
    if (waiting_ == 0 && plain.entries > 0) {
      ++plain.entries;
      return;
    }
    const bool finds_zeros = waiting_ > 0;
    Writes writes;
    for (const Touch& touch : touches_[at(entry.block)]) meet(touch, entry, writes);
    if (!finds_zeros && waiting_ == 0) {
      ++plain.entries;
      plain.writes = std::move(writes);
    } else if (!writes.empty() || finds_zeros) {
      special_[entry.block].push_back({index, std::move(writes)});
    }
  }

  void meet(const Touch& touch, const Entry& entry, Writes& writes) {
    State& b = buffers_[touch.buffer];
    if (!b.may) return;
    const std::int32_t versions = class_.buffers[touch.buffer].versions;
    if (!b.left.empty()) {
      const bool elsewhere = (entry.ahead - b.ahead) % versions != 0;
      if (elsewhere && touch.kind != Touch::Kind::zeroes) return;  // another version of the buffer
      if (entry.ahead != b.ahead || entry.opening != b.opening) return give_up(b);
    }
    if (touch.kind == Touch::Kind::zeroes) {
      if (!b.left.empty()) return give_up(b);
      b.left = b.spans;
      b.ahead = entry.ahead;
      b.opening = entry.opening;
      waiting_ += b.left.empty() ? 0 : 1;
      return;
    }
    if (b.left.empty()) return;
    if (touch.kind == Touch::Kind::other) {
      if (!touches_zeros(b, touch)) return;
      touch.modifies || b.laid_out ? give_up(b) : leave_gaps(b);
      return;
    }
    std::size_t fresh = 0;
    for (const Span& span : touch.spans) fresh += take(b.left, span) ? 1 : 0;
    if (fresh == 0 && !touches_zeros(b, touch)) return;
    if (fresh != touch.spans.size()) return give_up(b);  // adds to a span that is only partly fresh
    writes[touch.at] = touch.buffer;
    waiting_ -= b.left.empty() ? 1 : 0;
  }

  // Zeroes what is still unwritten, unless that is in many places.
  void leave_gaps(State& b) {
    if (b.left.size() > kMostGaps || (!b.gaps.empty() && b.gaps != b.left)) return give_up(b);
    b.gaps = std::exchange(b.left, {});
    --waiting_;
  }

  void give_up(State& b) {
    b.may = false;
    waiting_ -= b.left.empty() ? 0 : 1;
    b.left.clear();
  }

  static bool touches_zeros(const State& b, const Touch& touch) {
    for (const Span& span : touch.spans)
      for (const Span& zero : b.left)
        if (span.first < zero.second && zero.first < span.second) return true;
    return false;
  }

  // Removes a span that one entry of `left`, or neighbouring entries together, cover; false: it is not covered.
  static bool take(std::vector<Span>& left, const Span& span) {
    std::vector<Span> rest;
    std::int64_t held = 0;
    for (const Span& zero : left) {
      const Span both{std::max(zero.first, span.first), std::min(zero.second, span.second)};
      if (both.first >= both.second) {
        rest.push_back(zero);
        continue;
      }
      held += both.second - both.first;
      if (zero.first < both.first) rest.push_back({zero.first, both.first});
      if (both.second < zero.second) rest.push_back({both.second, zero.second});
    }
    if (held != span.second - span.first) return false;
    left = std::move(rest);
    return true;
  }

  // -- results ----------------------------------------------------------------------------------------------------
  Writes sound(const Writes& writes) const {
    Writes out;
    for (const auto& [where, buffer] : writes)
      if (buffers_[buffer].may) out[where] = buffer;
    return out;
  }
  static void tell(Block& block, const Writes& writes) {
    for (const auto& [where, buffer] : writes) block.steps[at(where.step)].ops[at(where.op)].accumulate = false;
  }

  void write(std::int32_t b, const Block& found) {
    const Plain& plain = plain_[at(b)];
    std::map<Writes, std::int32_t> blocks;  // by what their operators write
    if (plain.entries > 0) tell(class_.blocks[at(b)], blocks.emplace(sound(plain.writes), b).first->first);
    for (const auto& [index, writes] : special_[b]) {
      const auto [known, fresh] = blocks.emplace(sound(writes), blocks.empty() ? b : -1);
      if (fresh && known->second < 0) {
        Block variant = found;
        variant.variant_of = found.variant_of < 0 ? b : found.variant_of;
        variant.name += ".first";
        known->second = static_cast<std::int32_t>(class_.blocks.size());
        class_.blocks.push_back(std::move(variant));
      }
      if (fresh) tell(class_.blocks[at(known->second)], known->first);
      if (known->second == b) continue;
      Entry entry = class_.program[static_cast<std::size_t>(index)];
      entry.block = known->second;
      class_.program.set(static_cast<std::size_t>(index), entry);
    }
  }

  void zero_no_more(Block& block) const {
    for (Step& step : block.steps) {
      std::vector<Op> ops;
      bool less = false;
      for (Op& op : step.ops) {
        const View* view = op.kind == OpKind::fill_zero ? &class_.views[at(op.out.front())] : nullptr;
        if (!view || !is_whole(*view) || !buffers_[view->buffer].may) {
          ops.push_back(std::move(op));
          continue;
        }
        less = true;
        for (const int gap : buffers_[view->buffer].gap_views) {
          op.out = {gap};
          op.m = class_.views[at(gap)].elements;
          ops.push_back(op);
        }
      }
      step.ops = std::move(ops);
      if (!less) continue;
      step.reads.clear();
      step.writes.clear();
      for (const Op& op : step.ops) {
        for (const int v : op.in)
          if (v >= 0) note(step.reads, class_.views[at(v)].buffer);
        for (const int v : op.out)
          if (v >= 0) note(step.writes, class_.views[at(v)].buffer);
      }
    }
  }

  RankClass& class_;
  base::ById<BufferId, State> buffers_;
  std::vector<std::vector<Touch>> touches_;                                       ///< by block
  std::vector<Plain> plain_;                                                      ///< by block
  std::map<std::int32_t, std::vector<std::pair<std::int64_t, Writes>>> special_;  ///< by block: entries, in order
  std::int64_t waiting_ = 0;                                                      ///< buffers that are zero somewhere
};

}  // namespace

void write_first(RankClass& rank_class) {
  FirstWrites(rank_class).run();
}

}  // namespace orrery::plan
