#pragma once
/// Schedule: who does what, on which stream, after what, with how many bytes. Simulator and executor consume the
/// same Schedule, so they can disagree about how long a step takes, never about what it is.
///
/// Shape. Ranks of equal mesh role form a RankClass and share one copy. A class has buffers, blocks (bodies of steps)
/// and a program: a list of (block, micro-batch) whose repetitions are stored once (plan/schedule/repeated.h).
/// Micro-batches are therefore loops, of steps and of entries. Groups are strides, never lists of ranks.
///
/// Meaning of the order, the same for every backend and for the simulator:
///  1. Compute steps run in program order, on the compute stream.
///  2. A communication step starts once these have finished: all compute steps before it in program order; the
///     communication step before it on its own stream; and the earlier communication steps that it conflicts with
///     (plan/schedule/waits.h).
///  3. A compute step starts once these communication steps before it in program order have finished: those that wrote
///     what it reads or writes, those that still use what it writes or frees, and those that list deaths themselves
///     (their memory may be handed out again).
/// "Communication" means every step that is not compute; it includes copies between a rank's memories, each direction
/// on a stream of its own.
/// A program is one training step. If it has entries of later steps, a micro-batch's buffers live from step to step,
/// and every message is received in the step in which it is sent; plan/schedule/asynchronous.h unrolls it.
/// Overlap is thus expressed only by position in the program. A buffer is born just before the step that lists it in
/// `births` and dies just after the step that lists it in `deaths`.
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/id.h"
#include "models/layers/expand.h"
#include "models/operators/op.h"
#include "plan/schedule/repeated.h"
#include "plan/spec/ids.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

struct TableLayout;  // plan/spec/table_layout.h

using BufferId = base::Id<struct BufferTag>;  ///< of a class: RankClass::buffers
using GroupId = base::Id<struct GroupTag>;    ///< Schedule::groups
using BucketId = base::Id<struct BucketTag>;  ///< of a class: RankClass::buckets

enum class StepKind : std::uint8_t { compute, collective, send, recv, copy };
enum class Stream : std::uint8_t {
  compute,
  tensor,
  data,
  pipeline_send,
  pipeline_recv,
  context,
  exchange,   ///< all-to-alls of tokens to experts, and of indices and vectors of embeddings
  to_host,    ///< device -> host
  from_host,  ///< host -> device
  to_nvme,    ///< host -> files
  from_nvme   ///< files -> host
};
inline constexpr std::size_t kStreams = 11;
enum class Phase : std::uint8_t {
  input,
  forward,
  recompute,
  backward,
  parameter_gather,
  gradient_reduce,
  optimizer,
  reporting
};
/// ring_shift: each member's data goes to the next member of the group, the last member's to the first. all_to_all:
/// each member's data is one piece per member; piece i goes to member i, where it becomes the piece with the sender's
/// index.
enum class CollectiveKind : std::uint8_t { all_reduce, all_gather, reduce_scatter, ring_shift, all_to_all };
enum class Reduce : std::uint8_t { sum, maximum };

/// What a buffer is for: the lines of the memory report.
enum class Purpose : std::uint8_t {
  parameters,
  gradients,
  optimizer_states,
  activations,
  workspace,
  communication,
  input,
  scalars
};

/// A buffer of a class. Persistent buffers live for the whole run; step buffers are born at the first block of the
/// program and die at the last; others live from a birth to a death, once per micro-batch when `per_micro_batch`.
struct Buffer {
  std::string name;
  Purpose purpose = Purpose::activations;
  models::DType dtype = models::DType::fp32;
  std::int64_t elements = 0;
  bool persistent = false;
  bool per_micro_batch = false;
  Space space = Space::device;
  /// Persistent: number of instances, each of `elements`; a step uses that of its training step modulo `versions`.
  std::int32_t versions = 1;
  [[nodiscard]] std::int64_t bytes() const { return elements * models::size_of(dtype); }
};

using Buffers = base::ById<BufferId, Buffer>;

/// The ranks over which consecutive runs of equal length are dealt out, so that each rank has a run of its own.
enum class DealtOver : std::uint8_t {
  nobody,   ///< all have the same
  states,   ///< those that partition a bucket's states (PlanSpec::shard_index)
  experts,  ///< those that partition the states of experts' parameters (PlanSpec::shard_index_of)
  tensor    ///< the tensor group
};
inline constexpr std::size_t kDealtOver = 4;
/// How many such ranks there are, and which of them `rank` is.
[[nodiscard]] int count_of(DealtOver ranks, const PlanSpec& spec);
[[nodiscard]] int place_in(DealtOver ranks, const PlanSpec& spec, int rank);

