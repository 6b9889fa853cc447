/// Reads cost/stacks/NAME.yaml.
#include "cost/parameters/stack.h"

#include "cost/parameters/stack_read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/yaml.h"
#include "cost/parameters/parameters.h"
#include "cost/parameters/read_parameters.h"

namespace orrery::cost {

int Capabilities::zero_in_pipeline(int stage) const {
  // Nothing is known of a stage that the software has nowhere.
  if (std::find(zero_stages.begin(), zero_stages.end(), stage) == zero_stages.end()) return stage;
  int below = -1;
  for (const int one : pipelined_zero_stages)
    if (one <= stage) below = std::max(below, one);
  return below < 0 ? stage : below;
}

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

bool Stack::attends_fused(const clusters::Device& device) const {
  return flash && (device.kind == clusters::DeviceKind::cpu || device.architecture >= can.flash_from);
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
  if (const base::Cursor like = at.optional("like"); like.exists()) out.like = like.text();
  out.rows = at.at("rows").integer(0, std::int64_t{1} << 40);
  out.median_error = at.at("median_error").number(0, kMostFactor);
  out.p90_error = at.at("p90_error").number(0, kMostFactor);
  out.time = read_interval_of(at.at("time"));
  out.memory = read_interval_of(at.at("memory"));
  if (const base::Cursor grounds = at.optional("grounds"); grounds.exists())
    for (const base::Cursor& item : grounds.items()) out.grounds.push_back(read_ground(item));
  return out;
}

const std::vector<std::string> kArchitectureWords = {"volta", "ampere", "hopper", "blackwell"};
constexpr int kFirstWord = static_cast<int>(clusters::Architecture::volta);

Capabilities read_capabilities(const base::Cursor& at) {
  Capabilities out;
  if (!at.exists()) return out;
  const auto stages = [&](const char* key, std::vector<int> otherwise) {
    const base::Cursor list = at.optional(key);
    if (!list.exists()) return otherwise;
    std::vector<int> found;
    constexpr int kHighest = 3;
    for (const base::Cursor& item : list.items()) found.push_back(static_cast<int>(item.integer(0, kHighest)));
    return found;
  };
  out.zero_stages = stages("zero_stages", out.zero_stages);
  out.pipelined_zero_stages = stages("pipelined_zero_stages", out.zero_stages);
  out.tensor = at.optional("tensor").boolean(true);
  out.pipeline = at.optional("pipeline").boolean(true);
  out.virtual_stages = at.optional("virtual_stages").boolean(true);
  out.context = at.optional("context").boolean(true);
  out.expert = at.optional("expert").boolean(true);
  out.sequence_parallel = at.optional("sequence_parallel").boolean(true);
  out.whole_rows = at.optional("whole_rows").boolean(true);
  out.replicas_beside = at.optional("replicas_beside").boolean(true);
  out.gpipe = at.optional("gpipe").boolean(true);
  out.partition_checkpoints = at.optional("partition_checkpoints").boolean(false);
  out.recompute_layers = at.optional("recompute_layers").boolean(true);
  if (const base::Cursor modules = at.optional("recompute_modules"); modules.exists()) {
    std::vector<plan::Modules::Cell> words;
    for (const base::Cursor& item : modules.items()) words.push_back({item.text(), item.where()});
    if (const auto known = plan::Modules::parse_rows(words))
      out.recompute_modules = *known;
    else
      for (const base::Diagnostic& one : known.error()) modules.error(one.code, one.message, one.help);
  }
  if (at.has("flash_from"))
    out.flash_from = static_cast<clusters::Architecture>(kFirstWord + at.at("flash_from").choice(kArchitectureWords));
  return out;
}

std::string capabilities_text(const Capabilities& c) {
  return fmt::format(
      "can: {{zero_stages: [{}], pipelined_zero_stages: [{}], tensor: {}, pipeline: {}, virtual_stages: {}, context: "
      "{}, "
      "expert: {}, sequence_parallel: {}, whole_rows: {}, replicas_beside: {}, gpipe: {}, partition_checkpoints: {}, "
      "recompute_layers: {}, "
      "recompute_modules: [{}], flash_from: {}}}\n",
      fmt::join(c.zero_stages, ", "), fmt::join(c.pipelined_zero_stages, ", "), c.tensor, c.pipeline, c.virtual_stages,
      c.context, c.expert, c.sequence_parallel, c.whole_rows, c.replicas_beside, c.gpipe, c.partition_checkpoints,
      c.recompute_layers, fmt::join(c.recompute_modules.rows(), ", "),
      kArchitectureWords.at(static_cast<std::size_t>(static_cast<int>(c.flash_from) - kFirstWord)));
}

/// Keys of Stack::by_zero.
constexpr std::array<const char*, 4> kByZero = {"without_zero", "with_zero_1", "with_zero_2", "with_zero_3"};

std::string interval_text(const Interval& i) {
  return fmt::format("{{low: {}, high: {}}}", i.low, i.high);
}

std::string memory_text(const MemoryRecipe& r) {
  std::string out = fmt::format("memory:\n  reported: {}\n  dropout: {}\n  loss_copies: {}\n  loss_apart: {}\n",
                                name_of(r.reported), r.dropout, r.loss_copies, r.loss_apart);
  out += fmt::format("  gradients_beside: {}\n  update_fp16: {}\n  update_bf16: {}\n", r.gradients_beside,
                     r.update_fp16, r.update_bf16);
  out += fmt::format("  update_in_one_piece: {}\n  reduce_bucket: {}\n  keeps_messages: {}\n", r.update_in_one_piece,
                     r.reduce_bucket, r.keeps_messages);
  out += fmt::format("  keeps_gathered: {}\n  fragmentation: {}\n  stuck: {}\n  pipeline_fragmentation: {}\n",
                     r.keeps_gathered, r.fragmentation, r.stuck, r.pipeline_fragmentation);
  out += fmt::format("  composes_gates: {}\n  repeats_keys: {}\n  gathers_rows: {}\n", r.composes_gates, r.repeats_keys,
                     r.gathers_rows);
  out += fmt::format("  composes_norms: {}\n  wide_sums: {}\n", r.composes_norms, r.wide_sums);
  out += fmt::format("  gradient_bytes: {}\n  saves_rounded: {}\n  rounded_weights: {}\n", r.gradient_bytes,
                     r.saves_rounded, name_of(r.rounded_weights));
  out += fmt::format("  weighs_in_experts: {}\n  gathers_masters: {}\n  narrow_values: {}\n", r.weighs_in_experts,
                     r.gathers_masters, r.narrow_values);
  if (const KeptInFp8& kept = r.kept_in_fp8; !(kept == KeptInFp8()))
    out += fmt::format("  kept_in_fp8: {{products: {}, gates: {}, attention: {}}}\n", kept.products, kept.gates,
                       kept.attention);
  return out;
}

}  // namespace

