/// Pricing: memoised prices of ops and messages.
#include "cost/prices/pricing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "base/ensure.h"
#include "cost/network/copies.h"
#include "cost/prices/exchange.h"
#include "cost/prices/operators.h"
#include "models/operators/operators.h"

namespace orrery::cost {

using base::Bytes;
using base::Seconds;

namespace {

constexpr std::size_t kOpPlaces = 7;  // sizes of slots and rings, which prices alone depend on

/// What an op's price depends on; everything else (operands, loss scale) is left out.
struct OpKey {
  std::array<std::int64_t, kOpPlaces + models::kOpSizes> sizes;
  double expected;
  std::uint64_t flags;
  bool operator==(const OpKey&) const = default;
};

struct OpHash {
  std::size_t operator()(const OpKey& key) const {
    std::uint64_t h = key.flags ^ std::hash<double>{}(key.expected);
    for (const std::int64_t v : key.sizes) h = (h ^ static_cast<std::uint64_t>(v)) * 0x9E3779B97F4A7C15ULL + (h >> 29);
    return static_cast<std::size_t>(h);
  }
};

/// Operands that change the bytes moved: an addend of a norm's gradient, a compute copy of the optimizer.
std::uint32_t optional_operands(const models::Op& op) {
  std::uint32_t present = op.out.size() > 3 ? 1 : 0;
  if (op.in.size() > 5 && op.in[5] >= 0) present |= 2;
  if (op.in.size() > 4 && op.in[4] >= 0) present |= 4;
  // A gated expert's second matrix or bias.
  if (op.slots > 0 && ((op.in.size() > 3 && op.in[3] >= 0) || op.out.size() > 1)) present |= 8;
  // Updates: which states and copies exist.
  if (models::updates_parameters(op.kind))
    present = static_cast<std::uint32_t>(op.out.size()) | (op.out.size() > 1 && op.out[1] >= 0 ? 8U : 0U) |
              (op.stochastic ? 16U : 0U);
  return present;
}

OpKey key_of(const models::Op& op) {
  const std::uint64_t flags =
      static_cast<std::uint32_t>(op.kind) | static_cast<std::uint32_t>(op.dtype) << 8 |
      static_cast<std::uint32_t>(op.accumulate) << 16 | static_cast<std::uint32_t>(op.causal) << 17 |
      static_cast<std::uint32_t>(op.flash) << 18 | optional_operands(op) << 19 |
      static_cast<std::uint32_t>(op.rounded) << 25 | static_cast<std::uint32_t>(op.trans_a) << 26 |
      static_cast<std::uint32_t>(op.trans_b) << 27 | static_cast<std::uint32_t>(op.dropout > 0) << 28 |
      static_cast<std::uint32_t>(op.cap > 0) << 29 | static_cast<std::uint64_t>(op.rule) << 32 |
      static_cast<std::uint64_t>(op.function) << 40 | static_cast<std::uint64_t>(op.stochastic) << 48 |
      static_cast<std::uint64_t>(op.four_bits) << 49 | static_cast<std::uint64_t>(op.joint) << 50 |
      static_cast<std::uint64_t>(op.ssm.delta) << 51;
  OpKey key{{op.capacity, op.ring_step, op.slots, op.experts, op.chosen, op.context, op.run}, op.expected, flags};
  std::size_t at = kOpPlaces;
  models::each_size(op, [&](const char*, std::int64_t size) { key.sizes[at++] = size; });
  return key;
}

/// Kind, bytes, ranks, first rank within its node, first stride, extent, stream: these determine a regular group's
/// time. On a torus, where groups have other forms: kind, bytes, ranks, hops, links, links for all-to-all, stream.
using GroupKey = std::tuple<int, double, std::size_t, int, int, int, int>;

struct GroupHash {
  std::size_t operator()(const GroupKey& key) const {
    const auto& [kind, bytes, size, first, stride, last, stream] = key;
    std::size_t h = std::hash<double>{}(bytes);
    for (const std::size_t v :
         {static_cast<std::size_t>(kind), size, static_cast<std::size_t>(first), static_cast<std::size_t>(stride),
          static_cast<std::size_t>(last), static_cast<std::size_t>(stream)})
      h = (h ^ v) * 0x9E3779B97F4A7C15ULL + (h >> 31);
    return h;
  }
};

bool on_torus(const clusters::Cluster& cluster) {
  return cluster.shape && cluster.shape->node.fabric == clusters::NodeFabric::torus;
}

/// Equal groups that begin at another node have equal times: the key has the first device's index within its node.
GroupKey key_of(const clusters::Cluster& cluster, int kind, Bytes message, std::span<const int> members, int stream) {
  if (on_torus(cluster)) {
    const clusters::GroupSpan span = shared_span(cluster, members);
    const auto whole = [](double rate) { return static_cast<int>(std::lround(rate / 1e6)); };
    return {kind,  message.value, members.size(), span.hops, whole(span.bandwidth.value), whole(span.exchange.value),
            stream};
  }
  const int first = members.front() % std::max(1, cluster.devices_per_node);
  return {kind,  message.value, members.size(), first, members[1] - members[0], members.back() - members.front(),
          stream};
}

/// Whether autograd issues it. Among products, only forward ones read their weight transposed
/// (models/layers/expand.cpp).
bool is_of_backward(const models::Op& op) {
  return op.kind == models::OpKind::matmul ? !op.trans_b : models::traits_of(op).issued == models::Issued::autograd;
}

}  // namespace

struct Pricing::Memo {
  DeviceRates rates;
  std::optional<HostRates> host;  ///< computed on the first copy: most plans make none, and finding paths takes time
  double op_overhead = 0, host_op_time = 0, host_grad_share = 1, load_overhead = 0, jitter = 0, neighbours = 0,
         dispatch_overhead = 0, communication_dispatch = 0, step_overhead = 0, software = 0, data_share = 1,
         exchange_share = 1, latency_share = 1, gather_messages = 1, tensor_hidden = 0, host_message_time = 0,
         pipeline_message_time = 0, tensor_hop_time = 0;
  double expert_calls = 0, latent_calls = 0, group_calls = 0, adapter_calls = 0;
  bool reduces_half = false, scatters = false, host_runs_ahead = true, two_hop = false, graphed = false,
       gathers_fp8 = false;