/// A run of elements in a buffer: what an operand index of an Op refers to. If it is dealt out, this rank's run begins
/// at offset + (its place among those ranks) * elements.
struct View {
  BufferId buffer;
  std::int64_t offset = 0;  ///< elements
  std::int64_t elements = 0;
  DealtOver dealt = DealtOver::nobody;
  bool operator==(const View&) const = default;
};

/// A regular group: the members of a rank's group are base + sum(i_k * stride_k), where base is the rank minus its own
/// i_k * stride_k, with i_k = rank / stride_k % size_k. Dimensions are in the order of their strides, the smallest
/// first. Along a mirrored dimension the members are the two with i_k = x and i_k = size_k - 1 - x, and base has the
/// smaller.
struct Group {
  std::string
      name;  ///< "tensor", "context", "expert", "data", "shard", "replicate", "world", "model", "embedding", "loss"
  struct Dimension {
    int stride = 1;
    int size = 1;
    bool mirrored = false;  ///< needs an even size
    [[nodiscard]] int members() const { return mirrored ? 2 : size; }
  };
  std::vector<Dimension> dimensions;
  int base_limit = 0;  ///< > 0: only ranks whose base is below it have such a group (first and last stage)
  [[nodiscard]] int size() const;
  [[nodiscard]] int base(int rank) const;
  [[nodiscard]] bool contains(int rank) const;
  /// Ranks of the group that `rank` belongs to, ascending; empty if it belongs to none. For exec and for
  /// representatives: never called for every rank of a large cluster.
  [[nodiscard]] std::vector<int> members(int rank) const;
};

/// A run of a flat buffer that belongs to one parameter, for the optimizer: weight decay, and how its square counts in
/// the global norm (0 where another rank counts it).
struct ParameterRange {
  std::string name;         ///< logical name, as in checkpoints: "h.3.mlp.fc.weight"
  std::int64_t offset = 0;  ///< elements, within the flat bucket
  std::int64_t elements = 0;
  bool decay = false;
  bool counts_in_norm = true;  ///< false for the tied table's copy on the last stage and for a mirrored model's second
  bool replicated = false;     ///< equal on all tensor ranks: its square counts 1/tensor
  bool orthogonal = false;     ///< a matrix whose update is computed from it as a whole (Muon)
  models::Tensor tensor;       ///< shapes, split and initial values
  /// Adafactor: offsets of sum, rows and columns in the class's factors; if unfactored, factor_sum has one per element.
  std::int64_t factor_sum = -1, factor_rows = -1, factor_columns = -1;
  /// PowerSGD: offsets of the matrix in the bucket's error, P's and Q's; -1: it travels whole.
  std::int64_t error = -1, low_rank_p = -1, low_rank_q = -1;
  std::int64_t norms = -1;  ///< its pair in the class's `norms`; -1: the optimizer needs no norms of this tensor
};

/// A flat, padded run of parameters that is reduced, sharded and gathered as one: one per layer, one for a tied table.
struct Bucket {
  std::string name;
  std::int64_t elements = 0;  ///< padded to a multiple of `shards`
  int shards = 1;             ///< PlanSpec::shards_of(experts)
  bool partitioned = false;   ///< a rank optimizes only its shard (ZeRO)
  /// Leading elements whose gradients are partial on each tensor rank, to be summed over them (sequence parallelism).
  std::int64_t partial_elements = 0;
  std::vector<ParameterRange> ranges = {};
  bool experts = false;          ///< of the rank's own experts: other ranks hold the same ones than for other
                                 ///< parameters
  bool embedding = false;        ///< has the tables of the input: 8-bit optimizers keep their states in fp32
  bool frozen = false;           ///< its parameters do not train: no gradients, no states (models/lora.h)
  BufferId parameters = {};      ///< full values as compute reads them; none under ZeRO-3
  BufferId shard = {};           ///< this rank's values; only under ZeRO-3
  BufferId stashed = {};         ///< earlier versions of the parameters, for passes in flight
  BufferId master = {};          ///< fp32 master values, when compute reads less than fp32
  BufferId gradients = {};       ///< full gradients; none under ZeRO-2 and 3
  BufferId gradient_shard = {};  ///< reduced shard; only under ZeRO-2 and 3
  /// SGD's momentum is a first moment. With adamw_8bit these are bytes. Muon's matrices have no second moment: they
  /// come last, and its buffer ends before them (plan/outline/whole_matrices.h).
  BufferId first_moment = {}, second_moment = {};
  BufferId first_scale = {}, second_scale = {};  ///< of adamw_8bit: a scale per block of values
  BufferId error = {};                           ///< what PowerSGD has not sent yet of this rank's gradients
  BufferId low_rank_q = {};                      ///< PowerSGD's factors Q, from which the next step's begin
  BufferId received = {};  ///< with a parameter server: all workers' gradients of this rank's shard, in order
  [[nodiscard]] std::int64_t shard_elements() const { return elements / shards; }
  [[nodiscard]] DealtOver dealt() const { return experts ? DealtOver::experts : DealtOver::states; }
};