std::string write_stack(const Stack& s, const std::vector<std::string>& head) {
  std::string out;
  for (const std::string& line : head) out += "# " + line + "\n";
  out += fmt::format("stack: {}\n", base::yaml_text(s.name));
  if (s.generic) out += "generic: true\n";
  if (s.own) out += "own: true\n";
  out += fmt::format("flash: {}\nhost_inline: {}\n", s.flash, s.host_inline);
  for (std::size_t zero = 0; zero < kByZero.size(); ++zero)
    if (!s.by_zero.at(zero).empty())
      out += fmt::format("{}: {}\n", kByZero.at(zero), base::yaml_text(s.by_zero.at(zero)));
  if (!s.within_node.empty()) out += fmt::format("within_node: {}\n", base::yaml_text(s.within_node));
  if (!(s.can == Capabilities())) out += capabilities_text(s.can);
  if (!(s.usual == Practice()))
    out +=
        fmt::format("usual: {{sequence_parallel: {}, chunk_layers: {}{}{}}}\n", s.usual.sequence_parallel,
                    s.usual.chunk_layers, s.usual.lora_targets.empty() ? "" : ", lora_targets: " + s.usual.lora_targets,
                    s.usual.partition_checkpoints ? ", partition_checkpoints: true" : "");
  out += fmt::format("recompute_whole_layer: {}\n", s.recompute_whole_layer);
  if (!s.zero_gradients) out += "zero_gradients: false\n";
  out += fmt::format(
      "overlap: {{tensor: {}, data: {}, pipeline: {}, gradients: {}{}, context: {}, exchange: {}, copies: {}}}\n",
      s.overlap_tensor, s.overlap_data, s.overlap_pipeline, s.overlap_gradients,
      s.overlap_whole ? ", whole_gradients: true" : "", s.overlap_context, s.overlap_exchange, s.overlap_copies);
  if (s.memory.stated) out += memory_text(s.memory);
  out += "parameters:\n";
  for (const Parameter& p : s.parameters) out += parameter_row(p.name, p.value, unit_of(p.name), p.source) + "\n";
  if (!s.eager.empty()) out += "eager:\n";
  for (const Parameter& p : s.eager) out += parameter_row(p.name, p.value, unit_of(p.name), p.source) + "\n";
  if (s.fitted) {
    std::string grounds;
    for (const Ground& g : s.fitted->grounds)
      grounds += fmt::format("{}{{{}}}", grounds.empty() ? ", grounds: [" : ", ", ground_text(g));
    if (!grounds.empty()) grounds += "]";
    out += base::yaml_row(
               fmt::format("fitted: {{{}rows: {}, median_error: {}, p90_error: {}, time: {}, memory: {}{}}}",
                           s.fitted->like.empty() ? "" : fmt::format("like: {}, ", base::yaml_text(s.fitted->like)),
                           s.fitted->rows, s.fitted->median_error, s.fitted->p90_error, interval_text(s.fitted->time),
                           interval_text(s.fitted->memory), grounds),
               2) +
           "\n";
  }
  if (!s.sources.empty()) out += "sources:\n";
  for (const std::string& source : s.sources) out += base::yaml_row("  - " + base::yaml_quoted(source), 6) + "\n";
  return out;
}

