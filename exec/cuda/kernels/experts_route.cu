// Routers: choices, weights and their gradients, a warp for each token; counts of choices; the places of rows. Sums
// over tokens are cut into parts that do not depend on the device, and added in order.
#include <climits>

#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/experts.h"
#include "exec/engine/least_sum.h"

namespace orrery::exec::cuda {
namespace {

using models::Routing;
using models::Scores;

constexpr int kRouters = 4;  // warps of a block, a token each
constexpr std::size_t kSharedBytes = std::size_t{48} << 10;

struct Best {
  float key;
  int index;  // -1: none
};
__device__ inline Best better(Best a, Best b) {
  const bool other = b.index >= 0 && (a.index < 0 || b.key > a.key || (b.key == a.key && b.index < a.index));
  return other ? b : a;
}

/// The largest of `count` keys, the first of equal ones; its key becomes one that is never chosen.
__device__ inline int take_best(float* keys, int64_t count, int lane) {
  Best own{-INFINITY, -1};
  for (int64_t e = lane; e < count; e += kWarp)
    if (keys[e] > -INFINITY) own = better(own, {keys[e], static_cast<int>(e)});
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const float key = __shfl_xor_sync(kAllLanes, own.key, offset);
    own = better(own, {key, __shfl_xor_sync(kAllLanes, own.index, offset)});
  }
  if (own.index >= 0 && own.index % kWarp == lane) keys[own.index] = -INFINITY;
  __syncwarp();
  return own.index;
}

/// Experts outside the best groups cannot be chosen.
__device__ inline void keep_groups(const Routing& routing, float* keys, int64_t experts, float* scores, int lane) {
  const int64_t width = experts / routing.groups;
  for (int64_t g = lane; g < routing.groups; g += kWarp) {
    float best = -INFINITY, second = -INFINITY;
    for (int64_t e = g * width; e < (g + 1) * width; ++e) {
      const float key = keys[e];
      second = key > best ? best : fmaxf(second, key);
      best = fmaxf(best, key);
    }
    scores[g] = routing.groups_by_two && width > 1 ? best + second : best;
  }
  __syncwarp();
  for (int64_t i = 0; i < routing.groups_chosen; ++i) take_best(scores, routing.groups, lane);
  for (int64_t e = lane; e < experts; e += kWarp)  // a group that was taken has no score any more
    if (scores[e / width] > -INFINITY) keys[e] = -INFINITY;
  __syncwarp();
}

/// Of a row: its largest value, and the sum of the exponentials of the differences to it.
struct Softmax {
  float most, sum;
  __device__ float of(float x) const { return expf(x - most) / sum; }
  __device__ float log_sum() const { return most + logf(sum); }
};
__device__ inline Softmax softmax_of(const float* x, int64_t count, int lane) {
  float most = -INFINITY;
  for (int64_t e = lane; e < count; e += kWarp) most = fmaxf(most, x[e]);
  for (int offset = kWarp / 2; offset > 0; offset /= 2) most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, offset));
  float sum = 0;
  for (int64_t e = lane; e < count; e += kWarp) sum += expf(x[e] - most);
  return {most, warp_sum(sum)};
}

__device__ inline bool finite(float x) {
  return (__float_as_uint(x) & 0x7f800000U) != 0x7f800000U;
}

/// The token of this warp; -1: it has none.
__device__ inline int64_t own_token(int64_t tokens) {
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kRouters + threadIdx.x / kWarp;
  return token < tokens ? token : -1;
}