/// Later than the last training step of any run; also stands for any late step.
inline constexpr std::int64_t kEveryStep = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t kLateStep = kEveryStep - 1;

/// A message whose size depends on data, within a bound. Source and target of an all_to_all have one slot per member of
/// the group, each with room for the bound. Only the first runs of `unit` elements of slot i travel, and their number
/// is the sum of member i's counts: `sent` and `received` are int32 views with the same number of counts for each
/// member. An ordinary step exchanges the counts beforehand.
struct CountedRows {
  int sent = -1, received = -1;  ///< -1: whole slots
  std::int64_t unit = 1;
  double expected = 1;  ///< share of the bound that predictions expect to be used
  [[nodiscard]] bool any() const { return sent >= 0; }
};

/// A copy of rows of tables between the memory that they live in and the cache on the device (TableLayout). A list
/// (int32), written by an earlier compute step, says which rows: first their number; then for each row its index among
/// the rank's rows in that memory and its index among those on the device. Packed: one row directly after the other,
/// for the copy.
enum class RowsAt : std::uint8_t { far, cache, packed };
struct RowMove {
  int list = -1;  ///< view; -1: the step copies whole views
  RowsAt from = RowsAt::far, to = RowsAt::cache;
  Space far = Space::host;  ///< where the rows live
  bool states = false;      ///< the rows of optimizer states; false: of values
  double expected = 1;      ///< bytes that move / bytes of the target's view; for predictions only
  [[nodiscard]] bool any() const { return list >= 0; }
};

/// One step of a block. `ops` name views by index into RankClass::views.
struct Step {
  StepKind kind = StepKind::compute;
  Stream stream = Stream::compute;
  Phase phase = Phase::forward;
  LayerId layer = {};                ///< none: of the embedding, the head or no layer (see `part`)
  BucketId bucket = {};              ///< for gathers, reductions and the optimizer
  std::string part = {};             ///< short name for people and spans: "attention", "mlp", "head", "all_reduce"
  std::vector<models::Op> ops = {};  ///< compute
  CollectiveKind collective{};       ///< collective
  Reduce reduce = Reduce::sum;
  GroupId group = {};       ///< collective
  int peer = 0;             ///< send, recv: distance in stages, + to later ones; with virtual stages both ends are
                            ///< neighbours
  int tag = 0;              ///< send, recv: pairs with the peer's step of equal tag and micro-batch
  bool on_host = false;     ///< compute: on the host's cores, over host buffers
  bool accumulate = false;  ///< copy: target += source; by the host's cores, so the target is in the host's memory
  View source = {},
       target =
           {};  ///< copy: source -> target, in two memories. collective: all_gather, reduce_scatter and all_to_all
                ///< source -> target; all_reduce in place (source == target); send reads source; recv writes target
  CountedRows counted = {};                       ///< all_to_all
  bool for_fp8 = false;                           ///< all_gather: the software may round before it sends (models::Part)
  RowMove rows = {};                              ///< copy
  std::vector<BufferId> reads = {}, writes = {};  ///< each once
  std::vector<BufferId> births = {}, deaths = {};
  /// The step runs only in training steps [from_step, until_step) of a run.
  std::int64_t from_step = 0, until_step = kEveryStep;
  [[nodiscard]] bool runs_in(std::int64_t training_step) const {
    return from_step <= training_step && training_step < until_step;
  }
  /// Bytes of the message: for a collective, the full vector (all ranks' parts together); for send and ring_shift, what
  /// one rank sends; for a copy, what it moves; for a counted message, what is expected.
  [[nodiscard]] std::int64_t message_bytes(const Buffers& buffers) const;
};

struct Block {
  std::string name;  ///< "begin", "forward", "backward", "finish"; of chunk c > 0 "forward.c", "backward.c"
  std::vector<Step> steps;
  /// The block that this one replaces for some micro-batches. It has the same steps, but some operators write what they
  /// would otherwise add to, with reductions between them. -1: none. It comes after that block, which is not a variant.
  std::int32_t variant_of = -1;
};

