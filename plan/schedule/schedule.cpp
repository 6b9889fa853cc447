// Groups as strides, message sizes and names.
#include "plan/schedule/schedule.h"

#include <algorithm>
#include <cmath>

#include "base/ensure.h"

namespace orrery::plan {

int count_of(DealtOver ranks, const PlanSpec& spec) {
  switch (ranks) {
    case DealtOver::nobody: return 1;
    case DealtOver::states: return spec.shards();
    case DealtOver::experts: return spec.shards_of(true);
    case DealtOver::tensor: return spec.mesh.tensor;
  }
  return 1;
}

int place_in(DealtOver ranks, const PlanSpec& spec, int rank) {
  switch (ranks) {
    case DealtOver::nobody: return 0;
    case DealtOver::states: return spec.shard_index(rank);
    case DealtOver::experts: return spec.shard_index_of(true, rank);
    case DealtOver::tensor: return rank % spec.mesh.tensor;
  }
  return 0;
}

int Group::size() const {
  int product = 1;
  for (const Dimension& d : dimensions) product *= d.members();
  return product;
}

int Group::base(int rank) const {
  int result = rank;
  for (const Dimension& d : dimensions) {
    const int own = rank / d.stride % d.size, first = d.mirrored ? std::min(own, d.size - 1 - own) : 0;
    result -= (own - first) * d.stride;
  }
  return result;
}

bool Group::contains(int rank) const {
  return base_limit == 0 || base(rank) < base_limit;
}

std::vector<int> Group::members(int rank) const {
  if (!contains(rank)) return {};
  std::vector<int> result = {base(rank)};
  for (const Dimension& d : dimensions) {
    const std::size_t before = result.size();
    const int step = d.mirrored ? d.size - 1 - 2 * (result.front() / d.stride % d.size) : 1;
    for (int i = 1; i < d.members(); ++i)
      for (std::size_t k = 0; k < before; ++k) result.push_back(result[k] + i * step * d.stride);
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::int64_t Step::message_bytes(const Buffers& buffers) const {
  const View& full = kind == StepKind::collective && collective == CollectiveKind::reduce_scatter ? source
                     : kind == StepKind::send                                                     ? source
                                                                                                  : target;
  if (kind == StepKind::compute) return 0;
  const std::int64_t bytes = full.elements * models::size_of(buffers[full.buffer].dtype);
  if (rows.any()) return std::llround(static_cast<double>(bytes) * rows.expected);
  return counted.any() ? std::llround(static_cast<double>(bytes) * counted.expected) : bytes;
}

const RankClass& Schedule::class_of(int rank) const {
  const StageId stage(rank / spec.mesh.ranks_per_stage());
  ENSURE(stage.index() < classes.size(), "rank {} of {}", rank, spec.mesh.ranks());
  return classes[stage];
}

std::int64_t Schedule::steady_from() const {
  std::int64_t latest = 0;
  for (const RankClass& c : classes)
    for (const Block& block : c.blocks)
      for (const Step& step : block.steps) latest = std::max(latest, step.from_step);
  return latest;
}

std::int64_t Schedule::steps() const {
  std::int64_t total = 0;
  for (const RankClass& c : classes)
    c.program.each_kind([&](const Entry& entry, std::int64_t times, std::int32_t) {
      total += times * static_cast<std::int64_t>(c.blocks[static_cast<std::size_t>(entry.block)].steps.size());
    });
  return total;
}

std::int32_t micro_batches_of(const RankClass& rank_class) {
  std::int32_t most = 0;
  rank_class.program.each_kind([&](const Entry& entry, std::int64_t times, std::int32_t advance) {
    most = std::max({most, entry.micro_batch, Progression<Entry>::advanced(entry, advance, times - 1).micro_batch});
  });
  return most + 1;
}

CopyDirection direction_of(Stream stream) {
  switch (stream) {
    case Stream::to_host: return {Space::device, Space::host};
    case Stream::from_host: return {Space::host, Space::device};
    case Stream::to_nvme: return {Space::host, Space::nvme};
    case Stream::from_nvme: return {Space::nvme, Space::host};
    case Stream::compute:
    case Stream::tensor:
    case Stream::data:
    case Stream::pipeline_send:
    case Stream::pipeline_recv:
    case Stream::context:
    case Stream::exchange: break;
  }
  return {};
}

const char* name_of(StepKind kind) {
  switch (kind) {
    case StepKind::compute: return "compute";
    case StepKind::collective: return "collective";
    case StepKind::send: return "send";
    case StepKind::recv: return "recv";
    case StepKind::copy: return "copy";
  }
  return "?";
}

const char* name_of(Stream stream) {
  switch (stream) {
    case Stream::compute: return "compute";
    case Stream::tensor: return "tensor";
    case Stream::data: return "data";
    case Stream::pipeline_send: return "pipeline_send";
    case Stream::pipeline_recv: return "pipeline_recv";
    case Stream::context: return "context";
    case Stream::exchange: return "exchange";
    case Stream::to_host: return "to_host";
    case Stream::from_host: return "from_host";
    case Stream::to_nvme: return "to_nvme";
    case Stream::from_nvme: return "from_nvme";
  }
  return "?";
}

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::input: return "input";
    case Phase::forward: return "forward";
    case Phase::recompute: return "recompute";
    case Phase::backward: return "backward";
    case Phase::parameter_gather: return "parameter_gather";
    case Phase::gradient_reduce: return "gradient_reduce";
    case Phase::optimizer: return "optimizer";
    case Phase::reporting: return "reporting";
  }
  return "?";
}

const char* name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return "all_reduce";
    case CollectiveKind::all_gather: return "all_gather";
    case CollectiveKind::reduce_scatter: return "reduce_scatter";
    case CollectiveKind::ring_shift: return "ring_shift";
    case CollectiveKind::all_to_all: return "all_to_all";
  }
  return "?";
}

const char* name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::parameters: return "parameters";
    case Purpose::gradients: return "gradients";
    case Purpose::optimizer_states: return "optimizer_states";
    case Purpose::activations: return "activations";
    case Purpose::workspace: return "workspace";
    case Purpose::communication: return "communication";
    case Purpose::input: return "input";
    case Purpose::scalars: return "scalars";
  }
  return "?";
}

}  // namespace orrery::plan
