// model: what a model is, in numbers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "apps/inputs.h"
#include "apps/verbs/verb.h"
#include "base/units.h"
#include "models/layers/counts.h"
#include "models/layers/mixers.h"
#include "models/read/read.h"
#include "reports/json.h"
#include "reports/tables/table.h"

namespace orrery::apps {
namespace {

struct ModelOptions {
  std::string model;          ///< catalogue name, model YAML or Hugging Face config.json
  std::int64_t sequence = 0;  ///< tokens; 0: the model's longest
};

Outcome run_model(const ModelOptions& options, const Context& context) {
  Outcome outcome;
  const auto model = load_model(context.catalog, options.model, {options.model, 0, 0, 1}, ".", &outcome.diagnostics);
  if (!model) return bad_input(model.error());
  const std::int64_t sequence = options.sequence > 0 ? options.sequence : model->max_sequence;
  const std::int64_t parameters = models::parameters(*model);
  const std::int64_t active = models::parameters_active(*model);
  const double flops = models::flops_per_token_forward(*model, sequence);

  const nlohmann::json json = reports::model_json(*model, sequence);
  outcome.json = json.dump();

  reports::Table table;
  table.title = model->name;
  table.columns = {{"", reports::Align::left}, {"", reports::Align::left}};  // long values wrap
  const auto row = [&](const char* name, std::string value) { table.rows.push_back({name, std::move(value)}); };
  row("family", json.at("family").get<std::string>());
  if (const auto& r = model->recommender) {
    row("dense features", std::to_string(r->dense_features));
    row("tables", fmt::format("{}, {} rows of {} values", r->tables.size(),
                              base::human_count(static_cast<double>(r->rows())), r->embedding_dim));
    std::string lookups = fmt::format("{}", r->mean_indices());
    if (r->mean_indices() < static_cast<double>(r->indices()))
      lookups += fmt::format(" expected, at most {}", r->indices());
    row("lookups a sample", std::move(lookups));
    row("bottom MLP", fmt::format("{}", fmt::join(r->bottom_widths(), "-")));
    row("interaction", r->interaction == models::Interaction::dot
                           ? std::string("dot")
                           : fmt::format("{} cross layers of rank {}", r->cross_layers, r->cross_rank));
    row("top MLP", fmt::format("{}", fmt::join(r->top_widths(), "-")));
    row("parameters", fmt::format("{} ({})", base::human_count(static_cast<double>(parameters)), parameters));
    row("parameters outside tables", base::human_count(static_cast<double>(models::dense_parameters(*r))));
    row("parameters a sample meets", base::human_count(static_cast<double>(active)));
    row("forward FLOPs per sample", base::human_count(flops));
    for (const std::string& source : model->sources) table.notes.push_back("source: " + source);
    outcome.text = reports::text_of(table, context.terminal.style);
    return outcome;
  }
  row("layers", std::to_string(model->layers));
  row("hidden width", std::to_string(model->hidden));
  row("heads",
      (model->heads == model->kv_heads ? std::to_string(model->heads)
                                       : fmt::format("{}, {} of keys and values", model->heads, model->kv_heads)) +
          (model->window_heads > 0 ? fmt::format("; {} where there is a window", model->window_heads) : ""));
  if (model->window_kv_heads > 0 || model->window_head_dim > 0 || model->value_dim > 0)
    row("columns of a head",
        fmt::format(
            "{}, of values {}{}{}", model->head_dim, model->value_dim > 0 ? model->value_dim : model->head_dim,
            model->window_head_dim > 0 ? fmt::format("; {} where there is a window", model->window_head_dim) : "",
            model->window_kv_heads > 0
                ? fmt::format("; {} of keys and values where there is a window", model->window_kv_heads)
                : ""));
  if (model->layer_inputs.any())
    row("inputs of each layer",
        fmt::format("{} columns, from a table of {} rows", model->layer_inputs.width, model->layer_inputs.vocab));
  if (model->shared_keys.any())
    row("keys and values",
        fmt::format("of layers before them in the last {}{}", base::count_of(model->shared_keys.layers, "layer"),
                    model->shared_keys.widens ? ", whose MLPs are twice as wide" : ""));
  const auto blocks_with = [&](auto&& holds) {
    return base::count_of(model->blocks_with(model->layers, holds), "layer");
  };
  using models::BlockParts;
  if (!model->pattern.empty()) {
    row("MLP", "in " + blocks_with([](const BlockParts& one) { return one.feed == models::Feed::mlp; }));
    for (const models::MixerTraits* mixer : models::mixers_of(*model))
      row(mixer->title,
          (mixer->sizes != nullptr ? mixer->sizes(*model) + ", in " : "in ") +
              blocks_with([mixer](const BlockParts& one) { return models::has_mixer(one, mixer->mixer); }));
  }
  if (const models::Indexer& i = model->indexer; i.any())
    row("attention reads",
        fmt::format("{} tokens, chosen by {} of {} columns{}", i.chosen, base::count_of(i.heads, "small head"), i.width,
                    i.every > 1 ? fmt::format(", in one of {} layers after the first {}", i.every, i.first) : ""));
  row("MLP width", std::to_string(model->ffn_hidden));
  if (const models::Experts& e = model->experts; e.any())
    row("experts", fmt::format("{} of {}, {} wide{}{}, in {}", e.chosen, e.count, e.hidden,
                               e.narrow > 0 ? fmt::format(" on copies of {}", e.narrow) : "",
                               e.shared > 0 ? fmt::format(", and {} shared", e.shared) : "",
                               base::count_of(model->expert_layers(model->layers), "layer")));
  row("vocabulary", std::to_string(model->vocab));
  row("longest sequence", std::to_string(model->max_sequence));
  row("parameters", fmt::format("{} ({})", base::human_count(static_cast<double>(parameters)), parameters));
  if (const std::int64_t further = models::parameters_further(*model); further > 0)
    row("beside them, to predict a token further", base::human_count(static_cast<double>(further)));
  if (active != parameters) row("parameters a token meets", base::human_count(static_cast<double>(active)));
  if (model->lora.any())
    row("parameters that train", base::human_count(static_cast<double>(models::parameters_trained(*model))));
  row(fmt::format("forward FLOPs per token at {} tokens", sequence).c_str(), base::human_count(flops));
  for (const std::string& source : model->sources) table.notes.push_back("source: " + source);
  outcome.text = reports::text_of(table, context.terminal.style);
  return outcome;
}

void add_model_flags(Flags flags, ModelOptions& o) {
  flags.option("MODEL", o.model, "Catalogue name, model YAML, or Hugging Face config.json or its folder").required();
  flags.option("--sequence", o.sequence, "Tokens per sequence, 2k is 2,048; default: the model's longest")
      .length()
      .range(std::int64_t{1}, std::int64_t{1} << 32)
      .value("N");
}

}  // namespace

Verb model_verb() {
  return verb_of<ModelOptions>({
      .name = "model",
      .says = "Show a model's parameters and FLOPs",
      .examples = "  orrery model llama3-8b\n"
                  "  orrery model config.json --sequence 4096",
      .flags = add_model_flags,
      .run = run_model,
  });
}

}  // namespace orrery::apps
