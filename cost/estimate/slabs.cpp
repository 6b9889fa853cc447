/// Slabs alive, counted over an order's moves.
#include "cost/estimate/slabs.h"

#include <algorithm>

#include "plan/schedule/orders.h"
#include "plan/schedule/place.h"

namespace orrery::cost {

SlabCount::SlabCount(const std::vector<std::int64_t>& sizes)
    : pool_of_(plan::slab_pools(sizes)), alive_(sizes.size(), 0), most_(alive_), bytes_(alive_), sizes_(sizes) {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::int64_t& bytes = bytes_[static_cast<std::size_t>(pool_of_[i])];
    bytes = std::max(bytes, sizes[i]);
  }
}

void SlabCount::change(std::size_t kind, int by) {
  const auto pool = static_cast<std::size_t>(pool_of_[kind]);
  alive_[pool] += by;
  most_[pool] = std::max(most_[pool], alive_[pool]);
  now_ += by * sizes_[kind];
  most_at_once_ = std::max(most_at_once_, now_);
}

double SlabCount::sum() const {
  double sum = 0;
  for (std::size_t i = 0; i < most_.size(); ++i) sum += static_cast<double>(most_[i]) * static_cast<double>(bytes_[i]);
  return sum;
}

double interleaved_slabs(const std::vector<ChunkSlab>& chunks, double boundary, const plan::PlanSpec& spec,
                         plan::StageId stage, std::int64_t micro_batches) {
  using Kind = plan::Move::Kind;
  enum Slab : std::uint8_t { kept, input, output, gradient, input_gradient, slabs };
  std::vector<std::int64_t> sizes;
  for (const ChunkSlab& chunk : chunks) {
    sizes.push_back(static_cast<std::int64_t>(chunk.kept));
    sizes.insert(sizes.end(), slabs - 1, static_cast<std::int64_t>(boundary));
  }
  SlabCount count(sizes);
  const auto change = [&](int chunk, Slab slab, int by) {
    count.change(static_cast<std::size_t>(chunk) * slabs + slab, by);
  };
  std::vector<std::pair<int, Slab>> leaving;           // sent, but no pass has waited for it yet
  const std::int64_t enough = 3 * spec.mesh.pipeline;  // by then the most micro-batches are in flight
  const auto count_of_chunks = static_cast<int>(chunks.size());
  for (const plan::Move& move :
       plan::interleaved(stage.number(), spec.mesh.pipeline, count_of_chunks, std::min(micro_batches, enough))) {
    const int c = move.chunk;
    const bool begins = stage == plan::kFirstStage && c == 0,
               ends = stage == spec.mesh.last_stage() && c + 1 == count_of_chunks;
    const bool x_leaves = chunks[static_cast<std::size_t>(c)].x_leaves;
    if (move.kind == Kind::forward || move.kind == Kind::backward) {
      for (const auto& [chunk, slab] : leaving) change(chunk, slab, -1);
      leaving.clear();
    }
    switch (move.kind) {
      case Kind::weights:
      case Kind::update: break;  // only in other orders
      case Kind::receive_activation: change(c, input, 1); break;
      case Kind::forward:
        change(c, kept, 1);
        if (!ends) change(c, output, 1);
        if (!begins && x_leaves) change(c, input, -1);
        break;
      case Kind::send_activation: leaving.emplace_back(c, output); break;
      case Kind::receive_gradient: change(c, gradient, 1); break;
      case Kind::backward:
        if (!ends) change(c, gradient, -1);
        if (!begins) change(c, input_gradient, 1);
        change(c, kept, -1);
        if (!begins && !x_leaves) change(c, input, -1);
        break;
      case Kind::send_gradient: leaving.emplace_back(c, input_gradient); break;
    }
  }
  return count.sum();
}

}  // namespace orrery::cost
