/// A message of each stream.
#include "cost/estimate/stage_streams.h"

#include <algorithm>
#include <utility>

#include "cost/estimate/fold.h"

namespace orrery::cost {

namespace {

using plan::CollectiveKind;
using plan::Stream;

/// Of the data group of what most of the layer's parameters belong to.
StreamMessage of_data(const LayerCosts& c, const plan::PlanSpec& spec, const StageGroups& groups) {
  const bool experts = c.expert_elements > c.own_elements && groups.of(true).data.size() > 1;
  const int zero = plan::zero_of(spec);
  const models::DType dtype =
      zero == 3 ? plan::compute_dtype(spec.numerics.precision) : plan::gradient_dtype(spec.numerics.precision);
  return {Stream::data,
          zero == 3   ? CollectiveKind::all_gather
          : zero == 2 ? CollectiveKind::reduce_scatter
                      : CollectiveKind::all_reduce,
          base::Bytes{arena_bytes(experts ? c.expert_elements : c.own_elements, dtype)}, groups.of(experts).data};
}

/// The layer's first message on a stream, if it has any.
void add_of_layer(std::vector<StreamMessage>& out, const LayerCosts& c, Segment::Kind kind,
                  const std::vector<int>& members) {
  const auto found = std::ranges::find(c.forward.segments, kind, &Segment::kind);
  if (found == c.forward.segments.end() || members.size() < 2) return;
  out.push_back({found->message.stream, found->message.kind, base::Bytes{found->message.bytes}, members});
}

}  // namespace

std::shared_ptr<StreamRates> stream_rates(const plan::PlanSpec& spec, const StageGroups& groups,
                                          const std::vector<LayerRun>& layers) {
  const Lockstep& lockstep = groups.lockstep;
  // The tokens of experts and ZeRO 3's parameters fill links that either alone would leave room on.
  const bool gathers_beside_tokens = plan::zero_of(spec) == 3 && spec.mesh.expert > 1;
  if (lockstep.links == nullptr || layers.empty() || !(spec.offload.any() || gathers_beside_tokens)) return nullptr;
  const LayerCosts& c = *std::ranges::max_element(layers, {}, &LayerRun::count)->costs;
  const int first = groups.tensor.front();
  std::vector<StreamMessage> messages;
  if (groups.data.size() > 1) messages.push_back(of_data(c, spec, groups));
  const auto over_tensor = std::ranges::find(c.forward.segments, Segment::Kind::tensor, &Segment::kind);
  const bool of_experts = over_tensor != c.forward.segments.end() && over_tensor->message.of_experts;
  add_of_layer(messages, c, Segment::Kind::tensor, of_experts ? groups.of(true).tensor : groups.tensor);
  add_of_layer(messages, c, Segment::Kind::shift, strided(first, spec.mesh.tensor, spec.mesh.context));
  add_of_layer(messages, c, Segment::Kind::exchange, groups.experts);
  if (spec.offload.any()) {
    const base::Bytes copied{arena_bytes(c.own_elements, models::DType::bf16)};
    const bool adds = spec.offload.activations == plan::Space::device;  // only gradients leave
    const auto copy = [&](Stream stream) {
      messages.push_back({stream, std::nullopt, copied, {first}, adds && stream == Stream::to_host});
    };
    for (const Stream stream : {Stream::to_host, Stream::from_host}) copy(stream);
    if (spec.offload.parameters == plan::Space::nvme || spec.offload.optimizer == plan::Space::nvme)
      for (const Stream stream : {Stream::to_nvme, Stream::from_nvme}) copy(stream);
  }
  std::array<Crossings, plan::kStreams> crossings;
  for (const StreamMessage& message : messages)
    crossings[static_cast<std::size_t>(message.stream)] = lockstep.links->crossings(message, lockstep.ranks);
  auto rates = std::make_shared<StreamRates>(crossings);
  return rates->any() ? rates : nullptr;
}

}  // namespace orrery::cost
