/// The table of known coefficients. A new one takes a line here, a default in defaults.cpp and a use in a formula.
#include "cost/parameters/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/ensure.h"
#include "base/units.h"
#include "base/yaml.h"

namespace orrery::cost {

namespace {

constexpr double kTera = 1e12;

/// Bounds of a value and width of its prior, for coefficients of one kind.
struct Range {
  Unit unit;
  double low, high, prior;
};
constexpr Range kZeroToOne{Unit::number, 0, 1, 0};                      // a switch, or a share that is not fitted
constexpr Range kOfDatasheet{Unit::number, 1e-3, 1.5, 0.3};             // what a link achieves
constexpr Range kOfPeak{Unit::number, 1e-4, 20, 0.7};                   // what a kernel achieves
constexpr Range kHostTime{Unit::seconds, 0, 1, 1.0};                    // of an operator or a step on the host
constexpr Range kMessageTime{Unit::seconds, 0, 10, 1.0};                // of a message beyond its bytes
constexpr Range kRate{Unit::bytes_per_second, 1e3, 1000 * kTera, 1.0};  // of a link or a memory
constexpr double kMostOfBest = 1.25;                   // a kernel over the best one known: new ones are little faster
constexpr Range kPasses{Unit::number, 0.1, 100, 0.4};  // how often operators move their bytes

ParameterKind ranged(const Range& range, std::string name, std::string meaning) {
  return {std::move(name), range.unit, range.low, range.high, range.prior, std::move(meaning)};
}

/// The limits of vector work, for all families.
void add_vector_rates(std::vector<ParameterKind>& all) {
  for (int i = 0; i < kFamilies; ++i) {
    const auto family = static_cast<PriceFamily>(i);
    all.push_back({fmt::format("device.vector.{}.rate", name_of(family)), Unit::bytes_per_second, 1e6, 1000 * kTera,
                   1.0, "rate at which vector units process operands and results, beyond waiting for memory"});
  }
}

void add_device(std::vector<ParameterKind>& all) {
  for (const char* dtype : {"fp32", "bf16", "fp16", "fp8", "tf32", "fp4"}) {
    all.push_back(ranged(kOfPeak, fmt::format("device.matmul.{}.efficiency", dtype),
                         "best matrix-product rate over the datasheet's peak"));
  }
  all.push_back({"device.matmul.k_half", Unit::number, 0, 1e5, 0.5,
                 "inner dimension at which a GPU tile reaches half its rate (prologue and epilogue)"});
  all.push_back(ranged(kZeroToOne, "device.matmul.untuned_share",
                       "GPUs: share of the best product's rate that a library's own choice of kernel reaches"));
  all.push_back({"device.matmul.tile_rows", Unit::number, 1, 4096, 0, "rows of a GPU output tile"});
  all.push_back({"device.matmul.tile_columns", Unit::number, 1, 4096, 0, "columns of a GPU output tile"});
  all.push_back(
      ranged(kZeroToOne, "device.matmul.halving_loss", "share of the rate lost each time a GPU tile is halved"));
  all.push_back(ranged(kZeroToOne, "device.matmul.narrow_load_loss",
                       "GPUs: share of a product's rate lost for each factor of 2 by which its rows' alignment falls "
                       "short of 16 bytes"));
  all.push_back({"device.matmul.operand_bandwidth", Unit::bytes_per_second, 1e6, 1000 * kTera, 1.0,
                 "CPU: bytes per second of packing A and B and of writing C"});
  all.push_back({"device.conversion.bandwidth", Unit::bytes_per_second, 1e6, 1000 * kTera, 1.0,
                 "CPU: bytes per second of widening 16-bit values to fp32 and of rounding results, 6 per value"});
  all.push_back({"device.memory.efficiency", Unit::number, 1e-3, 20, 0.4, "streaming bandwidth over the datasheet's"});
  all.push_back({"device.cache.bandwidth", Unit::bytes_per_second, 1e6, 1000 * kTera, 0.7,
                 "CPU: bandwidth of an op whose operands fit the cache"});
  all.push_back({"device.cache.size", Unit::bytes, 0, kTera, 0.7, "CPU: the cache that one rank has to itself"});
  all.push_back({"device.host.efficiency", Unit::number, 1e-3, 1.5, 0.4,
                 "GPUs: share of the host memory's datasheet bandwidth that an optimizer on the host's cores reaches"});
  all.push_back({"device.checkpoint.copy_bandwidth", Unit::bytes_per_second, 1e3, 1000 * kTera, 2.0,
                 "bytes per second at which a rank copies a checkpoint to its own memory, while steps wait"});
  all.push_back({"device.neighbour_slowdown", Unit::number, 0, 10, 1.0,
                 "CPU: share by which compute takes longer while other ranks compute (clock, caches, memory)"});
  all.push_back(ranged(kOfPeak, "device.attention.efficiency",
                       "attention forward with row statistics: rate over the matrix peak"));
  all.push_back(ranged(kOfPeak, "device.attention.grad_efficiency",
                       "attention backward with row statistics: rate over the matrix peak"));
  all.push_back({"device.attention.exponentials", Unit::number, 0, 1, 0.3,
                 "GPUs: exponentials a second over the vector units' fp32 peak; 0: heads of all widths are as fast"});
  for (const char* generation : {"1", "2"})
    all.push_back({fmt::format("device.attention.generation_{}", generation), Unit::number, 1e-2, 1, 0.3,
                   "share of the best attention kernel's rate that FlashAttention of this generation reaches"});
  all.push_back(ranged(kOfPeak, "device.attention.misaligned_efficiency",
                       "as unfused_efficiency, for heads whose width is not a multiple of 16 bytes"));
  all.push_back(ranged(kOfPeak, "device.attention.unfused_efficiency",
                       "batched products of attention that keeps its matrix: rate over the matrix peak"));
  all.push_back(
      ranged(kHostTime, "device.attention.head_overhead", "CPU: cost per sequence and head beyond arithmetic"));
}

void add_network(std::vector<ParameterKind>& all) {
  // The CPU ranks' MPI: one latency and one bandwidth per operation (cost/network/messages.h gives the formulas).
  for (const char* operation : {"all_reduce", "all_gather", "reduce_scatter", "send"}) {
    all.push_back(ranged(kMessageTime, fmt::format("network.{}.latency", operation),
                         "CPU ranks: latency of one round of the operation"));
    all.push_back(ranged(kRate, fmt::format("network.{}.bandwidth", operation),
                         "CPU ranks: bytes per second through one rank, once under way"));
    all.push_back(ranged(kRate, fmt::format("network.{}.spill_bandwidth", operation),
                         "CPU ranks: additional cost of the bytes beyond network.spill_size, as bytes per second"));
  }
  all.push_back(
      {"network.spill_size", Unit::bytes, 0, kTera, 0,
       "CPU ranks: message size from which buffers leave the caches and the library asks the system for memory"});
  all.push_back(
      ranged(kOfDatasheet, "network.intra.efficiency", "large-message bandwidth within a node over the datasheet's"));
  all.push_back(
      ranged(kOfDatasheet, "network.inter.efficiency", "large-message bandwidth between nodes over the datasheet's"));
  all.push_back(ranged(kMessageTime, "network.inter.hop_latency",
                       "GPUs: a hop between nodes, beyond NCCL's figure for InfiniBand; Simple pays it twice"));
  all.push_back(ranged(kMessageTime, "network.inter.simple_hop_latency",
                       "GPUs: what a hop between nodes takes beyond that in Simple"));
  all.push_back(ranged(kZeroToOne, "network.inter.ll128", "GPUs: whether LL128 may leave a node (0 or 1)"));
  all.push_back(ranged(kZeroToOne, "network.ll128.ramps",
                       "GPUs: whether ring all-reduces in LL128 lose at middle sizes, as Simple ones do (0 or 1)"));
  all.push_back(ranged(kZeroToOne, "network.collnet", "GPUs: whether the network's switches reduce (0 or 1)"));
  all.push_back(ranged(kZeroToOne, "network.hierarchical",
                       "GPUs: whether collectives in two levels are tried: within nodes, then between them (0 or 1)"));
  all.push_back(ranged(kOfDatasheet, "network.send.efficiency",
                       "GPUs: bandwidth of one large message within a node over the datasheet's"));
  all.push_back({"network.send.channel_bandwidth", Unit::bytes_per_second, 1e6, 1000 * kTera, 0.3,
                 "GPUs: one channel of a message within a node; messages up to 64 MiB have four"});
  all.push_back(ranged(kOfDatasheet, "network.all_to_all.efficiency",
                       "GPUs: bandwidth of an all-to-all between nodes over that of other collectives"));
  all.push_back(ranged(kMessageTime, "network.copy.latency", "latency of a copy between a rank's memories"));
  all.push_back(ranged(kRate, "network.copy.bandwidth",
                       "CPU ranks: bytes per second of a copy between the device's arena and the host's"));
  all.push_back(ranged(kRate, "network.copy.file_bandwidth",
                       "CPU ranks: bytes per second of a copy between the host's arena and a file"));
  all.push_back(ranged(kOfDatasheet, "network.copy.efficiency",
                       "GPUs: large copies between device and host over the slowest link's datasheet"));
  all.push_back(ranged(kOfDatasheet, "network.copy.nvme_efficiency",
                       "GPUs: large copies between host and drives over the drives' datasheets"));
  // Disks vary more than anything else here: wide priors.
  all.push_back({"network.storage.write_latency", Unit::seconds, 0, 1000, 2.0,
                 "time to create and sync a checkpoint's files, beyond their bytes"});
  all.push_back({"network.storage.write_bandwidth", Unit::bytes_per_second, 1e3, 1000 * kTera, 2.0,
                 "bytes per second at which a node's ranks together write a checkpoint, while steps run"});
  all.push_back({"network.storage.commit_time", Unit::seconds, 0, 1000, 2.0,
                 "time to write a checkpoint's manifest, name it and remove an old one, while steps wait"});
  all.push_back({"network.size_half", Unit::bytes, 0, kTera, 0.7,
                 "GPUs: message size at which an all-reduce's transfer runs at half its rate at large sizes"});
  all.push_back({"network.size_exponent", Unit::number, 0.01, 0.99, 0.2, "GPUs: how fast that loss falls with size"});
}

void add_stack(std::vector<ParameterKind>& all) {
  all.push_back(ranged(kHostTime, "stack.op_overhead", "an op's cost beyond its arithmetic"));
  all.push_back({"stack.host_op_time", Unit::seconds, 0, 1, 0.7,
                 "GPUs: what the host needs to issue one op (its kernels, and the framework's calls around them)"});
  all.push_back({"stack.host_grad_share", Unit::number, 0.01, 10, 0,
                 "GPUs: share of host_op_time that the host needs to issue an op of a backward pass: autograd's C++ "
                 "walks the graph that Python has built"});
  all.push_back(
      ranged(kZeroToOne, "stack.host_runs_ahead",
             "GPUs: whether the host issues operators while the device runs earlier ones or waits for a message; 0: "
             "each run of operators takes the longer of the two, as when layers are timed one by one"));
  all.push_back({"stack.host_message_time", Unit::seconds, 0, 1, 0.7,
                 "GPUs: what the host needs to issue a message within a tensor group"});
  all.push_back(ranged(kHostTime, "stack.pipeline_message_time",
                       "GPUs: what the host also needs per rank of the group, if pipeline stages wait on the host"));
  all.push_back(ranged(kHostTime, "stack.tensor_hop_time",
                       "GPUs: what each further rank adds to a message of a tensor group that spans nodes"));
  all.push_back(ranged(kZeroToOne, "stack.recomputes",
                       "whether a published run's figures include the recomputation that it states (0 or 1)"));
  all.push_back(ranged(kZeroToOne, "stack.cuts_vocabulary",
                       "1: each tensor rank gets a whole number of the vocabulary's rows and the rest is left out; 0: "
                       "the vocabulary is padded"));
  all.push_back(ranged(kPasses, "stack.elementwise_passes",
                       "GPUs: how often elementwise and normalisation ops move their bytes, if kernels are not fused "
                       "or dropout is drawn"));
  all.push_back({"stack.mlp_passes", Unit::number, 0.1, 100, 0.6,
                 "GPUs: recommendation models: in place of elementwise_passes, for operators between products of MLPs "
                 "and cross layers; below 1 if epilogues of products do it"});
  all.push_back(ranged(kPasses, "stack.score_passes",
                       "GPUs: how often unfused attention moves its score matrix beyond the minimum"));
  all.push_back({"stack.attention_share", Unit::number, 0.01, kMostOfBest, 0.3,
                 "GPUs: share of the device's best known rate that the attention kernel reaches"});
  all.push_back({"stack.attention_generation", Unit::number, 1, 3, 0,
                 "GPUs: generation of the stack's FlashAttention kernel; 3: the best known for the device"});
  all.push_back({"stack.accumulation_bytes", Unit::number, 0, 100, 0,
                 "GPUs: bytes that a micro-batch moves per weight to sum gradients, if no product does it"});
  all.push_back(ranged(kZeroToOne, "stack.tf32_attention",
                       "GPUs: 1: attention in a tf32 plan is computed in tf32 like other products; 0: in fp32"));
  all.push_back(ranged(kZeroToOne, "stack.fp8_casts",
                       "GPUs: 1: each fp8 product rounds both its operands, with scales from their values; 0: inputs "
                       "are cast once, with scales from earlier steps, and weights once per step"));
  all.push_back({"stack.token_share_from", Unit::number, 0, 1e9, 0,
                 "sequence length from which the software leaves padding out"});
  all.push_back({"stack.token_share", Unit::number, 0.01, 1, 0,
                 "share of a padded sequence that is computed, if the software leaves padding out"});
  all.push_back(ranged(kZeroToOne, "stack.untuned",
                       "GPUs: 1: products run by the kernels that the library chooses itself; 0: by the best known; "
                       "default: 1"));
  all.push_back({"stack.host_share", Unit::number, 0.01, 1, 0.5,
                 "GPUs: rate of an optimizer on the host's cores over the best known one's (DeepSpeed's CPU-Adam)"});
  all.push_back({"stack.data_share", Unit::number, 0.01, 2, 0.5,
                 "GPUs: bandwidth of data-parallel collectives over that of the library alone"});
  all.push_back({"stack.latency_share", Unit::number, 0.01, 10, 0.5,
                 "GPUs: latency of collectives over NCCL's, for software with kernels of its own"});
  all.push_back({"stack.exchange_share", Unit::number, 0.01, 10, 0.5,
                 "GPUs: share of the library's best rate that all-to-alls of tokens or pooled vectors reach"});
  all.push_back(ranged(kPasses, "stack.lookup_passes",
                       "GPUs: how often lookups and updates of embedding tables move their bytes: sorting, merging, "
                       "intermediate results"));
  all.push_back({"stack.interaction_passes", Unit::number, 0.1, 100, 0.5,
                 "GPUs: how often the dot interaction moves its bytes; if missing: as elementwise ops"});
  all.push_back({"stack.index_passes", Unit::number, 0.1, 1000, 0.7,
                 "GPUs: how often the indices that a rank processes are read and written"});
  all.push_back(
      ranged(kZeroToOne, "stack.exchanges_indices",
             "recommendation models: 1: ranks send each other the indices of their samples; 0: each reads those of "
             "the whole batch"));
  all.push_back(
      ranged(kZeroToOne, "stack.whole_tables",
             "recommendation models: 1: each table of a published run is whole on a rank; 0: placed by the planner"));
  all.push_back(ranged(kZeroToOne, "stack.reports",
                       "recommendation models: 1: a step ends with the norm of the gradients and the loss over all "
                       "ranks, as in Orrery's own runs"));
  all.push_back(
      ranged(kZeroToOne, "stack.pads",
             "GPUs: 1: operands of products are padded to rows of a multiple of 16 bytes (479 columns to 480)"));
  all.push_back({"stack.gather_messages", Unit::number, 1, 1000, 0,
                 "GPUs: number of messages that gather a layer's parameters, if partitions are not coalesced"});
  all.push_back({"stack.tensor_hidden", Unit::number, 0, 1, 0.5,
                 "GPUs: share of a tensor-parallel message hidden behind products of chunks"});
  all.push_back(
      ranged(kZeroToOne, "stack.gathers_fp8",
             "GPUs: 1: with fp8 products, rows that only these read are rounded before a tensor group gathers "
             "them"));
  all.push_back({"stack.matmul_share", Unit::number, 0.1, kMostOfBest, 0.3,
                 "GPUs: share of the device's best known rate that matrix products reach"});
  all.push_back(
      {"stack.softmax_multiple", Unit::number, 1, 1000, 0,
       "GPUs: unfused attention has a fused softmax if batch times heads is a multiple of this; above 1, in 16 bits "
       "alone"});
  all.push_back({"stack.softmax_longest", Unit::number, 1, 1e9, 0,
                 "GPUs: unfused attention has a fused softmax up to this sequence length"});
  all.push_back({"stack.softmax_kernels", Unit::number, 2, 10, 0,
                 "GPUs: kernels of a softmax that is not fused, each of which reads the scores; the last writes them; "
                 "default: Megatron-LM's, with casts to fp32"});
  all.push_back(ranged(kZeroToOne, "stack.pipeline_scatter",
                       "GPUs: whether tensor ranks each send a part of a message to another node's stage, which "
                       "gathers it there (0 or 1)"));
  all.push_back(
      ranged(kZeroToOne, "stack.exchange_two_hop",
             "GPUs: whether a token is sent to a node once, and from there to its experts over NVLink (0 or 1)"));
  all.push_back(ranged(kZeroToOne, "stack.exchange_own_rows",
                       "GPUs: whether, if a tensor group splits experts, each rank sends only its own rows and the "
                       "group gathers what arrives (0 or 1)"));
  all.push_back(ranged(kZeroToOne, "stack.exchange_hidden",
                       "GPUs: share of the tokens' all-to-alls that overlap another micro-batch's compute"));
  all.push_back(ranged(kZeroToOne, "stack.exchange_compute",
                       "GPUs: share of the multiprocessors that such an all-to-all takes from compute"));
  all.push_back({"stack.exchange_bytes", Unit::number, 0, 4, 0,
                 "GPUs: bytes per value on the way to experts; 0: the plan's. On the way back always the plan's"});
  all.push_back(ranged(kPasses, "stack.permute_passes",
                       "GPUs: how often rows are moved to put tokens in the order of experts, and back"));
  all.push_back({"stack.dispatch_einsum", Unit::number, 0, 100, 0,
                 "GPUs: rows of all experts' places over a token's choices, where rows are put there, and back, by "
                 "products with masks of tokens x places; 0: by permutation"});
  all.push_back(ranged(kPasses, "stack.gate_passes",
                       "GPUs: how often gated activations move their bytes, if they are composed of operators"));
  all.push_back(ranged(kPasses, "stack.rotary_passes",
                       "GPUs: how often rotations of queries and keys move their bytes, if they are composed"));
  all.push_back(ranged(kPasses, "stack.norm_passes",
                       "GPUs: how often RMS norms move their bytes, if they are composed of operators"));
  all.push_back(ranged(kPasses, "stack.loss_passes",
                       "GPUs: how often the loss over the vocabulary moves its bytes, 8 a logit of 16 bits, if it is "
                       "composed of operators"));
  all.push_back({"stack.orthogonal_half", Unit::number, 0, 1, 1,
                 "GPUs: 1: Muon makes its directions orthogonal in bf16; 0: in fp32"});
  all.push_back({"stack.adapter_bytes", Unit::number, 0, 1000, 0,
                 "GPUs: bytes that a low-rank adapter moves in a pass beside its products, per value of its result"});
  all.push_back({"stack.adapter_calls", Unit::number, 0, 1000, 0,
                 "GPUs: host calls of a low-rank adapter in a pass, beside one per operator"});
  all.push_back({"stack.grouped_share", Unit::number, 0.1, kMostOfBest, 0.3,
                 "GPUs: rate of grouped products over that of other matrix products"});
  all.push_back({"stack.expert_calls", Unit::number, 0, 10'000, 0.7,
                 "GPUs: host calls to route and exchange a layer's tokens, beside one per operator"});
  all.push_back(
      {"stack.group_calls", Unit::number, 0, 10'000, 0.7,
       "GPUs: further host calls of a router that chooses groups of experts first, if its kernels are not fused"});
  all.push_back(
      ranged(kZeroToOne, "stack.groups_unfused", "GPUs: whether such a router's kernels are not fused (0 or 1)"));
  all.push_back({"stack.latent_calls", Unit::number, 0, 10'000, 0.7,
                 "GPUs: host calls for a layer's latent attention, beside one per operator"});
  all.push_back(
      ranged(kZeroToOne, "stack.gathers_next",
             "GPUs: 1: with ZeRO 1 and 2 updated parameters are gathered beside the next step's first passes; "
             "0: at the end of the step"));
  all.push_back(ranged(kZeroToOne, "stack.reduce_beside",
                       "GPUs: whether ZeRO 2 and 3 reduce a layer's gradients while the next layer runs (0 or 1)"));
  all.push_back(ranged(kZeroToOne, "stack.reduces_half",
                       "GPUs: whether gradients of arithmetic in 16 bits or fewer are reduced in 16 bits, though they "
                       "add up in fp32 (0 or 1)"));
  all.push_back(ranged(kZeroToOne, "stack.graphed",
                       "GPUs: whether everything except operators on experts' slots is replayed as graphs (0 or 1)"));
  all.push_back(ranged(kZeroToOne, "stack.rematerializes",
                       "whether a compiler repeats in backward what does not fit the device (0 or 1)"));
  all.push_back(ranged(kZeroToOne, "stack.selective_operators",
                       "whether selective recomputation repeats all but attention and every other product (0 or 1)"));
  all.push_back(ranged(kHostTime, "stack.dispatch_overhead", "a schedule step's cost to its rank"));
  all.push_back({"stack.step_overhead", Unit::seconds, 0, 1000, 1.5, "a training step's cost outside the schedule"});
  all.push_back({"stack.load_overhead", Unit::seconds, 0, 10, 1.5, "reading one micro-batch's tokens on the host"});
  all.push_back({"stack.rank_jitter", Unit::number, 0, 10, 1.0,
                 "share by which the slowest of several ranks exceeds their mean between two meetings"});
  all.push_back(ranged(kZeroToOne, "stack.one_copy",
                       "whether parameters that train, and their gradients, exist in 16 bits alone (0 or 1)"));
  all.push_back({"stack.context_memory", Unit::bytes, 0, kTera, 0,
                 "bytes per rank outside the arena: context, libraries, communicators"});
  all.push_back(ranged(kZeroToOne, "stack.workspace_share",
                       "share of the device's memory that kernels take, beside stack.context_memory"));
  all.push_back({"stack.workspace_most", Unit::bytes, 0, kTera, 0, "upper limit of that, whatever the device has"});
}

}  // namespace

std::vector<ParameterKind> known_parameters() {
  std::vector<ParameterKind> all;
  add_device(all);
  add_vector_rates(all);
  add_network(all);
  add_stack(all);
  std::sort(all.begin(), all.end(), [](const ParameterKind& a, const ParameterKind& b) { return a.name < b.name; });
  return all;
}

std::optional<ParameterKind> known_parameter(const std::string& name) {
  static const std::vector<ParameterKind> all = known_parameters();  // used for each coefficient of each price list
  const auto found = std::lower_bound(all.begin(), all.end(), name,
                                      [](const ParameterKind& k, const std::string& key) { return k.name < key; });
  if (found == all.end() || found->name != name) return std::nullopt;
  return *found;
}

Unit unit_of(const std::string& parameter) {
  const auto kind = known_parameter(parameter);
  return kind ? kind->unit : Unit::number;
}

const char* name_of(Unit unit) {
  switch (unit) {
    case Unit::number: return "";
    case Unit::seconds: return "s";
    case Unit::bytes: return "B";
    case Unit::bytes_per_second: return "B/s";
  }
  return "?";
}

std::string parameter_text(double value, Unit unit) {
  switch (unit) {
    case Unit::number: return fmt::format("{}", value);
    case Unit::seconds: return base::quantity_text(value, base::UnitKind::seconds);
    case Unit::bytes: return base::quantity_text(value, base::UnitKind::bytes);
    case Unit::bytes_per_second: return base::quantity_text(value, base::UnitKind::bytes_per_second);
  }
  return {};
}

std::string parameter_row(const std::string& name, double value, Unit unit, const std::string& source) {
  return base::yaml_row(
      fmt::format("  {}: {{value: {}, source: {}}}", name, parameter_text(value, unit), base::yaml_quoted(source)), 4);
}

}  // namespace orrery::cost
