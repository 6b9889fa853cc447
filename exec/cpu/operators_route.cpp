// Routers of mixtures of experts: which experts a token chooses, the weights of their outputs, and the gradients of
// these weights and of the losses that balance the experts. Rows are short (one column per expert); everything is in
// fp32.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "base/ensure.h"
#include "exec/cpu/machine.h"
#include "exec/engine/routing.h"
#include "exec/failure.h"

namespace orrery::exec {
namespace {

using models::Routing;
using models::Scores;

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// y = softmax(x) of one row; returns the log of the sum of exponentials.
float softmax_of(const Kernels& kernels, const float* x, float* y, std::int64_t count) {
  std::copy_n(x, count, y);
  return kernels.softmax_row(y, count, 1.0F);
}

float sigmoid_of(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

/// The `count` largest keys, best first; of equal keys the first wins. Sets the keys it takes to kNever.
void take_best(float* keys, std::int64_t all, std::int64_t count, std::int32_t* choice) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < all; ++e)
      if (keys[e] > kNever && (best < 0 || keys[e] > keys[best])) best = e;
    choice[i] = static_cast<std::int32_t>(best);
    if (best >= 0) keys[best] = kNever;
  }
}

/// Makes experts outside the best groups impossible to choose.
void keep_groups(const Routing& routing, float* keys, std::int64_t experts, float* group_scores,
                 std::vector<std::int32_t>& kept) {
  const std::int64_t width = experts / routing.groups;
  for (std::int64_t g = 0; g < routing.groups; ++g) {
    float best = kNever, second = kNever;
    for (std::int64_t e = g * width; e < (g + 1) * width; ++e) {
      if (keys[e] > best) {
        second = best;
        best = keys[e];
      } else if (keys[e] > second) {
        second = keys[e];
      }
    }
    group_scores[g] = routing.groups_by_two && width > 1 ? best + second : best;
  }
  take_best(group_scores, routing.groups, routing.groups_chosen, kept.data());
  for (std::int64_t g = 0; g < routing.groups; ++g)
    if (std::find(kept.begin(), kept.end(), g) == kept.end()) std::fill_n(keys + g * width, width, kNever);
}

/// The weights of a token's chosen experts.
void weigh(const Routing& routing, const float* logits, const float* scores, const std::int32_t* choice,
           std::int64_t chosen, float* weights) {
  const auto at = [&](const float* values, std::int64_t i) { return values[choice[i]]; };
  if (routing.scores == Scores::softmax_chosen) {
    float most = at(logits, 0), sum = 0;
    for (std::int64_t i = 1; i < chosen; ++i) most = std::max(most, at(logits, i));
    for (std::int64_t i = 0; i < chosen; ++i) sum += weights[i] = std::exp(at(logits, i) - most);
    for (std::int64_t i = 0; i < chosen; ++i) weights[i] /= sum;
  } else {
    float sum = routing.scores == Scores::sigmoid ? kLeastSum : 0.0F;
    for (std::int64_t i = 0; i < chosen; ++i) sum += weights[i] = at(scores, i);
    for (std::int64_t i = 0; routing.normalised && i < chosen; ++i) weights[i] /= sum;
  }
  const auto scale = static_cast<float>(routing.weight_scale);
  for (std::int64_t i = 0; i < chosen; ++i) weights[i] *= scale;
}

