// Pipeline orders.
#include "plan/schedule/orders.h"

#include <algorithm>
#include <deque>
#include <span>
#include <tuple>

#include "base/ensure.h"
#include "plan/schedule/partners.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

std::vector<Turn> turns(Order order, int stage, int stages, std::int64_t micro_batches) {
  const auto m = static_cast<std::int32_t>(micro_batches);
  std::vector<Turn> result;
  result.reserve(static_cast<std::size_t>(2 * m));
  const std::int32_t warm_up = order == Order::gpipe ? m : std::min<std::int32_t>(stages - 1 - stage, m);
  for (std::int32_t i = 0; i < warm_up; ++i) result.push_back({true, i});
  for (std::int32_t i = warm_up; i < m; ++i) {
    result.push_back({true, i});
    result.push_back({false, i - warm_up});
  }
  for (std::int32_t i = m - warm_up; i < m; ++i) result.push_back({false, i});
  return result;
}

std::vector<Move> interleaved(int stage, int stages, int chunks, std::int64_t micro_batches) {
  ENSURE(stages >= 2 && chunks >= 1 && micro_batches % stages == 0, "{} micro-batches on {} stages of {} chunks",
         micro_batches, stages, chunks);
  const std::int64_t total = micro_batches * chunks, round = static_cast<std::int64_t>(stages) * chunks;
  const std::int64_t warm_up =
      std::min<std::int64_t>(total, static_cast<std::int64_t>(chunks - 1) * stages + 2 * (stages - 1 - stage));
  std::vector<Move> moves;
  // Pass k of a rank, counted from 0.
  const auto move = [&](Move::Kind kind, std::int64_t k, bool forward) {
    const auto chunk = static_cast<std::int32_t>(k % round / stages);
    moves.push_back({kind, static_cast<std::int32_t>(k / round * stages + k % stages),
                     forward ? chunk : static_cast<std::int32_t>(chunks - 1 - chunk)});
    return moves.back().chunk;
  };
  // A message of pass k, unless the model begins or ends there.
  const auto message = [&](Move::Kind kind, std::int64_t k, bool forward, bool at_the_start) {
    if (k < 0 || k >= total) return;
    const std::int32_t chunk = move(kind, k, forward);
    const bool none = at_the_start ? stage == 0 && chunk == 0 : stage == stages - 1 && chunk == chunks - 1;
    if (none) moves.pop_back();
  };
  message(Move::Kind::receive_activation, 0, true, true);
  for (std::int64_t f = 0; f < total + warm_up; ++f) {
    const std::int64_t b = f - warm_up;
    if (f < total) move(Move::Kind::forward, f, true);
    if (b >= 0) move(Move::Kind::backward, b, false);
    message(Move::Kind::send_activation, f, true, false);
    message(Move::Kind::send_gradient, b, false, true);
    message(Move::Kind::receive_activation, f + 1, true, true);
    message(Move::Kind::receive_gradient, b + 1, false, false);
  }
  return moves;
}

