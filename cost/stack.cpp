/// Reads cost/stacks/NAME.yaml.
#include "cost/stack.h"

#include "base/yaml.h"
#include "cost/read_parameters.h"

namespace orrery::cost {

bool Stack::overlaps(plan::Stream stream) const {
  switch (stream) {
    case plan::Stream::compute: return false;
    case plan::Stream::tensor: return overlap_tensor;
    case plan::Stream::data: return overlap_data;
    case plan::Stream::pipeline_send:
    case plan::Stream::pipeline_recv: return overlap_pipeline;
    case plan::Stream::context: return overlap_context;
    case plan::Stream::to_host:
    case plan::Stream::from_host:
    case plan::Stream::to_nvme:
    case plan::Stream::from_nvme: return overlap_copies;
  }
  return false;
}

base::Result<Stack> parse_stack(std::string_view text, std::string file) {
  return base::read_document<Stack>(text, std::move(file), [](const base::Cursor& root) {
    Stack s;
    s.name = root.at("stack").text();
    s.flash = root.at("flash").boolean(true);
    s.host_inline = root.at("host_inline").boolean(false);
    s.without_zero = root.optional("without_zero").exists() ? root.at("without_zero").text() : "";
    s.with_zero_3 = root.optional("with_zero_3").exists() ? root.at("with_zero_3").text() : "";
    s.recompute_whole_layer = root.optional("recompute_whole_layer").boolean(false);
    s.zero_gradients = root.optional("zero_gradients").boolean(true);
    const base::Cursor overlap = root.at("overlap");
    s.overlap_tensor = overlap.at("tensor").boolean(false);
    s.overlap_data = overlap.at("data").boolean(false);
    s.overlap_pipeline = overlap.at("pipeline").boolean(false);
    s.overlap_gradients = overlap.optional("gradients").boolean(false);
    s.memory = read_memory_recipe(root.optional("memory"));
    s.overlap_context = overlap.optional("context").boolean(!s.host_inline);
    s.overlap_copies = overlap.optional("copies").boolean(true);
    for (auto& [key, parameter] : read_parameters(root.at("parameters"), "stack.")) s.parameters.push_back(parameter);
    const base::Cursor sources = root.optional("sources");
    if (sources.exists())
      for (const base::Cursor& item : sources.items()) s.sources.push_back(item.text());
    return s;
  });
}

}  // namespace orrery::cost