/// The gradient of a token's weights with respect to its logits, written into `dlogits`, which must be zero.
void weight_gradient(const Routing& routing, const float* dweights, const float* scores, const std::int32_t* choice,
                     const float* weights, std::int64_t chosen, std::int64_t experts, float* dvalues, float* dlogits) {
  const auto scale = static_cast<float>(routing.weight_scale);
  for (std::int64_t i = 0; i < chosen; ++i) dvalues[i] = scale * dweights[i];
  if (routing.scores == Scores::softmax_chosen) {
    float along = 0;
    for (std::int64_t i = 0; i < chosen; ++i) along += dweights[i] * weights[i];
    for (std::int64_t i = 0; i < chosen; ++i) dlogits[choice[i]] = weights[i] * (dweights[i] - along / scale);
    return;
  }
  if (routing.normalised) {
    float sum = routing.scores == Scores::sigmoid ? kLeastSum : 0.0F, along = 0;
    for (std::int64_t i = 0; i < chosen; ++i) sum += scores[choice[i]];
    for (std::int64_t i = 0; i < chosen; ++i) along += dvalues[i] * scores[choice[i]] / sum;
    for (std::int64_t i = 0; i < chosen; ++i) dvalues[i] = (dvalues[i] - along) / sum;
  }
  if (routing.scores == Scores::sigmoid) {
    for (std::int64_t i = 0; i < chosen; ++i) {
      const float s = scores[choice[i]];
      dlogits[choice[i]] = dvalues[i] * s * (1.0F - s);
    }
    return;
  }
  float along = 0;
  for (std::int64_t i = 0; i < chosen; ++i) along += dvalues[i] * scores[choice[i]];
  for (std::int64_t i = 0; i < chosen; ++i) dlogits[choice[i]] = dvalues[i];
  for (std::int64_t e = 0; e < experts; ++e) dlogits[e] = scores[e] * (dlogits[e] - along);
}

}  // namespace

void run_route(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const Routing& routing = op.routing;
  const std::int64_t n = op.n, experts = op.m, chosen = op.chosen;
  ENSURE(routing.scores != Scores::sparse_mixer && routing.scores != Scores::sqrt_softplus,
         "a router that draws its experts, or scores by roots of softplus, is not executed");
  ENSURE(chosen >= 1 && chosen <= experts && experts % routing.groups == 0, "{} of {} experts in {} groups", chosen,
         experts, routing.groups);
  ENSURE(chosen <= routing.groups_chosen * (experts / routing.groups), "{} experts of {} groups of {}", chosen,
         routing.groups_chosen, experts / routing.groups);
  const float* logits = call.input(0, n * experts);
  const float* bias = call.optional_input(1, experts);
  float* scores = call.output(0, n * experts);
  auto* choice = reinterpret_cast<std::int32_t*>(call.output(1, n * chosen));
  float* weights = call.output(2, n * chosen);
  std::atomic<std::int64_t> not_a_number{n};  // the first token with a NaN
  machine.pool.each(n, rows_per_chunk(8 * experts), [&](std::int64_t begin, std::int64_t end, int thread) {
    float* const keys = machine.scratch.get(thread, experts + routing.groups);
    std::vector<std::int32_t> kept(static_cast<std::size_t>(routing.groups > 1 ? routing.groups_chosen : 0));
    for (std::int64_t row = begin; row < end; ++row) {
      const float* const x = logits + row * experts;
      float* const s = scores + row * experts;
      if (routing.scores == Scores::sigmoid)
        std::transform(x, x + experts, s, sigmoid_of);
      else
        softmax_of(machine.kernels, x, s, experts);
      // For a softmax over the chosen, compares logits: they stay distinct where the softmax underflows.
      std::copy_n(routing.scores == Scores::softmax_chosen ? x : s, experts, keys);
      for (std::int64_t e = 0; bias != nullptr && e < experts; ++e) keys[e] += bias[e];
      bool usable = true;
      for (std::int64_t e = 0; e < experts; ++e) usable = usable && std::isfinite(s[e]) && std::isfinite(keys[e]);
      if (!usable) {
        std::int64_t known = not_a_number.load();
        while (row < known && !not_a_number.compare_exchange_weak(known, row)) {
        }
        continue;
      }
      if (routing.groups > 1) keep_groups(routing, keys, experts, keys + experts, kept);
      take_best(keys, experts, chosen, choice + row * chosen);
      weigh(routing, x, s, choice + row * chosen, chosen, weights + row * chosen);
    }
  });
  if (const std::int64_t row = not_a_number.load(); row < n)
    throw Failure(scores_not_finite({call.context.layer, call.context.step}, row));
}