namespace {

using Kind = Move::Kind;

// The passes of zb_h1 and zb_h2.
std::vector<Move> straight_passes(Order order, int stage, int stages, std::int32_t m) {
  const int ways = order == Order::zb_h2 ? 2 : 1;
  const std::int32_t warm_up = std::min<std::int32_t>(ways * (stages - 1 - stage), m), behind = ways * stage;
  std::vector<Move> out;
  for (std::int32_t i = 0; i < warm_up; ++i) out.push_back({Kind::forward, i, 0});
  for (std::int32_t i = 0; i < m; ++i) {
    if (warm_up + i < m) out.push_back({Kind::forward, warm_up + i, 0});
    out.push_back({Kind::backward, i, 0});
    if (i >= behind) out.push_back({Kind::weights, i - behind, 0});
  }
  for (std::int32_t i = std::max(0, m - behind); i < m; ++i) out.push_back({Kind::weights, i, 0});
  return out;
}

// The passes of zb_v, made for at least 2 p - 1 micro-batches; those of missing micro-batches are left out.
std::vector<Move> folded_passes(int stage, int stages, std::int32_t m) {
  const std::int32_t all = std::max(2 * stages - 1, m);
  std::vector<Move> out;
  std::int32_t forwards[2] = {0, 0}, backwards[2] = {0, 0}, weights[2] = {0, 0};
  const auto add = [&](Kind kind, std::int32_t chunk, std::int32_t(&count)[2]) {
    const std::int32_t micro_batch = count[chunk]++;
    if (micro_batch < m) out.push_back({kind, micro_batch, chunk});
  };
  const auto forward = [&](std::int32_t chunk) { add(Kind::forward, chunk, forwards); };
  const auto backward = [&](std::int32_t chunk) { add(Kind::backward, chunk, backwards); };
  const auto weight = [&](std::int32_t chunk) { add(Kind::weights, chunk, weights); };
  for (int i = 0; i < 2 * (stages - stage) - 1; ++i) forward(0);
  for (int i = 0; i < stage; ++i) forward(1), forward(0);
  for (int i = 0; i < stages - stage; ++i) forward(1), backward(1), weight(1);
  while (forwards[1] < forwards[0] || forwards[0] < all) {
    if (forwards[0] < all) forward(0);
    backward(0), weight(0), forward(1), backward(1), weight(1);
  }
  for (int i = 0; i < stage; ++i) backward(0), backward(1);
  for (int i = 0; i < stages - stage; ++i) backward(0), weight(0);
  while (weights[1] < backwards[1]) weight(1);
  while (weights[0] < backwards[0]) weight(0);
  return out;
}

// The passes of DualPipeV, made for at least 2 p micro-batches; those of missing ones are left out. Where the published
// order overlaps a forward and a backward in one pass (deepseek-ai/DualPipe, _forward_backward_chunk), the forward goes
// first, and is marked.
std::vector<Move> dual_passes(int stage, int stages, std::int32_t m) {
  const std::int32_t all = std::max(2 * stages, m);
  std::vector<Move> out;
  std::deque<Move> waiting;  // weight passes whose input gradients are made
  std::int32_t forwards[2] = {0, 0}, backwards[2] = {0, 0};
  const auto add = [&](const Move& move) {
    if (move.micro_batch < m) out.push_back(move);
  };
  const auto forward = [&](std::int32_t chunk) { add({Kind::forward, forwards[chunk]++, chunk}); };
  const auto backward = [&](std::int32_t chunk, bool split = false) {
    const std::int32_t micro_batch = backwards[chunk]++;
    add({Kind::backward, micro_batch, chunk});
    const Move weights{Kind::weights, micro_batch, chunk};
    split ? waiting.push_back(weights) : add(weights);
  };
  const auto weights = [&] {
    add(waiting.front());
    waiting.pop_front();
  };
  const auto pair = [&](std::int32_t there, std::int32_t back, bool beside = true) {
    beside = beside && forwards[there] < m && backwards[back] < m;
    forward(there);
    if (beside) out.back().beside = true;
    backward(back);
  };
  const int below = stages - stage - 1;
  for (int i = 0; i < 2 * below; ++i) forward(0);
  for (int i = 0; i <= stage; ++i) forward(0), forward(1);
  for (int i = 0; i < below; ++i) backward(1, true), weights(), forward(1);
  for (int i = 0; i < all - 2 * stages + stage + 1; ++i) {
    pair(0, 1, i > 0 || below > 0);  // on the last stage others wait for what the first forward pass sends
    pair(1, 0);
  }
  for (int i = 0; i < below; ++i) backward(1), pair(1, 0);
  // The second half of the rest defers its weights; on odd stages that half starts with chunk 1.
  const int half = (stage + 1) / 2;
  bool split = false;
  for (int i = 0; i <= stage; ++i) {
    if (i == half && stage % 2 == 1) split = true;
    backward(1, split);
    if (i == half && stage % 2 == 0) split = true;
    backward(0, split);
  }
  for (int i = 0; i < below; ++i) weights(), backward(0, true);
  while (!waiting.empty()) weights();
  return out;
}

// DualPipe's passes: each half of the ranks runs DualPipeV on half of the micro-batches, from its own end. On the
// second half of the ranks the chunks are swapped, since their first chunk is in the model's second copy.
std::vector<Move> mirrored_passes(int stage, int stages, std::int32_t m) {
  const bool second = stage >= stages / 2;
  std::vector<Move> out = dual_passes(second ? stages - 1 - stage : stage, stages / 2, m / 2);
  for (Move& move : out) {
    if (second) move.chunk = 1 - move.chunk;
    if (move.chunk == 1) move.micro_batch += m / 2;
  }
  return out;
}

// The same passes, with each micro-batch's weights right after its inputs' gradient.
std::vector<Move> weights_at_once(const std::vector<Move>& passes) {
  std::vector<Move> out;
  for (const Move& pass : passes) {
    if (pass.kind != Kind::weights) out.push_back(pass);
    if (pass.kind == Kind::backward) out.push_back({Kind::weights, pass.micro_batch, pass.chunk});
  }
  return out;
}

// When each pass of each stage begins and ends if all passes take equally long and messages take no time.
struct Times {
  Times(const PlanSpec& spec, std::int32_t micro_batches)
      : begin(static_cast<std::size_t>(spec.mesh.pipeline)),
        micro_batches_(micro_batches),
        places_(spec.mesh.pipeline * spec.stages.virtual_stages),
        made_(static_cast<std::size_t>(2 * places_) * static_cast<std::size_t>(micro_batches), -1) {}
  /// End of a pass by direction, virtual stage and micro-batch; -1: not made yet.
  [[nodiscard]] int made(bool forward, int place, std::int32_t micro_batch) const {
    return made_[index(forward, place, micro_batch)];
  }
  void make(bool forward, int place, std::int32_t micro_batch, int end) {
    made_[index(forward, place, micro_batch)] = end;
  }

