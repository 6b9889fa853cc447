// Asynchronous orders on top of a lowered training step: rings of weight versions, passes that read them, a program
// that runs ahead; and the unrolling of such programs.
#include "plan/schedule/asynchronous.h"

#include <algorithm>

#include "base/ensure.h"
#include "plan/schedule/waits.h"

namespace orrery::plan {

using Kind = Move::Kind;
using models::Op;
using models::OpKind;

namespace {

class Stashing {
 public:
  Stashing(const Plan& plan, StageId stage, const BlocksOfMoves& blocks, RankClass& rank_class)
      : spec_(plan.spec()),
        stage_(stage),
        micro_batches_(static_cast<std::int32_t>(plan.micro_batches())),
        ahead_(spec_.mesh.pipeline - 1 - stage.number()),
        delay_(weight_delay(spec_, stage)),
        blocks_(blocks),
        class_(rank_class) {}

  void run() {
    const auto finish = static_cast<std::int32_t>(class_.blocks.size()) - 1;
    keep_sent(Kind::send_activation);
    keep_sent(Kind::send_gradient);
    if (stage_ != spec_.head_stage()) class_.loss = {};
    if (delay_ > 0) {
      make_versions(class_, std::vector<int>(class_.buckets.size(), delay_));
      Block& last = class_.blocks[at(finish)];
      // The version that is overwritten was last read by this training step's backward passes.
      copy_versions(class_, last, first_update(class_, last));
      read_versions(class_, class_.blocks[at(block(Kind::backward))]);
      stashed_forward_ = block(Kind::forward);
      if (latest_is_read()) {
        stashed_forward_ = static_cast<std::int32_t>(class_.blocks.size());
        class_.blocks.push_back(class_.blocks[at(block(Kind::forward))]);
        class_.blocks.back().name += ".stashed";
      }
      read_versions(class_, class_.blocks[at(stashed_forward_)]);
    }
    program(finish);
  }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  [[nodiscard]] std::int32_t block(Kind kind) const { return blocks_.at({kind, 0}); }
  [[nodiscard]] bool has(Kind kind) const { return blocks_.count({kind, 0}) > 0; }

  // What a pass sends and does not read again gets one buffer for the whole run: the next pass that writes it waits
  // until it has been sent, a whole pass later; a buffer per pass would mean a wait right after each.
  void keep_sent(Kind kind) {
    if (!has(kind)) return;
    Step& send = class_.blocks[at(block(kind))].steps.front();
    const BufferId sent = send.source.buffer;
    if (std::erase(send.deaths, sent) == 0) return;
    for (Block& b : class_.blocks)
      for (Step& step : b.steps) std::erase(step.births, sent);
    Buffer& buffer = class_.buffers[sent];
    buffer.persistent = true;
    buffer.per_micro_batch = false;
    buffer.purpose = Purpose::communication;
  }

  // How many training steps ahead of its step forward pass `i` runs.
  [[nodiscard]] std::int32_t steps_ahead(std::int32_t i) const { return (i + ahead_) / micro_batches_; }
  // Whether some forward pass reads the weights that its step then updates.
  [[nodiscard]] bool latest_is_read() const { return steps_ahead(micro_batches_ - 1) >= delay_; }

  void program(std::int32_t finish) {
    const AsynchronousMoves moves = asynchronous_moves(spec_, stage_, micro_batches_);
    class_.program.push_back({0, -1});
    for (const Move& move : moves.opening) add(move, true, finish);
    for (const Move& move : moves.every) add(move, false, finish);
  }
  // A run's first passes read the ring, which starts with the initial weights.
  void add(const Move& move, bool opening, std::int32_t finish) {
    if (move.kind == Kind::update) return class_.program.push_back({finish, -1});
    const std::int32_t in_step = move.micro_batch % micro_batches_, later = move.micro_batch / micro_batches_;
    const bool stashed = move.kind == Kind::forward && later < delay_;
    class_.program.push_back({stashed ? stashed_forward_ : block(move.kind), in_step, later, opening});
  }