void run_route_grad(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const Routing& routing = op.routing;
  const std::int64_t n = op.n, experts = op.m, chosen = op.chosen;
  const float* dweights = call.input(0, n * chosen);
  const float* logits = call.input(1, n * experts);
  const float* scores = call.input(2, n * experts);
  const std::int32_t* choice = call.ids(3, n * chosen);
  const float* weights = call.input(4, n * chosen);
  const float* load = call.optional_input(5, experts);
  const float* scaling = call.optional_input(6, 1);
  ENSURE(load != nullptr || routing.aux == 0, "a load-balancing loss without the load");
  float* dlogits = call.output(0, n * experts);
  // aux E sum_e load_e/N P_e, with P_e the mean of the softmax over N tokens (Fedus et al. 2022, equations 4 to 6);
  // z/N sum of squares of log-sum-exp (Zoph et al. 2022, equation 5). op.scale is 1/N. In fp16 `dweights` are those of
  // a scaled loss, and these losses get the same scale.
  const double scale = op.scale * (scaling == nullptr ? 1.0 : static_cast<double>(scaling[0]));
  const auto aux = static_cast<float>(routing.aux * static_cast<double>(experts) * op.scale * scale);
  const auto z = static_cast<float>(2 * routing.z * scale);
  machine.pool.each(n, rows_per_chunk(8 * experts), [&](std::int64_t begin, std::int64_t end, int thread) {
    float* const p = machine.scratch.get(thread, experts + chosen);
    for (std::int64_t row = begin; row < end; ++row) {
      float* const d = dlogits + row * experts;
      std::fill_n(d, experts, 0.0F);
      weight_gradient(routing, dweights + row * chosen, scores + row * experts, choice + row * chosen,
                      weights + row * chosen, chosen, experts, p + experts, d);
      if (aux == 0 && z == 0) continue;
      const float log_sum = softmax_of(machine.kernels, logits + row * experts, p, experts);
      float along = 0;
      for (std::int64_t e = 0; aux != 0 && e < experts; ++e) along += load[e] * p[e];
      for (std::int64_t e = 0; aux != 0 && e < experts; ++e) d[e] += aux * p[e] * (load[e] - along);
      for (std::int64_t e = 0; z != 0 && e < experts; ++e) d[e] += z * log_sum * p[e];
    }
  });
}

void run_count_choices(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, experts = call.op.m, chosen = call.op.chosen;
  const float* logits = call.input(0, n * experts);
  const std::int32_t* choice = call.ids(1, n * chosen);
  float* tally = call.output(0, 2 * experts + 1);
  // Blocks of rows are summed separately, then in order, so that the number of threads does not change the sum.
  constexpr std::int64_t kBlock = 64;
  const std::int64_t blocks = (n + kBlock - 1) / kBlock, width = experts + 1;
  std::vector<double> sums(static_cast<std::size_t>(blocks * width));
  machine.pool.each(blocks, std::max<std::int64_t>(1, rows_per_chunk(8 * experts) / kBlock),
                    [&](std::int64_t begin, std::int64_t end, int thread) {
                      float* const p = machine.scratch.get(thread, experts);
                      for (std::int64_t row = begin * kBlock; row < std::min(n, end * kBlock); ++row) {
                        double* const sum = sums.data() + row / kBlock * width;
                        const double log_sum = softmax_of(machine.kernels, logits + row * experts, p, experts);
                        for (std::int64_t e = 0; e < experts; ++e) sum[e] += p[e];
                        sum[experts] += log_sum * log_sum;
                      }
                    });
  for (std::int64_t block = 1; block < blocks; ++block)
    for (std::int64_t e = 0; e < width; ++e)
      sums[static_cast<std::size_t>(e)] += sums[static_cast<std::size_t>(block * width + e)];
  for (std::int64_t e = 0; blocks > 0 && e < width; ++e)
    tally[experts + e] += static_cast<float>(sums[static_cast<std::size_t>(e)]);
  std::vector<std::int64_t> taken(static_cast<std::size_t>(experts));
  for (std::int64_t i = 0; i < n * chosen; ++i) {
    ENSURE(choice[i] >= 0 && choice[i] < experts, "expert {} of {}", choice[i], experts);
    ++taken[static_cast<std::size_t>(choice[i])];
  }
  for (std::int64_t e = 0; e < experts; ++e) tally[e] += static_cast<float>(taken[static_cast<std::size_t>(e)]);
}

