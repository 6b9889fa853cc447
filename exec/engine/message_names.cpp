// Names of messages.
#include "exec/engine/message_names.h"

#include <fmt/core.h>

namespace orrery::exec {

std::string MessageNames::what(const plan::Step& step) const {
  const plan::View& view = step.kind == plan::StepKind::send ? step.source : step.target;
  std::string text;
  if (step.kind == plan::StepKind::collective)
    text = fmt::format("{} over group \"{}\"", plan::name_of(step.collective), schedule_.groups[step.group].name);
  else if (step.kind == plan::StepKind::copy)
    text = fmt::format("copy {}", plan::name_of(step.stream));
  else
    text = fmt::format("{} {} rank {} (tag {})", plan::name_of(step.kind),
                       step.kind == plan::StepKind::send ? "to" : "from", peer_of(step), step.tag);
  return text + fmt::format(", buffer \"{}\", {} elements", class_.buffers[view.buffer].name, view.elements);
}

std::string MessageNames::summary(const plan::Step& step, std::int32_t iteration, std::int32_t micro_batch) const {
  if (step.kind == plan::StepKind::collective)
    return fmt::format("{} over group \"{}\", training step {}, micro-batch {}", plan::name_of(step.collective),
                       schedule_.groups[step.group].name, iteration, micro_batch);
  return fmt::format("{} {} rank {}, training step {}, micro-batch {}", plan::name_of(step.kind),
                     step.kind == plan::StepKind::send ? "to" : "from", peer_of(step), iteration, micro_batch);
}

std::string MessageNames::describe(const plan::Step& step, std::int32_t iteration, const plan::StepRef& at,
                                   std::int32_t micro_batch) const {
  const std::int32_t block = class_.program[static_cast<std::size_t>(at.entry)].block;
  return fmt::format("rank {}: {}, training step {}, entry {} ({}), step {}, micro-batch {}", rank_, what(step),
                     iteration + 1, at.entry, class_.blocks[static_cast<std::size_t>(block)].name, at.step,
                     micro_batch);
}

std::map<std::pair<std::int32_t, std::int32_t>, int> MessageNames::number(Recorder& recorder) const {
  std::map<std::pair<std::int32_t, std::int32_t>, int> numbers;
  for (std::size_t b = 0; b < class_.blocks.size(); ++b)
    for (std::size_t s = 0; s < class_.blocks[b].steps.size(); ++s) {
      const plan::Step& step = class_.blocks[b].steps[s];
      if (step.kind == plan::StepKind::compute) continue;
      numbers[{static_cast<std::int32_t>(b), static_cast<std::int32_t>(s)}] =
          recorder.name_message(fmt::format("{} ({})", what(step), class_.blocks[b].name));
    }
  return numbers;
}

}  // namespace orrery::exec
