/// Assumes usual practice instead of "off".
#include "sim/validate/unstated.h"

#include <fmt/format.h>

namespace orrery::sim {

void take_practice(const Setup& s, const cost::Stack& stack, plan::PlanSpec& spec, std::vector<std::string>& notes) {
  const cost::Practice& usual = stack.usual;
  if (spec.tensor > 1 && !s.sequence_parallel && usual.sequence_parallel && spec.sequence % spec.tensor == 0) {
    spec.sequence_parallel = true;
    notes.push_back(fmt::format("sequence parallelism, as {} usually has it", stack.name));
  }
  const bool open = !s.virtual_stages && !s.interleaved && s.schedule.empty();
  const std::int64_t layers = *s.layers / spec.pipeline;
  if (spec.pipeline > 1 && open && usual.chunk_layers > 0 && *s.layers % spec.pipeline == 0 &&
      layers > usual.chunk_layers && layers % usual.chunk_layers == 0 &&
      spec.batch / (spec.data * spec.micro_batch) % spec.pipeline == 0) {
    spec.virtual_stages = static_cast<int>(layers / usual.chunk_layers);
    notes.push_back(fmt::format("{} chunks per stage, as {} usually has them", spec.virtual_stages, stack.name));
  }
}

}  // namespace orrery::sim