void run_place_rows(Machine&, const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t n = op.n, chosen = op.chosen, experts = op.slots * op.experts;
  const std::int64_t limit = op.routing.token_limit;
  ENSURE(limit == 0 || n == op.batch * op.sequence, "{} tokens are not {} sequences of {}", n, op.batch, op.sequence);
  const std::int32_t* choice = call.ids(0, n * chosen);
  auto* place = reinterpret_cast<std::int32_t*>(call.output(0, n * chosen));
  auto* counts = reinterpret_cast<std::int32_t*>(call.output(1, experts));
  // First gives each row its number among its expert's rows, then finds where each expert's rows begin.
  std::vector<std::int32_t> total(static_cast<std::size_t>(experts)), taken(total.size());
  for (std::int64_t i = 0; i < n * chosen; ++i) {
    if (limit > 0 && i % (op.sequence * chosen) == 0) std::fill(taken.begin(), taken.end(), 0);
    ENSURE(choice[i] >= 0 && choice[i] < experts, "expert {} of {}", choice[i], experts);
    const auto e = static_cast<std::size_t>(choice[i]);
    place[i] = limit > 0 && taken[e]++ >= limit ? -1 : total[e]++;
  }
  std::vector<std::int32_t> first(total.size());
  for (std::int64_t slot = 0; slot < op.slots; ++slot) {
    std::int64_t rows = 0;
    for (std::int64_t e = slot * op.experts; e < (slot + 1) * op.experts; ++e) {
      first[static_cast<std::size_t>(e)] = static_cast<std::int32_t>(slot * op.capacity + rows);
      rows += counts[e] = total[static_cast<std::size_t>(e)];
    }
    if (rows > op.capacity)
      throw Failure(slot_overflow({call.context.layer, call.context.step}, slot, op.experts, rows, op.capacity));
  }
  for (std::int64_t i = 0; i < n * chosen; ++i)
    if (place[i] >= 0) place[i] += first[static_cast<std::size_t>(choice[i])];
}

void run_balance_losses(Machine&, const Call& call) {
  const std::int64_t experts = call.op.m;
  const float* tally = call.input(0, 2 * experts + 1);
  float* losses = call.output(0, 2);
  const auto n = static_cast<double>(call.op.n);
  double sum = 0;
  for (std::int64_t e = 0; e < experts; ++e)
    sum += static_cast<double>(tally[e]) / n * (static_cast<double>(tally[experts + e]) / n);
  losses[0] = static_cast<float>(static_cast<double>(experts) * sum);
  losses[1] = static_cast<float>(static_cast<double>(tally[2 * experts]) / n);
}

void run_balance_bias(Machine&, const Call& call) {
  const std::int64_t experts = call.op.m;
  const float* tally = call.input(0, 2 * experts + 1);
  float* bias = call.output(0, experts);
  double mean = 0;
  for (std::int64_t e = 0; e < experts; ++e) mean += static_cast<double>(tally[e]);
  mean /= static_cast<double>(experts);
  for (std::int64_t e = 0; e < experts; ++e) {
    const double missing = mean - static_cast<double>(tally[e]);
    bias[e] += static_cast<float>(call.op.scale * static_cast<double>((missing > 0) - (missing < 0)));
  }
}

}  // namespace orrery::exec
