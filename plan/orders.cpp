// The orders themselves: a few lines each.
#include "plan/orders.h"

#include <algorithm>

#include "base/ensure.h"

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
  // Pass k of a rank, from 0.
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