  std::vector<std::vector<int>> begin;  // by stage and pass; a pass takes 1

 private:
  [[nodiscard]] std::size_t index(bool forward, int place, std::int32_t micro_batch) const {
    return static_cast<std::size_t>((forward ? 0 : places_) + place) * static_cast<std::size_t>(micro_batches_) +
           static_cast<std::size_t>(micro_batch);
  }
  std::int32_t micro_batches_ = 0;
  int places_ = 0;
  std::vector<int> made_;
};

Times times_of(const PlanSpec& spec, const std::vector<std::vector<Move>>& passes, std::int32_t micro_batches) {
  Times t(spec, micro_batches);
  // When what a pass takes has been made; -1: not yet.
  const auto ready = [&](StageId stage, const Move& pass) {
    const bool forward = pass.kind == Kind::forward;
    const bool none =
        pass.kind == Kind::weights || (forward ? spec.begins(stage, pass.chunk) : spec.ends(stage, pass.chunk));
    return none ? 0 : t.made(forward, spec.place_of(stage, pass.chunk) + (forward ? -1 : 1), pass.micro_batch);
  };
  std::vector<int> free(passes.size(), 0);
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::size_t s = 0; s < passes.size(); ++s)
      while (t.begin[s].size() < passes[s].size()) {
        const Move* first = &passes[s][t.begin[s].size()];
        const std::span<const Move> together(first, first->beside ? 2 : 1);
        int begin = free[s];
        bool known = true;
        for (const Move& pass : together) {
          const int made = ready(StageId(s), pass);
          known = known && made >= 0;
          begin = std::max(begin, made);
        }
        if (!known) break;
        free[s] = begin + static_cast<int>(together.size());
        for (const Move& pass : together) {
          t.begin[s].push_back(begin);
          if (pass.kind != Kind::weights)
            t.make(pass.kind == Kind::forward, spec.place_of(StageId(s), pass.chunk), pass.micro_batch, free[s]);
        }
        moved = true;
      }
  }
  return t;
}

// Messages are received in the order in which they are made, and each receive is posted before the pass during which
// its message is made: every rank then sends and receives in one order of time, and no two wait for each other.
std::vector<Move> with_messages(const PlanSpec& spec, StageId stage, const std::vector<Move>& passes,
                                const Times& times) {
  struct Receive {
    int made = 0;
    StageId sender;
    Move move;
  };
  std::vector<Receive> receives;
  for (const Move& pass : passes) {
    const bool forward = pass.kind == Kind::forward;
    if (pass.kind == Kind::weights || !spec.receives(stage, pass.chunk, forward)) continue;
    const int sender = spec.place_of(stage, pass.chunk) + (forward ? -1 : 1);
    receives.push_back({times.made(forward, sender, pass.micro_batch),
                        spec.stage_at(sender),
                        {forward ? Kind::receive_activation : Kind::receive_gradient, pass.micro_batch, pass.chunk}});
  }
  std::stable_sort(receives.begin(), receives.end(), [](const Receive& a, const Receive& b) {
    // What a pair makes at the same time is sent in this order.
    const bool a_back = a.move.kind == Kind::receive_gradient, b_back = b.move.kind == Kind::receive_gradient;
    return std::tie(a.made, a.sender, a_back) < std::tie(b.made, b.sender, b_back);
  });
  std::vector<Move> out;
  std::size_t posted = 0;
  for (auto pass = passes.begin(); pass != passes.end();) {
    const auto next = pass + (pass->beside ? 2 : 1);
    const int end =
        times.begin[stage.index()][static_cast<std::size_t>(pass - passes.begin())] + static_cast<int>(next - pass);
    while (posted < receives.size() && receives[posted].made < end) out.push_back(receives[posted++].move);
    out.insert(out.end(), pass, next);
    for (; pass != next; ++pass) {
      const bool forward = pass->kind == Kind::forward;
      if (pass->kind != Kind::weights && spec.sends(stage, pass->chunk, forward))
        out.push_back({forward ? Kind::send_activation : Kind::send_gradient, pass->micro_batch, pass->chunk});
    }
  }
  return out;
}

}  // namespace