/// `keys`: experts and groups for each warp of the block, in shared memory.
__global__ void __launch_bounds__(kRouters* kWarp)
    route_kernel(RouterShape s, const float* logits, const float* bias, float* scores, int32_t* choice, float* weights,
                 ExpertFaults* faults) {
  ORRERY_DYNAMIC_SHARED(shared);
  const Routing& routing = s.routing;
  const int64_t token = own_token(s.tokens);
  if (token < 0) return;  // the whole warp
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float* const keys = shared + threadIdx.x / kWarp * (s.experts + routing.groups);
  const float* const x = logits + token * s.experts;
  const bool sigmoid = routing.scores == Scores::sigmoid, of_chosen = routing.scores == Scores::softmax_chosen;
  const Softmax softmax = softmax_of(x, s.experts, lane);
  const auto score_of = [&](int64_t e) { return sigmoid ? 1.0F / (1.0F + expf(-x[e])) : softmax.of(x[e]); };
  bool usable = true;
  for (int64_t e = lane; e < s.experts; e += kWarp) {
    const float score = score_of(e);
    scores[token * s.experts + e] = score;
    keys[e] = (of_chosen ? x[e] : score) + (bias ? bias[e] : 0.0F);
    usable = usable && finite(score) && finite(keys[e]);
  }
  int32_t* const own_choice = choice + token * s.chosen;
  float* const own_weights = weights + token * s.chosen;
  if (__ballot_sync(kAllLanes, !usable) != 0) {
    for (int64_t i = lane; i < s.chosen; i += kWarp) own_choice[i] = -1, own_weights[i] = NAN;
    if (lane == 0)
      atomicMax(&faults->token,
                ~(static_cast<unsigned long long>(s.layer + 1) << 32 | static_cast<unsigned long long>(token)));
    return;
  }
  __syncwarp();
  if (routing.groups > 1) keep_groups(routing, keys, s.experts, keys + s.experts, lane);
  for (int64_t i = 0; i < s.chosen; ++i) {
    const int best = take_best(keys, s.experts, lane);
    if (lane == 0) own_choice[i] = best;
  }
  __syncwarp();
  // Sums in the order of the choice, by every lane.
  float most = -INFINITY, sum = sigmoid ? kLeastSum : 0.0F;
  for (int64_t i = 0; of_chosen && i < s.chosen; ++i) most = fmaxf(most, x[own_choice[i]]);
  const auto value_of = [&](int64_t i) {
    const int64_t e = own_choice[i];
    return of_chosen ? expf(x[e] - most) : score_of(e);
  };
  for (int64_t i = 0; i < s.chosen; ++i) sum += value_of(i);
  const bool divided = of_chosen || routing.normalised;
  for (int64_t i = lane; i < s.chosen; i += kWarp)
    own_weights[i] = (divided ? value_of(i) / sum : value_of(i)) * static_cast<float>(routing.weight_scale);
}

/// Gradient with respect to the logits: from the weights, through the choice, and from the losses that balance experts.
__global__ void __launch_bounds__(kRouters* kWarp) route_grad_kernel(RouterShape s, RouteGradient g) {
  const Routing& routing = s.routing;
  const int64_t token = own_token(s.tokens);
  if (token < 0) return;  // the whole warp
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float scale = static_cast<float>(routing.weight_scale);
  const bool sigmoid = routing.scores == Scores::sigmoid, of_chosen = routing.scores == Scores::softmax_chosen;
  const int32_t* const choice = g.choice + token * s.chosen;
  const float* const dweights = g.dweights + token * s.chosen;
  const float* const weights = g.weights + token * s.chosen;
  const float* const scores = g.scores + token * s.experts;
  const float* const x = g.logits + token * s.experts;
  if (choice[0] < 0) {  // the token's scores were not numbers
    for (int64_t e = lane; e < s.experts; e += kWarp) g.dlogits[token * s.experts + e] = NAN;
    return;
  }
  // Every lane has the sums over the chosen, in their order.
  float sum = sigmoid ? kLeastSum : 0.0F, along_sum = 0, along = 0;
  if (of_chosen) {
    for (int64_t i = 0; i < s.chosen; ++i) along += dweights[i] * weights[i];
  } else if (routing.normalised) {
    for (int64_t i = 0; i < s.chosen; ++i) sum += scores[choice[i]];
    for (int64_t i = 0; i < s.chosen; ++i) along_sum += scale * dweights[i] * scores[choice[i]] / sum;
  }
  const auto dvalue = [&](int64_t i) {
    const float d = scale * dweights[i];
    return routing.normalised ? (d - along_sum) / sum : d;
  };
  for (int64_t i = 0; !of_chosen && !sigmoid && i < s.chosen; ++i) along += dvalue(i) * scores[choice[i]];
  const bool balances = g.aux != 0 || g.z != 0;
  const float loss_scale = g.scaling == nullptr ? 1.0F : g.scaling[0];
  Softmax softmax{0, 1};
  float along_load = 0;
  if (balances) {
    softmax = softmax_of(x, s.experts, lane);
    for (int64_t e = lane; g.aux != 0 && e < s.experts; e += kWarp) along_load += g.load[e] * softmax.of(x[e]);
    along_load = warp_sum(along_load);
  }
  for (int64_t e = lane; e < s.experts; e += kWarp) {
    int64_t own = -1;
    for (int64_t i = 0; i < s.chosen; ++i)
      if (choice[i] == e) own = i;
    float d = 0;
    if (of_chosen)
      d = own < 0 ? 0.0F : weights[own] * (dweights[own] - along / scale);
    else if (sigmoid)
      d = own < 0 ? 0.0F : dvalue(own) * scores[e] * (1.0F - scores[e]);
    else
      d = scores[e] * ((own < 0 ? 0.0F : dvalue(own)) - along);
    if (balances) {
      const float p = softmax.of(x[e]);
      if (g.aux != 0) d += loss_scale * g.aux * p * (g.load[e] - along_load);
      if (g.z != 0) d += loss_scale * g.z * softmax.log_sum() * p;
    }
    g.dlogits[token * s.experts + e] = d;
  }
}

