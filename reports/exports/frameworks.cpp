// What plans have that other frameworks lack, and the writer of each framework.
#include "reports/exports/frameworks.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "reports/exports/handover.h"

namespace orrery::reports {

const char* name_of(Framework framework) {
  switch (framework) {
    case Framework::megatron: return "megatron";
    case Framework::deepspeed: return "deepspeed";
    case Framework::torchtitan: return "torchtitan";
  }
  return "?";
}

models::Dropout Handover::dropout() const {
  return training().dropout.value_or(model().dropout);
}

const char* Handover::key_of_dropout() const {
  return training().dropout ? "job.training.dropout" : "model.dropout";
}

base::Diagnostic Handover::at(const std::string& key, base::Severity severity, const char* code, std::string message,
                              const std::string& help) const {
  base::Diagnostic found{severity, code, {path, 1, 1, 1}, std::move(message), help, {}};
  return placed ? placed(key, std::move(found)) : found;
}

void Handover::needs(const char* key, bool can, const std::string& what, const std::string& help) {
  if (can) return;
  errors.push_back(at(key, base::Severity::error, "E0631", fmt::format("{} cannot express {}", framework, what), help));
}

void Handover::needs(std::initializer_list<Ability> parts, const std::string& help) {
  const char* key = nullptr;
  std::vector<std::string> lacking;
  for (const Ability& part : parts) {
    if (part.can) continue;
    if (key == nullptr) key = part.key;
    lacking.emplace_back(part.what);
  }
  if (key != nullptr) needs(key, false, fmt::format("{}", fmt::join(lacking, ", ")), help);
}

void Handover::note(const std::string& key, bool differs, const std::string& what, const std::string& help) {
  if (!differs) return;
  warnings.push_back(at(key, base::Severity::warning, "E0632", framework + (": " + what), help));
}

void Handover::check_common(std::string_view optimizer) {
  const plan::PlanSpec& s = spec();
  needs("model.family", !model().recommender, "recommendation models",
        "torchrec and HugeCTR have planners of their own");
  needs("job.training.lora", !model().lora.any(), "low-rank adapters",
        "leave `training: {lora}` out, and set it in the framework itself");
  needs("plan.staleness", !s.states.has_server(), "a parameter server", "leave `staleness` out");
  for (const auto& [key, value] : plan::unwritten_words(table, file, plan))
    note("job.software." + key, true, fmt::format("`software: {{{}: {}}}` is not among these settings", key, value),
         "set it there by hand, if it is not the default");
  needs("plan.schedule", !s.stages.asynchronous() && !s.stages.splits_backward(),
        fmt::format("the order {}", plan::name_of(s.stages.order)), "`schedule: 1f1b`");
  needs("plan.precision", s.numerics.precision != models::DType::tf32, "products in tf32",
        "`precision: bf16`, or set it in PyTorch");
  needs("job.rounding", s.numerics.rounding == plan::Rounding::nearest, "stochastic rounding of parameters",
        "`rounding: nearest`");
  needs("plan.loss_chunks", s.numerics.loss_chunks == 1, "the loss in chunks of rows", "`loss_chunks: 1`");
  needs("plan.compression.activations", s.compression.activations == plan::ActivationEncoding::none,
        "encoded activations", "`compression: {activations: none}`");
  needs("plan.compression.gradients", !s.low_rank() && !s.exchanges_by_node(), "this compression of gradients",
        "`compression: {gradients: none}`, or bf16 without groups");
  note("job.training.initial_weights", !training().initial_weights.empty(),
       "the run begins with the framework's own initial weights",
       "convert `initial_weights` with the framework's tools");
  const bool looks_ahead = plan::traits_of(training().optimizer.kind).keys.nesterov && training().optimizer.nesterov;
  needs("job.training.optimizer.name", !optimizer.empty() && !looks_ahead,
        fmt::format("the optimizer {}{}", plan::name_of(training().optimizer.kind),
                    training().optimizer.nesterov ? " with Nesterov's momentum" : ""),
        "adamw, or sgd");
}

base::Result<Settings> Handover::give(std::string text) {
  if (!errors.empty()) return base::fail(std::move(errors));
  return Settings{std::move(text), std::move(warnings)};
}

base::Result<Settings> settings_for(Framework framework, const plan::PlanFile& file, const plan::Plan& plan,
                                    const std::string& path, const Placing& placed) {
  const plan::OptimizerKind kind = file.job.training.optimizer.kind;
  const plan::OptimizerTraits& optimizer = plan::traits_of(kind);
  const bool adam = kind == plan::OptimizerKind::adamw || kind == plan::OptimizerKind::adam;
  switch (framework) {
    case Framework::megatron: {
      Handover handover{file, plan, path, "Megatron-LM", plan::megatron_settings_table(), placed};
      handover.check_common(optimizer.megatron);
      return megatron_settings(std::move(handover));
    }
    case Framework::deepspeed: {
      Handover handover{file, plan, path, "DeepSpeed", plan::deepspeed_settings_table(), placed};
      handover.check_common(optimizer.deepspeed);
      return deepspeed_settings(std::move(handover));
    }
    case Framework::torchtitan: break;
  }
  Handover handover{file, plan, path, "torchtitan", plan::torchtitan_settings_table(), placed};
  handover.check_common(adam ? optimizer.name : "");
  return torchtitan_settings(std::move(handover));
}

}  // namespace orrery::reports