  const PlanSpec& spec_;
  StageId stage_;
  std::int32_t micro_batches_;
  std::int32_t ahead_;  ///< how many micro-batches forward passes run ahead of backward passes
  int delay_;
  const BlocksOfMoves& blocks_;
  RankClass& class_;
  std::int32_t stashed_forward_ = -1;
};

}  // namespace

std::size_t first_update(const RankClass& c, const Block& block) {
  const auto updates = [&](const Step& step) {
    return std::any_of(c.buckets.begin(), c.buckets.end(), [&](const Bucket& b) {
      return std::find(step.writes.begin(), step.writes.end(), b.parameters) != step.writes.end();
    });
  };
  return static_cast<std::size_t>(std::find_if(block.steps.begin(), block.steps.end(), updates) - block.steps.begin());
}

void make_versions(RankClass& c, const std::vector<int>& delays) {
  for (std::size_t i = 0; i < c.buckets.size(); ++i) {
    Bucket& b = c.buckets[i];
    if (delays[i] == 0) continue;
    ENSURE(b.parameters.exists(), "bucket {} has no parameters to keep versions of", b.name);
    Buffer versions = c.buffers[b.parameters];
    versions.name = b.name + ".stashed";
    versions.versions = delays[i];
    b.stashed = c.buffers.append(std::move(versions));
  }
}

void copy_versions(RankClass& c, Block& block, std::size_t place) {
  const auto view = [&](BufferId buffer) {
    c.views.push_back({buffer, 0, c.buffers[buffer].elements});
    return static_cast<int>(c.views.size()) - 1;
  };
  Step copy;
  copy.phase = Phase::optimizer;
  copy.part = "stash";
  for (const Bucket& b : c.buckets) {
    if (!b.stashed) continue;
    Op op;
    op.kind = OpKind::copy;
    op.dtype = c.buffers[b.parameters].dtype;
    op.m = b.elements;
    op.in = {view(b.parameters)};
    op.out = {view(b.stashed)};
    copy.ops.push_back(std::move(op));
    copy.reads.push_back(b.parameters);
    copy.writes.push_back(b.stashed);
  }
  block.steps.insert(block.steps.begin() + static_cast<std::ptrdiff_t>(place), std::move(copy));
}

void read_versions(RankClass& c, Block& block, const std::function<bool(const Step&)>& read) {
  std::map<BufferId, BufferId> stashed_of;
  for (const Bucket& bucket : c.buckets)
    if (bucket.stashed.exists()) stashed_of[bucket.parameters] = bucket.stashed;
  for (Step& step : block.steps) {
    if (!read(step)) continue;
    for (Op& op : step.ops)
      for (int& operand : op.in) {
        if (operand < 0) continue;
        View v = c.views[static_cast<std::size_t>(operand)];
        const auto found = stashed_of.find(v.buffer);
        if (found == stashed_of.end()) continue;
        v.buffer = found->second;
        c.views.push_back(v);
        operand = static_cast<int>(c.views.size()) - 1;
      }
    for (BufferId& buffer : step.reads)
      if (const auto found = stashed_of.find(buffer); found != stashed_of.end()) buffer = found->second;
  }
}

int weight_delay(const PlanSpec& spec, StageId stage) {
  if (spec.states.staleness) return *spec.states.staleness;
  switch (traits_of(spec.stages.order).delay) {
    case WeightDelay::none: break;
    case WeightDelay::one: return 1;
    case WeightDelay::stages_behind: return spec.mesh.pipeline - 1 - stage.number();
    case WeightDelay::all_stages: return spec.mesh.pipeline - 1;
  }
  return 0;
}

base::Ids<StageId> stages_with_norms(const Plan& plan) {
  const int pipeline = plan.spec().mesh.pipeline;
  return base::Ids<StageId>(pipeline - (plan.model().shares_table() && pipeline > 1 ? 1 : 0));
}

int steps_in_flight(const RankClass& rank_class) {
  std::int32_t most = 0;
  rank_class.program.each_kind(
      [&](const Entry& entry, std::int64_t, std::int32_t) { most = std::max(most, entry.ahead); });
  return most + 1;
}

bool is_asynchronous(const Schedule& schedule) {
  const auto any = [&](auto&& holds) { return std::any_of(schedule.classes.begin(), schedule.classes.end(), holds); };
  // Forward passes alone, of an evaluation, update nothing and leave nothing in flight.
  const bool trains = any([](const RankClass& c) { return c.gradient_norm.exists(); });
  return any([](const RankClass& c) { return steps_in_flight(c) > 1; }) ||
         (trains && (schedule.spec.stages.asynchronous() || schedule.spec.states.has_server()));
}

Walk unrolled(const RankClass& rank_class, std::int64_t steps, bool ends) {
  const std::int32_t m = micro_batches_of(rank_class);
  Walk out;
  for (std::int32_t t = 0; t < steps; ++t)
    for (std::size_t e = 0; e < rank_class.program.size(); ++e) {
      Entry entry = rank_class.program[e];
      if (!runs(entry, t, ends ? steps : kEveryStep, t == 0)) continue;
      if (entry.micro_batch >= 0) entry.micro_batch += (t + entry.ahead) * m;
      entry.ahead = 0;
      entry.opening = false;
      out.program.push_back(entry);
      out.origins.push_back({t, static_cast<std::int32_t>(e)});
    }
  return out;
}

Unrolled unrolled(const Schedule& schedule, std::int64_t steps, bool ends) {
  Unrolled out{schedule, {}};
  for (RankClass& c : out.schedule.classes) {
    Walk walk = unrolled(c, steps, ends);
    c.program = Entries(walk.program);
    out.origins.push_back(std::move(walk.origins));
  }
  return out;
}

std::vector<std::vector<int>> staleness(const Schedule& schedule, std::int64_t steps) {
  constexpr int kNotRead = -2;
  std::vector<std::vector<int>> all;
  for (const RankClass& c : schedule.classes) {
    std::map<BufferId, std::int64_t> updates;                        // by buffer of parameters: version that they hold
    std::map<std::pair<BufferId, std::int64_t>, std::int64_t> kept;  // version in a place of a ring
    std::map<BufferId, BufferId> parameters_of;                      // by ring
    for (const Bucket& b : c.buckets) {
      updates[b.parameters] = 0;
      if (b.stashed.exists()) parameters_of[b.stashed] = b.parameters;
    }
    if (c.tables.exists()) updates[c.tables] = 0;  // no version of them is kept: all steps read them early enough
    std::vector<int> ages(static_cast<std::size_t>(steps), kNotRead);
    for (std::int64_t t = 0; t < steps; ++t)
      for (const Entry& entry : c.program) {
        const std::int64_t of = t + entry.ahead;
        if (!runs(entry, t, steps, t == 0)) continue;
        for (const Step& step : c.blocks[static_cast<std::size_t>(entry.block)].steps) {
          for (const BufferId buffer : step.reads) {
            if (entry.micro_batch < 0) break;
            std::int64_t version = -1;
            if (const auto ring = parameters_of.find(buffer); ring != parameters_of.end())
              version = kept[{buffer, of % c.buffers[buffer].versions}];
            else if (const auto own = updates.find(buffer); own != updates.end())
              version = own->second;
            else
              continue;
            int& age = ages[static_cast<std::size_t>(of)];
            const int now = static_cast<int>(of - version);
            age = age == kNotRead || age == now ? now : -1;
          }
          for (const BufferId buffer : step.writes) {
            if (const auto ring = parameters_of.find(buffer); ring != parameters_of.end())
              kept[{buffer, of % c.buffers[buffer].versions}] = updates.at(ring->second);
            if (const auto own = updates.find(buffer); own != updates.end()) own->second = t + 1;
          }
        }
      }
    all.push_back(std::move(ages));
  }
  return all;
}

void make_asynchronous(const Plan& plan, StageId stage, const BlocksOfMoves& blocks, RankClass& rank_class) {
  Stashing(plan, stage, blocks, rank_class).run();
}

}  // namespace orrery::plan