// -- counts -----------------------------------------------------------------------------------------------------------
__global__ void __launch_bounds__(kRouters* kWarp)
    row_statistics_kernel(const float* logits, int64_t tokens, int64_t experts, Softmax* statistics) {
  const int64_t token = own_token(tokens);
  if (token < 0) return;  // the whole warp
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Softmax softmax = softmax_of(logits + token * experts, experts, lane);
  if (lane == 0) statistics[token] = softmax;
}

/// 2E + 1 sums over a part of the tokens, in double precision; if there is only one part, they are added to the tally.
struct TallySums {
  const float* logits;
  const int32_t* choice;
  const Softmax* statistics;
  float* tally;
  double* parts;  // null: one part
  int64_t tokens, experts, chosen, tokens_per_part;
};

__device__ inline void add_to_tally(const TallySums& s, int64_t part, int64_t at, double value) {
  if (s.parts)
    s.parts[part * (2 * s.experts + 1) + at] = value;
  else
    s.tally[at] += static_cast<float>(value);
}

/// Block (32 experts, part) of (32, 32) threads: thread (x, y) adds tokens y, y + 32, … of the part; row 0 of the
/// threads adds the 32 sums. The column after the last expert holds the squares of log-sum-exp.
__global__ void __launch_bounds__(kWarp* kWarp) tally_kernel(TallySums s) {
  __shared__ double sums[kWarp][kWarp + 1];
  __shared__ int taken[kWarp][kWarp + 1];
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * s.tokens_per_part;
  const int64_t end = begin + s.tokens_per_part < s.tokens ? begin + s.tokens_per_part : s.tokens;
  double sum = 0;
  int count = 0;
  if (e <= s.experts)
    for (int64_t token = begin + threadIdx.y; token < end; token += kWarp) {
      const Softmax softmax = s.statistics[token];
      const float log_sum = softmax.log_sum();
      sum += e < s.experts ? static_cast<double>(softmax.of(s.logits[token * s.experts + e]))
                           : static_cast<double>(log_sum) * static_cast<double>(log_sum);
      for (int64_t i = 0; e < s.experts && i < s.chosen; ++i) count += s.choice[token * s.chosen + i] == e ? 1 : 0;
    }
  sums[threadIdx.y][threadIdx.x] = sum;
  taken[threadIdx.y][threadIdx.x] = count;
  __syncthreads();
  if (threadIdx.y != 0 || e > s.experts) return;
  double total = 0;
  int64_t all = 0;
  for (int y = 0; y < kWarp; ++y) total += sums[y][threadIdx.x], all += taken[y][threadIdx.x];
  add_to_tally(s, blockIdx.y, s.experts + e, total);
  if (e < s.experts) add_to_tally(s, blockIdx.y, e, static_cast<double>(all));
}

struct AddTallies {
  const double* parts;
  float* tally;
  int64_t count, width;
  template <int N>
  __device__ void run(int64_t i) const {
    double sum = 0;
    for (int64_t part = 0; part < count; ++part) sum += parts[part * width + i];
    tally[i] += static_cast<float>(sum);
  }
};

__global__ void balance_losses_kernel(const float* tally, int64_t experts, double tokens, float* losses) {
  double sum = 0;
  for (int64_t e = threadIdx.x; e < experts; e += kThreads)
    sum += static_cast<double>(tally[e]) / tokens * (static_cast<double>(tally[experts + e]) / tokens);
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  losses[0] = static_cast<float>(static_cast<double>(experts) * sum);
  losses[1] = static_cast<float>(static_cast<double>(tally[2 * experts]) / tokens);
}

__global__ void balance_bias_kernel(const float* tally, int64_t experts, double rate, float* bias) {
  double mean = 0;
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) mean += static_cast<double>(tally[e]);
  mean = block_sum(mean) / static_cast<double>(experts);
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) {
    const double missing = mean - static_cast<double>(tally[e]);
    bias[e] += static_cast<float>(missing > 0 ? rate : missing < 0 ? -rate : 0.0);
  }
}