  /// Adjusts a collective's best `latency` and `transfer` in the library to what the stack achieves. `beyond`: ranks of
  /// a group that spans nodes, less one; otherwise 0.
  [[nodiscard]] Alone as_run(plan::CollectiveKind kind, plan::Stream stream, Alone best, int beyond) const {
    if (!rates.gpu) return best;
    best.latency.value *= latency_share;
    const bool data = stream == plan::Stream::data;
    if (!data && kind != plan::CollectiveKind::ring_shift) best.latency.value += tensor_hop_time * beyond;
    if (data && kind == plan::CollectiveKind::all_gather) best.latency.value *= gather_messages;
    best.stretch = stretch(kind, stream);
    best.transfer.value *= best.stretch;
    return best;
  }
  /// The stack's transfer over the library's.
  [[nodiscard]] double stretch(plan::CollectiveKind kind, plan::Stream stream) const {
    const bool exchange = stream == plan::Stream::exchange;
    // Sums of rows of tables, and their gradients, are no all-to-all: the library's own rate.
    const bool sums =
        exchange && (kind == plan::CollectiveKind::reduce_scatter || kind == plan::CollectiveKind::all_gather);
    if (!rates.gpu || sums) return 1;
    return stream == plan::Stream::data ? 1 / data_share : exchange ? 1 / exchange_share : 1 - tensor_hidden;
  }
  [[nodiscard]] double host_time(std::span<const models::Op> issued) const;
  /// Extra calls that an operator stands for: a router and its exchange, latent attention, an adapter.
  [[nodiscard]] double own_calls(const models::Op& op) const {
    using K = models::OpKind;
    if (adapter_calls > 0 && ends_adapter(op)) return adapter_calls;
    const double share = op.kind == K::route_grad || op.kind == K::latent_pack_grad ? host_grad_share : 1;
    if (op.kind == K::route || op.kind == K::route_grad)
      return share * (expert_calls + (op.routing.groups > 1 ? group_calls : 0));
    return op.kind == K::latent_pack || op.kind == K::latent_pack_grad ? share * latent_calls : 0;
  }
  std::unordered_map<OpKey, double, OpHash> ops;
  std::unordered_map<GroupKey, double, GroupHash> messages;
  std::map<plan::MeshAxes, std::vector<int>> placements;
};

Pricing::Pricing(std::shared_ptr<const clusters::Cluster> cluster, Stack stack,
                 const std::vector<Calibration>& calibrations)
    : cluster_(std::move(cluster)), stack_(std::move(stack)), memo_(std::make_unique<Memo>()) {
  calibration_ = defaults(*cluster_);
  calibration_.stack = stack_.name;
  for (const Parameter& parameter : stack_.parameters) calibration_.parameters[parameter.name] = parameter;
  calibration_ = merge(std::move(calibration_), calibrations);
  memo_->rates = device_rates(*cluster_, calibration_);
  memo_->op_overhead = calibration_.get("stack.op_overhead", 0);
  memo_->load_overhead = calibration_.get("stack.load_overhead", 0);
  memo_->host_op_time = calibration_.get("stack.host_op_time", 0);
  memo_->host_message_time = calibration_.get("stack.host_message_time", 0);
  memo_->pipeline_message_time = calibration_.get("stack.pipeline_message_time", 0);
  memo_->tensor_hop_time = calibration_.get("stack.tensor_hop_time", 0);
  memo_->host_grad_share = calibration_.get("stack.host_grad_share", 1);
  memo_->jitter = cluster_->size() > 1 ? calibration_.get("stack.rank_jitter", 0) : 0;
  memo_->neighbours = cluster_->size() > 1 ? calibration_.get("device.neighbour_slowdown", 0) : 0;
  memo_->dispatch_overhead = calibration_.get("stack.dispatch_overhead", 0);
  memo_->communication_dispatch = stack_.host_inline ? memo_->dispatch_overhead : 0;
  memo_->step_overhead = calibration_.get("stack.step_overhead", 0);
  memo_->software = calibration_.get("stack.context_memory", 0) +
                    std::min(calibration_.get("stack.workspace_share", 0) * cluster_->device().memory.value,
                             calibration_.get("stack.workspace_most", std::numeric_limits<double>::infinity()));
  memo_->tensor_hidden = calibration_.get("stack.tensor_hidden", 0);
  memo_->data_share = calibration_.get("stack.data_share", 1);
  memo_->exchange_share = calibration_.get("stack.exchange_share", 1);
  memo_->latency_share = calibration_.get("stack.latency_share", 1);
  memo_->host_runs_ahead = calibration_.get("stack.host_runs_ahead", 1) != 0;
  memo_->gathers_fp8 = calibration_.get("stack.gathers_fp8", 0) != 0;
  memo_->two_hop = calibration_.get("stack.exchange_two_hop", 0) != 0;
  memo_->expert_calls = calibration_.get("stack.expert_calls", 0);
  if (calibration_.get("stack.groups_unfused", 0) != 0) memo_->group_calls = calibration_.get("stack.group_calls", 0);
  memo_->latent_calls = calibration_.get("stack.latent_calls", 0);
  memo_->adapter_calls = calibration_.get("stack.adapter_calls", 0);
  memo_->reduces_half = calibration_.get("stack.reduces_half", 0) != 0;
  memo_->graphed = calibration_.get("stack.graphed", 0) != 0;
  memo_->scatters = calibration_.get("stack.pipeline_scatter", 0) != 0;
  memo_->gather_messages = calibration_.get("stack.gather_messages", 1);
}

Pricing::Pricing(const Pricing& other)
    : cluster_(other.cluster_),
      stack_(other.stack_),
      calibration_(other.calibration_),
      memo_(std::make_unique<Memo>(*other.memo_)) {}
Pricing::~Pricing() = default;
Pricing::Pricing(Pricing&&) noexcept = default;
Pricing& Pricing::operator=(Pricing&&) noexcept = default;

Seconds Pricing::op_time(const models::Op& op) const {
  const OpKey key = key_of(op);
  const auto found = memo_->ops.find(key);
  if (found != memo_->ops.end()) return Seconds{found->second};
  const double host = op.kind == models::OpKind::load_tokens ? memo_->load_overhead : 0;
  const double overhead = memo_->op_overhead * (1 + cast_kernels(memo_->rates, op));
  const double time =
      (device_time(memo_->rates, op).value + overhead + host) * (1 + memo_->jitter) * (1 + memo_->neighbours);
  memo_->ops.emplace(key, time);
  return Seconds{time};
}

Seconds Pricing::compute_time(const plan::Step& step) const {
  return step.on_host ? on_host_time(step.ops) : compute_time(step.ops);
}

Seconds Pricing::compute_time(std::span<const models::Op> ops) const {
  double device = memo_->dispatch_overhead;
  for (const models::Op& op : ops) device += op_time(op).value;
  return Seconds{memo_->host_runs_ahead ? device : std::max(device, memo_->host_time(ops))};
}

Seconds Pricing::host_time(std::span<const models::Op> ops) const {
  return Seconds{memo_->host_runs_ahead ? memo_->host_time(ops) : 0};
}

Seconds Pricing::message_host_time(int ranks, bool pipelined) const {
  if (ranks < 2 || !memo_->rates.gpu) return Seconds{0};
  return Seconds{memo_->host_message_time + (pipelined ? memo_->pipeline_message_time * ranks : 0)};
}

double Pricing::Memo::host_time(std::span<const models::Op> issued) const {
  // A softmax in parts takes more calls, in forward and in backward: Megatron-LM's four, or a compiler's kernels.
  constexpr double kMegatrons = 4;
  const double parts = rates.softmax_kernels > 0 ? rates.softmax_kernels - 1 : kMegatrons;
  double calls = 0;
  for (const models::Op& op : issued) {
    // Frameworks process whole buckets in a few multi-tensor kernels, and load tokens ahead.
    if (models::traits_of(op).issued == models::Issued::batched) continue;
    if (graphed && op.slots == 0) continue;
    if (!graphed) calls += own_calls(op);
    const double more = models::attends(op) && !op.flash && !softmax_is_fused(rates, op) ? parts : 0;
    calls += (1 + more) * (is_of_backward(op) ? host_grad_share : 1);
  }
  return host_op_time * calls;
}

Seconds Pricing::collective_time(plan::CollectiveKind kind, Bytes message, std::span<const int> members,
                                 plan::Stream stream) const {
  ENSURE(!members.empty(), "a collective needs members");
  if (members.size() == 1) return Seconds{memo_->communication_dispatch};
  const GroupKey key = key_of(*cluster_, static_cast<int>(kind), message, members,
                              stream == plan::Stream::data       ? 1
                              : stream == plan::Stream::exchange ? 2
                                                                 : 0);
  const auto found = memo_->messages.find(key);
  if (found != memo_->messages.end()) return Seconds{found->second};
  double time = group_time(*cluster_, calibration_, kind, message, members).value;
  if (memo_->rates.gpu) {
    const double latency = std::min(time, group_time(*cluster_, calibration_, kind, Bytes{1}, members).value);
    const bool within = on_torus(*cluster_) || cluster_->node_of(members.front()) == cluster_->node_of(members.back());
    const int beyond = within ? 0 : static_cast<int>(members.size()) - 1;
    time = memo_->as_run(kind, stream, {Seconds{latency}, Seconds{time - latency}}, beyond).total().value;
  }
  time += memo_->communication_dispatch;
  memo_->messages.emplace(key, time);
  return Seconds{time};
}

Seconds Pricing::collective_time(const plan::Step& step, const plan::Buffers& buffers,
                                 std::span<const int> members) const {
  const Bytes message = as_sent(Bytes{static_cast<double>(step.message_bytes(buffers))}, step.for_fp8);
  return collective_time(step.collective, message, members, step.stream);
}

Bytes Pricing::as_sent(Bytes message, bool for_fp8) const {
  return for_fp8 && memo_->gathers_fp8 ? Bytes{message.value / 2} : message;
}

Bytes Pricing::as_reduced(Bytes message, plan::Phase phase, models::DType kept, models::DType precision) const {
  const bool wide = precision == models::DType::fp32 || precision == models::DType::tf32;
  const bool sums = phase == plan::Phase::gradient_reduce && kept == models::DType::fp32 && !wide;
  return sums && memo_->reduces_half ? Bytes{message.value / 2} : message;
}

Bytes Pricing::as_sent(const plan::Step& step, const plan::Buffers& buffers, models::DType precision) const {
  const Bytes message = as_sent(Bytes{static_cast<double>(step.message_bytes(buffers))}, step.for_fp8);
  if (step.kind != plan::StepKind::collective || step.stream != plan::Stream::data) return message;
  return as_reduced(message, step.phase, buffers[step.source.buffer].dtype, precision);
}

Seconds Pricing::exchange_time(Bytes message, std::span<const int> members, const TokenChoice& choice) const {
  if (!memo_->rates.gpu || !memo_->two_hop || !choice.any() || members.size() < 2)
    return collective_time(plan::CollectiveKind::all_to_all, message, members, plan::Stream::exchange);
  constexpr std::int64_t kFirst = 3, kPrime = 1009;  // keys of token choices, distinct from those of streams
  const std::int64_t own =
      ((choice.experts * kPrime + choice.chosen) * kPrime + choice.groups) * kPrime + choice.groups_chosen + kFirst;
  const GroupKey key = key_of(*cluster_, -2, message, members, static_cast<int>(own % std::numeric_limits<int>::max()));
  const auto found = memo_->messages.find(key);
  if (found != memo_->messages.end()) return Seconds{found->second};
  const double time = two_hops(collective_network(*cluster_, calibration_), shared_span(*cluster_, members),
                               static_cast<int>(members.size()), message, choice)
                          .total()
                          .value;
  memo_->messages.emplace(key, time);
  return Seconds{time};
}

Pricing::Boundary Pricing::boundary(Bytes message, int tensor, bool whole, bool within_node) const {
  if (!memo_->scatters || !whole || within_node || tensor == 1) return {message, Seconds{0}};
  std::vector<int> group(static_cast<std::size_t>(tensor));
  std::iota(group.begin(), group.end(), 0);
  return {Bytes{message.value / tensor}, collective_time(plan::CollectiveKind::all_gather, message, group)};
}

std::vector<int> Pricing::devices_of(const plan::MeshAxes& axes, std::span<const int> ranks) const {
  std::vector<int> out(ranks.begin(), ranks.end());
  if (!axes.placed()) return out;
  const auto [known, fresh] = memo_->placements.try_emplace(axes);
  if (fresh) known->second = plan::devices_of(*cluster_, axes);
  for (int& rank : out) rank = known->second[static_cast<std::size_t>(rank)];
  return out;
}

Seconds Pricing::send_time(Bytes message, int from, int to) const {
  const std::array<int, 2> ends = {from, to};
  const GroupKey key = key_of(*cluster_, -1, message, ends, 0);
  const auto found = memo_->messages.find(key);
  if (found != memo_->messages.end()) return Seconds{found->second};
  const double time = message_time(*cluster_, calibration_, message, from, to).value + memo_->communication_dispatch;
  memo_->messages.emplace(key, time);
  return Seconds{time};
}

Seconds Pricing::send_time(const plan::Step& step, const plan::Buffers& buffers, int from, int to) const {
  return send_time(Bytes{static_cast<double>(step.message_bytes(buffers))}, from, to);
}

Alone Pricing::collective_alone(plan::CollectiveKind kind, Bytes message, const clusters::GroupSpan& span, int ranks,
                                plan::Stream stream) const {
  Alone alone;
  if (ranks > 1) alone = group_alone(*cluster_, calibration_, kind, message, span, ranks);
  alone = memo_->as_run(kind, stream, alone, span.within_node ? 0 : ranks - 1);
  alone.latency.value += memo_->communication_dispatch;
  return alone;
}

Alone Pricing::send_alone(Bytes message, const clusters::GroupSpan& span) const {
  Alone alone = message_alone(*cluster_, calibration_, message, span);
  alone.latency.value += memo_->communication_dispatch;
  return alone;
}

const HostRates& Pricing::host() const {
  if (!memo_->host) memo_->host = host_rates(*cluster_, calibration_);
  return *memo_->host;
}

Alone Pricing::copy_alone(plan::Stream stream, Bytes bytes, bool accumulate) const {
  const CopyRate& rate = host().copies[static_cast<std::size_t>(stream)];
  // For each value that arrives, two are read and one is written, after those still in transit.
  const double added = accumulate && host().memory > 0 ? 3 * bytes.value / host().memory : 0;
  const Seconds transfer{std::max(rate.alone > 0 ? bytes.value / rate.alone : 0, added)};
  return {Seconds{rate.latency + memo_->communication_dispatch}, transfer};
}

Seconds Pricing::copy_time(plan::Stream stream, Bytes bytes, bool accumulate) const {
  const CopyRate& rate = host().copies[static_cast<std::size_t>(stream)];
  const Alone alone = copy_alone(stream, bytes, accumulate);
  return alone.latency + std::max(alone.transfer, Seconds{rate.shared > 0 ? bytes.value / rate.shared : 0});
}

Seconds Pricing::on_host_time(std::span<const models::Op> ops) const {
  if (!memo_->rates.gpu) return compute_time(ops);
  double time = memo_->dispatch_overhead;
  for (const models::Op& op : ops) time += host_op_time(host(), op);
  return Seconds{time};
}

double Pricing::seen_share(plan::CollectiveKind kind, plan::Stream stream) const {
  return std::min(1.0, memo_->stretch(kind, stream));
}

double Pricing::jitter() const {
  return memo_->jitter;
}
double Pricing::neighbour_slowdown() const {
  return memo_->neighbours;
}
Seconds Pricing::step_overhead() const {
  return Seconds{memo_->step_overhead};
}
Bytes Pricing::software_memory() const {
  return Bytes{memo_->software};
}

}  // namespace orrery::cost
