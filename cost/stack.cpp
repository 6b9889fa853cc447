/// Reads cost/stacks/NAME.yaml.
#include "cost/stack.h"

#include "cost/stack_read.h"

#include <fmt/format.h>

#include "base/yaml.h"
#include "cost/parameters.h"
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
    case plan::Stream::exchange: return overlap_exchange;
    case plan::Stream::to_host:
    case plan::Stream::from_host:
    case plan::Stream::to_nvme:
    case plan::Stream::from_nvme: return overlap_copies;
  }
  return false;
}

namespace {

constexpr double kLeastFactor = 0.01, kMostFactor = 100;

Interval read_interval_of(const base::Cursor& at) {
  Interval out{at.at("low").number(kLeastFactor, kMostFactor), at.at("high").number(kLeastFactor, kMostFactor)};
  if (out.high < out.low) at.error("E0105", fmt::format("`high` is {}, below `low`, which is {}", out.high, out.low));
  return out;
}

Stack::Fitted read_fitted(const base::Cursor& at) {
  Stack::Fitted out;
  out.rows = at.at("rows").integer(0, std::int64_t{1} << 40);
  out.median_error = at.at("median_error").number(0, kMostFactor);
  out.p90_error = at.at("p90_error").number(0, kMostFactor);
  out.time = read_interval_of(at.at("time"));
  out.memory = read_interval_of(at.at("memory"));
  return out;
}

std::string interval_text(const Interval& i) {
  return fmt::format("{{low: {}, high: {}}}", i.low, i.high);
}

std::string memory_text(const MemoryRecipe& r) {
  std::string out = fmt::format("memory:\n  reported: {}\n  dropout: {}\n  loss_copies: {}\n", name_of(r.reported),
                                r.dropout, r.loss_copies);
  out += fmt::format("  gradients_beside: {}\n  update_fp16: {}\n  update_bf16: {}\n", r.gradients_beside,
                     r.update_fp16, r.update_bf16);
  out += fmt::format("  update_in_one_piece: {}\n  reduce_bucket: {}\n  keeps_messages: {}\n", r.update_in_one_piece,
                     r.reduce_bucket, r.keeps_messages);
  out += fmt::format("  keeps_gathered: {}\n  fragmentation: {}\n  stuck: {}\n  pipeline_fragmentation: {}\n",
                     r.keeps_gathered, r.fragmentation, r.stuck, r.pipeline_fragmentation);
  return out;
}

}  // namespace

std::string write_stack(const Stack& s, const std::vector<std::string>& head) {
  std::string out;
  for (const std::string& line : head) out += "# " + line + "\n";
  out += fmt::format("stack: {}\n", base::yaml_text(s.name));
  if (s.generic) out += "generic: true\n";
  out += fmt::format("flash: {}\nhost_inline: {}\n", s.flash, s.host_inline);
  if (!s.without_zero.empty()) out += fmt::format("without_zero: {}\n", base::yaml_text(s.without_zero));
  if (!s.with_zero_3.empty()) out += fmt::format("with_zero_3: {}\n", base::yaml_text(s.with_zero_3));
  out += fmt::format("recompute_whole_layer: {}\n", s.recompute_whole_layer);
  out += fmt::format(
      "overlap: {{tensor: {}, data: {}, pipeline: {}, gradients: {}, context: {}, exchange: {}, copies: {}}}\n",
      s.overlap_tensor, s.overlap_data, s.overlap_pipeline, s.overlap_gradients, s.overlap_context, s.overlap_exchange,
      s.overlap_copies);
  if (s.memory.stated) out += memory_text(s.memory);
  out += "parameters:\n";
  for (const Parameter& p : s.parameters)
    out += fmt::format("  {}: {{value: {}, source: {}}}\n", p.name, parameter_text(p.value, unit_of(p.name)),
                       base::yaml_quoted(p.source));
  if (s.fitted)
    out += fmt::format("fitted: {{rows: {}, median_error: {}, p90_error: {}, time: {}, memory: {}}}\n", s.fitted->rows,
                       s.fitted->median_error, s.fitted->p90_error, interval_text(s.fitted->time),
                       interval_text(s.fitted->memory));
  if (!s.sources.empty()) out += "sources:\n";
  for (const std::string& source : s.sources) out += fmt::format("  - {}\n", base::yaml_quoted(source));
  return out;
}

Stack read_stack(const base::Cursor& root) {
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
  s.overlap_exchange = overlap.optional("exchange").boolean(s.overlap_context);
  s.overlap_copies = overlap.optional("copies").boolean(true);
  for (auto& [key, parameter] : read_parameters(root.at("parameters"), "stack.")) s.parameters.push_back(parameter);
  s.generic = root.optional("generic").boolean(false);
  if (root.has("fitted")) s.fitted = read_fitted(root.at("fitted"));
  const base::Cursor sources = root.optional("sources");
  if (sources.exists())
    for (const base::Cursor& item : sources.items()) s.sources.push_back(item.text());
  return s;
}

base::Result<Stack> parse_stack(std::string_view text, std::string file) {
  return base::read_document<Stack>(text, std::move(file), read_stack);
}

}  // namespace orrery::cost