bool runs_beside(const PlanSpec& spec) {
  const Mesh& mesh = spec.mesh;
  return (spec.stages.order == Order::dualpipe || spec.stages.order == Order::dualpipe_v) && !spec.offload.any() &&
         (mesh.tensor > 1 || mesh.context > 1 || mesh.folds_experts());
}

std::vector<PairPart> in_turn(std::int32_t forward_parts, std::int32_t backward_parts) {
  std::vector<PairPart> out;
  std::int32_t there = 0, back = 0;
  // Part i of n stands at (2 i + 1) / (2 n) of its pass.
  const auto forward_is_next = [&] {
    if (there == forward_parts || back == backward_parts) return back == backward_parts;
    return std::int64_t{2 * there + 1} * backward_parts <= std::int64_t{2 * back + 1} * forward_parts;
  };
  while (there < forward_parts || back < backward_parts)
    out.push_back(forward_is_next() ? PairPart{false, there++} : PairPart{true, back++});
  return out;
}

std::vector<std::vector<Move>> zero_bubble(Order order, int stages, std::int64_t micro_batches, bool weights_wait,
                                           bool beside) {
  ENSURE(stages >= 2 && micro_batches >= 1, "{} micro-batches on {} stages", micro_batches, stages);
  PlanSpec spec;
  spec.stages.order = order;
  spec.mesh.pipeline = stages;
  spec.stages.virtual_stages = spec.stages.folds() ? 2 : 1;
  ENSURE(!spec.stages.mirrors() || (stages % 2 == 0 && micro_batches % 2 == 0),
         "{} micro-batches on {} mirrored stages", micro_batches, stages);
  const auto m = static_cast<std::int32_t>(micro_batches);
  std::vector<std::vector<Move>> out;
  for (int s = 0; s < stages; ++s)
    out.push_back(order == Order::zb_v         ? folded_passes(s, stages, m)
                  : order == Order::dualpipe_v ? dual_passes(s, stages, m)
                  : order == Order::dualpipe   ? mirrored_passes(s, stages, m)
                                               : straight_passes(order, s, stages, m));
  for (std::vector<Move>& passes : out) {
    if (!weights_wait) passes = weights_at_once(passes);
    if (!beside) std::ranges::for_each(passes, [](Move& pass) { pass.beside = false; });
  }
  const Times times = times_of(spec, out, m);
  for (const StageId stage : spec.mesh.stages())
    out[stage.index()] = with_messages(spec, stage, out[stage.index()], times);
  return out;
}

std::vector<std::vector<Move>> custom(const PassOrder& passes) {
  PlanSpec spec;
  spec.stages.order = Order::custom;
  spec.stages.passes = passes;
  spec.mesh.pipeline = passes.stages();
  spec.stages.virtual_stages = passes.chunks();
  std::vector<std::vector<Move>> out(static_cast<std::size_t>(spec.mesh.pipeline));
  for (int s = 0; s < spec.mesh.pipeline; ++s)
    for (const Pass& pass : passes.passes(s)) {
      const std::int32_t chunk = pass.stage / spec.mesh.pipeline;
      std::vector<Move>& moves = out[static_cast<std::size_t>(s)];
      if (pass.kind == Pass::Kind::forward) moves.push_back({Kind::forward, pass.micro_batch, chunk});
      if (pass.kind == Pass::Kind::backward || pass.kind == Pass::Kind::input_gradient)
        moves.push_back({Kind::backward, pass.micro_batch, chunk});
      if (pass.kind == Pass::Kind::backward || pass.kind == Pass::Kind::weight_gradient)
        moves.push_back({Kind::weights, pass.micro_batch, chunk});
    }
  const Times times = times_of(spec, out, static_cast<std::int32_t>(passes.micro_batches()));
  for (const StageId stage : spec.mesh.stages())
    out[stage.index()] = with_messages(spec, stage, out[stage.index()], times);
  return out;
}