struct Entry {
  std::int32_t block = 0;
  std::int32_t micro_batch = -1;  ///< -1: none
  /// Training step, as an offset from the one that runs (asynchronous pipelines, which do not drain between
  /// steps). A run that ends before that step leaves the entry out.
  std::int32_t ahead = 0;
  bool opening = false;  ///< only in a run's first step, new or resumed: it fills the pipeline
  bool operator==(const Entry&) const = default;
};

/// Entries repeat for later micro-batches.
template <>
struct Progression<Entry> {
  using Advance = std::int32_t;  ///< micro-batches
  [[nodiscard]] static std::optional<Advance> between(const Entry& a, const Entry& b) {
    const bool later = a.block == b.block && a.ahead == b.ahead && a.opening == b.opening && a.micro_batch >= 0 &&
                       b.micro_batch > a.micro_batch;
    return later ? std::optional(b.micro_batch - a.micro_batch) : std::nullopt;
  }
  [[nodiscard]] static Entry advanced(Entry a, Advance advance, std::int64_t times) {
    if (a.micro_batch >= 0) a.micro_batch += static_cast<std::int32_t>(advance * times);
    return a;
  }
};
using Entries = Repeated<Entry>;

struct RankClass {
  StageId stage = kFirstStage;
  int count = 0;           ///< ranks of the class
  int representative = 0;  ///< lowest rank of the class
  Buffers buffers;
  std::vector<View> views;
  base::ById<BucketId, Bucket> buckets;
  std::vector<Block> blocks;
  Entries program;
  BufferId loss;           ///< 1 element: the step's mean loss after the last entry; only on stages that have it
  BufferId gradient_norm;  ///< 1 element: global norm before clipping
  BufferId factors;        ///< Adafactor's states of all buckets, the same on every replica
  /// For a recommendation model: a rank's parts of tables, and their states. For tables that every rank has, the states
  /// are in `replicated_states` and the values in a bucket. States: one per row (Adagrad), or the first moments of all
  /// values, then their second moments (Adam).
  BufferId tables, table_states, replicated_states;
  /// Tables that live on the host and on NVMe, of which `tables` has a cache; and the cache's books (int32).
  struct FarTables {
    BufferId values, states;
  };
  std::array<FarTables, kSpaces> far = {};  ///< by Space; nothing for the device
  BufferId cache;
  /// For a mixture of experts: for each of the stage's layers with experts, in order, the (2E+1) values of
  /// count_choices; their sums over layers and ranks; and the two losses (models::OpKind::balance_losses).
  BufferId tally, pooled, balance;
  BufferId expert_biases;                   ///< by these layers: the (E) values of models::TensorRole::balance
  std::vector<LayerId> expert_layers = {};  ///< which layers these are
  BufferId scaling;                         ///< 4 elements: see models::OpKind::loss_scale; only in fp16
};
/// Micro-batches of one training step: the highest number plus one, at least 1.
[[nodiscard]] std::int32_t micro_batches_of(const RankClass& rank_class);

struct Schedule {
  PlanSpec spec;
  base::ById<GroupId, Group> groups;
  base::ById<StageId, RankClass> classes;     ///< one per pipeline stage
  std::shared_ptr<const TableLayout> tables;  ///< for a recommendation model: the parts of tables that each rank has
  [[nodiscard]] const RankClass& class_of(int rank) const;
  [[nodiscard]] std::int64_t steps() const;  ///< number of steps executed, over one rank of each class
  /// The training step of a run from which all steps are alike; 0 unless the first ones differ.
  [[nodiscard]] std::int64_t steady_from() const;
};

/// A position in a program: which entry, and which step of its block.
struct StepRef {
  std::int32_t entry = 0;
  std::int32_t step = 0;
  auto operator<=>(const StepRef&) const = default;
};

/// Source and target memory of a stream's copies; device to device for streams that do not copy.
struct CopyDirection {
  Space from = Space::device, to = Space::device;
};
[[nodiscard]] CopyDirection direction_of(Stream stream);

[[nodiscard]] const char* name_of(StepKind kind);
[[nodiscard]] const char* name_of(Stream stream);
[[nodiscard]] const char* name_of(Phase phase);
[[nodiscard]] const char* name_of(CollectiveKind kind);
[[nodiscard]] const char* name_of(Purpose purpose);

}  // namespace orrery::plan