// -- places -----------------------------------------------------------------------------------------------------------
constexpr int kWindows = 4, kWarps = kThreads / kWarp;

/// One block for each expert. It looks at the choices in their order, kWindows * kThreads at a time. A row's place is,
/// for now, the number of rows before it; -1 for a dropped row.
__global__ void __launch_bounds__(kThreads) order_rows_kernel(RowPlaces p, int64_t experts, int32_t* totals) {
  __shared__ unsigned matches[kWindows * kWarps];
  const int32_t expert = static_cast<int32_t>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  int64_t total = 0;
  for (int64_t begin = 0; begin < p.count; begin += p.span) {
    const int64_t end = begin + p.span < p.count ? begin + p.span : p.count;
    int64_t taken = 0;  // of this sequence
    for (int64_t base = begin; base < end; base += kWindows * kThreads) {
#pragma unroll
      for (int window = 0; window < kWindows; ++window) {
        const int64_t i = base + window * kThreads + threadIdx.x;
        const int32_t chosen = i < end ? p.choice[i] : -1;
        if (expert == 0 && i < end && (chosen < 0 || chosen >= experts)) p.place[i] = -1;
        const unsigned mask = __ballot_sync(kAllLanes, i < end && chosen == expert);
        if (lane == 0) matches[window * kWarps + warp] = mask;
      }
      __syncthreads();
      int before = 0;
      for (int at = 0; at < kWindows * kWarps; ++at) {
        const unsigned mask = matches[at];
        if (at % kWarps == warp && (mask >> lane & 1U) != 0) {
          const int64_t own = taken + before + __popc(mask & ((1U << lane) - 1));
          const int64_t i = base + at / kWarps * kThreads + threadIdx.x;
          p.place[i] = p.limit > 0 && own >= p.limit ? -1 : static_cast<int32_t>(total + own);
        }
        before += __popc(mask);
      }
      taken += before;
      __syncthreads();
    }
    total += p.limit > 0 && taken > p.limit ? p.limit : taken;
  }
  if (threadIdx.x == 0) totals[expert] = static_cast<int32_t>(total);
}

/// A block for each slot: where the rows of each of its experts begin, and how many of them there is room for.
__global__ void __launch_bounds__(kThreads)
    begin_experts_kernel(const int32_t* totals, RowSlots s, int32_t layer, int32_t* counts, int32_t* firsts,
                         ExpertFaults* faults) {
  __shared__ int32_t window[kThreads];
  const int64_t slot = blockIdx.x;
  int64_t rows = 0;  // thread 0's
  for (int64_t base = 0; base < s.experts; base += kThreads) {
    const int64_t e = base + threadIdx.x;
    window[threadIdx.x] = e < s.experts ? totals[slot * s.experts + e] : 0;
    __syncthreads();
    for (int64_t i = 0; threadIdx.x == 0 && i < kThreads && base + i < s.experts; ++i) {
      const int64_t room = rows < s.capacity ? s.capacity - rows : 0, wanted = window[i];
      firsts[slot * s.experts + base + i] = static_cast<int32_t>(slot * s.capacity + rows);
      counts[slot * s.experts + base + i] = static_cast<int32_t>(wanted < room ? wanted : room);
      rows += wanted;
    }
    __syncthreads();
  }
  if (threadIdx.x != 0 || rows <= s.capacity || faults->rows != 0) return;  // the first layer's stays
  faults->layer = layer;
  faults->slot = static_cast<int32_t>(slot);
  faults->experts = static_cast<int32_t>(s.experts);
  faults->capacity = static_cast<int32_t>(s.capacity);
  faults->rows = static_cast<int32_t>(rows);
}

struct MovePlaces {
  const int32_t* choice;
  const int32_t* counts;
  const int32_t* firsts;
  int32_t* place;
  template <int N>
  __device__ void run(int64_t i) const {
    const int32_t own = place[i];
    if (own < 0) return;
    const int32_t e = choice[i];
    place[i] = own < counts[e] ? firsts[e] + own : -1;
  }
};

dim3 routers_for(int64_t tokens, const char* name) {
  return row_grid((tokens + kRouters - 1) / kRouters, name);
}

}  // namespace