Stack read_stack(const base::Cursor& root) {
  Stack s;
  s.name = root.at("stack").text();
  s.flash = root.at("flash").boolean(true);
  s.host_inline = root.at("host_inline").boolean(false);
  // Read like optional keys, so that a schema made by running this function includes them.
  const auto text_of = [](const base::Cursor& at) { return at.exists() ? at.text() : std::string(); };
  const auto name_at = [&](const char* key) { return text_of(root.optional(key)); };
  for (std::size_t zero = 0; zero < kByZero.size(); ++zero) s.by_zero.at(zero) = name_at(kByZero.at(zero));
  s.within_node = name_at("within_node");
  s.can = read_capabilities(root.optional("can"));
  if (const base::Cursor usual = root.optional("usual"); usual.exists())
    s.usual = {usual.optional("sequence_parallel").boolean(false), usual.optional("chunk_layers").integer(0, 1000),
               text_of(usual.optional("lora_targets")), usual.optional("partition_checkpoints").boolean(false)};
  s.recompute_whole_layer = root.optional("recompute_whole_layer").boolean(false);
  s.zero_gradients = root.optional("zero_gradients").boolean(true);
  const base::Cursor overlap = root.at("overlap");
  s.overlap_tensor = overlap.at("tensor").boolean(false);
  s.overlap_data = overlap.at("data").boolean(false);
  s.overlap_pipeline = overlap.at("pipeline").boolean(false);
  s.overlap_gradients = overlap.optional("gradients").boolean(false);
  s.overlap_whole = overlap.optional("whole_gradients").boolean(false);
  s.memory = read_memory_recipe(root.optional("memory"));
  s.overlap_context = overlap.optional("context").boolean(!s.host_inline);
  s.overlap_exchange = overlap.optional("exchange").boolean(s.overlap_context);
  s.overlap_copies = overlap.optional("copies").boolean(true);
  for (auto& [key, parameter] : read_parameters(root.at("parameters"), "stack.")) s.parameters.push_back(parameter);
  for (auto& [key, parameter] : read_parameters(root.optional("eager"), "stack.")) s.eager.push_back(parameter);
  s.generic = root.optional("generic").boolean(false);
  s.own = root.optional("own").boolean(false);
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