std::vector<std::vector<Move>> moves_of(const PlanSpec& spec, std::int64_t micro_batches) {
  if (spec.stages.order == Order::custom) return custom(spec.stages.passes);
  if (spec.stages.splits_backward())
    return zero_bubble(spec.stages.order, spec.mesh.pipeline, micro_batches, spec.recomputation.weights_wait(),
                       runs_beside(spec));
  std::vector<std::vector<Move>> out;
  for (int s = 0; s < spec.mesh.pipeline; ++s)
    out.push_back(interleaved(s, spec.mesh.pipeline, spec.stages.virtual_stages, micro_batches));
  return out;
}

double paired_share(const std::vector<Move>& moves) {
  std::int64_t passes = 0, paired = 0;
  const Move* alone = nullptr;  // the last pass, if it has no partner yet
  for (const Move& move : moves) {
    if (move.kind != Kind::forward && move.kind != Kind::backward) continue;
    ++passes;
    const bool pair = alone != nullptr && alone->kind != move.kind &&
                      (alone->micro_batch != move.micro_batch || alone->chunk != move.chunk);
    if (pair) paired += 2;
    alone = pair ? nullptr : &move;
  }
  return passes == 0 ? 0 : static_cast<double>(paired) / static_cast<double>(passes);
}

double paired_share(const PlanSpec& spec, StageId stage, std::int64_t micro_batches) {
  if (spec.stages.asynchronous()) return 1;
  if (spec.stages.virtual_stages > 1 || spec.stages.splits_backward())
    return paired_share(moves_of(spec, micro_batches)[stage.index()]);
  std::vector<Move> moves;
  for (const Turn& turn : turns(spec.stages.order, stage.number(), spec.mesh.pipeline, micro_batches))
    moves.push_back({turn.forward ? Kind::forward : Kind::backward, turn.micro_batch});
  return paired_share(moves);
}

AsynchronousMoves asynchronous_moves(const PlanSpec& spec, StageId stage, std::int64_t micro_batches) {
  AsynchronousMoves out;
  const std::int32_t ahead = spec.mesh.pipeline - 1 - stage.number();  // in micro-batches, before backward passes
  const bool receives = spec.receives(stage, 0, true), sends = spec.sends(stage, 0, true);
  const auto forward = [&](std::vector<Move>& to, std::int32_t micro_batch) {
    to.push_back({Kind::forward, micro_batch});
    if (sends) to.push_back({Kind::send_activation, micro_batch});
    if (receives) to.push_back({Kind::receive_activation, micro_batch + 1});
  };
  if (receives) out.opening.push_back({Kind::receive_activation, 0});
  for (std::int32_t i = 0; i < ahead; ++i) forward(out.opening, i);
  for (std::int32_t i = 0; i < micro_batches; ++i) {
    if (spec.receives(stage, 0, false)) out.every.push_back({Kind::receive_gradient, i});
    forward(out.every, i + ahead);
    out.every.push_back({Kind::backward, i});
    if (spec.sends(stage, 0, false)) out.every.push_back({Kind::send_gradient, i});
  }
  out.every.push_back({Kind::update, 0});
  return out;
}

std::int64_t in_flight(Order order, int stage, int stages, std::int64_t micro_batches) {
  return order == Order::gpipe ? micro_batches : std::min<std::int64_t>(stages - stage, micro_batches);
}

Held held(ZeroBubble order, int stage, int stages, std::int64_t micro_batches) {
  const std::int64_t whole = stages - stage, limit = 2 * static_cast<std::int64_t>(stages);
  const auto at_most = [&](std::int64_t full, std::int64_t halves) {
    const std::int64_t first = std::min(full, micro_batches);
    return Held{first, std::min(halves, micro_batches - first)};
  };
  switch (order) {
    case ZeroBubble::none: break;
    case ZeroBubble::h1: return at_most(whole, stage);
    case ZeroBubble::h2: return at_most(2 * whole - 1, 2 * static_cast<std::int64_t>(stage));
    case ZeroBubble::limit_2p: {
      const std::int64_t full = stage == 0 ? 2 * whole - 1 : 2 * whole + 1;
      return at_most(full, stage == 0 ? 0 : limit - full);
    }
  }
  return at_most(whole, 0);
}

}  // namespace orrery::plan