void route(cudaStream_t stream, const RouterShape& shape, const float* logits, const float* bias, float* scores,
           int32_t* choice, float* weights, ExpertFaults* faults) {
  const std::size_t bytes = static_cast<std::size_t>(kRouters * (shape.experts + shape.routing.groups)) * sizeof(float);
  if (bytes > kSharedBytes) throw Failure("CUDA: route: too many experts for one block");
  ORRERY_LAUNCH(route_kernel, routers_for(shape.tokens, "route"), dim3(kRouters * kWarp), bytes, stream, shape, logits,
                bias, scores, choice, weights, faults);
  check_launch("route");
}

void route_grad(cudaStream_t stream, const RouterShape& shape, const RouteGradient& one) {
  ORRERY_LAUNCH(route_grad_kernel, routers_for(shape.tokens, "route_grad"), dim3(kRouters * kWarp), 0, stream, shape,
                one);
  check_launch("route_grad");
}

void count_choices(cudaStream_t stream, const RouterShape& shape, const float* logits, const int32_t* choice,
                   float* tally, KernelScratch scratch) {
  constexpr int64_t kMostParts = 64, kLeastTokens = 256;
  const int64_t width = 2 * shape.experts + 1;
  const std::size_t of_tokens = static_cast<std::size_t>(shape.tokens) * sizeof(Softmax);
  if (of_tokens > scratch.bytes) throw Failure("CUDA: count_choices: too many tokens for the workspace");
  auto* const statistics = static_cast<Softmax*>(scratch.data);
  ORRERY_LAUNCH(row_statistics_kernel, routers_for(shape.tokens, "count_choices"), dim3(kRouters * kWarp), 0, stream,
                logits, shape.tokens, shape.experts, statistics);
  check_launch("count_choices, statistics");
  int64_t parts = shape.tokens / kLeastTokens;
  const auto room =
      static_cast<int64_t>((scratch.bytes - of_tokens) / (sizeof(double) * static_cast<std::size_t>(width)));
  parts = parts < kMostParts ? parts : kMostParts;
  parts = parts < room ? parts : room;
  if (parts < 1) parts = 1;
  TallySums s{logits,        choice,       statistics,
              tally,         nullptr,      shape.tokens,
              shape.experts, shape.chosen, (shape.tokens + parts - 1) / parts};
  if (parts > 1) s.parts = reinterpret_cast<double*>(static_cast<char*>(scratch.data) + of_tokens);
  dim3 grid = row_grid((shape.experts + 1 + kWarp - 1) / kWarp, "count_choices");
  grid.y = static_cast<unsigned>(parts);
  ORRERY_LAUNCH(tally_kernel, grid, dim3(kWarp, kWarp), 0, stream, s);
  check_launch("count_choices");
  if (parts > 1)
    launch_packs<1>(stream, width, false, AddTallies{s.parts, tally, parts, width}, "count_choices, parts");
}

void balance_losses(cudaStream_t stream, const float* tally, int64_t experts, double tokens, float* losses) {
  ORRERY_LAUNCH(balance_losses_kernel, dim3(1), dim3(kThreads), 0, stream, tally, experts, tokens, losses);
  check_launch("balance_losses");
}

void balance_bias(cudaStream_t stream, const float* tally, int64_t experts, double rate, float* bias) {
  ORRERY_LAUNCH(balance_bias_kernel, dim3(1), dim3(kThreads), 0, stream, tally, experts, rate, bias);
  check_launch("balance_bias");
}

void place_rows(cudaStream_t stream, const RowPlaces& places, const RowSlots& slots, ExpertFaults* faults,
                KernelScratch scratch) {
  const int64_t experts = slots.slots * slots.experts;
  if (slots.rows() > INT_MAX) throw Failure("CUDA: place_rows: more rows than 32-bit places number");
  if (static_cast<std::size_t>(2 * experts) * sizeof(int32_t) > scratch.bytes)
    throw Failure("CUDA: place_rows: too many experts for the workspace");
  auto* const totals = static_cast<int32_t*>(scratch.data);
  int32_t* const firsts = totals + experts;
  ORRERY_LAUNCH(order_rows_kernel, row_grid(experts, "place_rows"), dim3(kThreads), 0, stream, places, experts, totals);
  check_launch("place_rows, order");
  ORRERY_LAUNCH(begin_experts_kernel, row_grid(slots.slots, "place_rows"), dim3(kThreads), 0, stream, totals, slots,
                places.layer, places.counts, firsts, faults);
  check_launch("place_rows, experts");
  launch_packs<1>(stream, places.count, false, MovePlaces{places.choice, places.counts, firsts, places.place},
                  "place_rows");
}

}  // namespace orrery::exec::cuda
