// Keys and defaults of each optimizer.
#include "plan/spec/job_optimizer.h"

#include <fmt/format.h>

#include "plan/spec/plan.h"
#include "plan/spec/words.h"

namespace orrery::plan {
namespace {

constexpr double kBelowOne = 1 - 1e-12;
constexpr double kAboveZero = 1e-30;

Optimizer defaults(OptimizerKind kind) {
  const OptimizerTraits& traits = traits_of(kind);
  Optimizer o;
  o.kind = kind;
  o.learning_rate = traits.learning_rate;
  o.beta1 = traits.beta1;
  o.beta2 = traits.beta2;
  o.epsilon = traits.epsilon_value;
  o.weight_decay = traits.weight_decay;
  constexpr double kMomentumOfMuon = 0.95;
  if (kind == OptimizerKind::muon) o.momentum = kMomentumOfMuon;
  return o;
}

// Keys of what Muon leaves to AdamW; a missing key takes Muon's own value.
void read_adamw(const base::Cursor& at, Optimizer& o) {
  o.adamw_learning_rate = at.optional("learning_rate").number(0, 1e3, o.learning_rate);
  o.beta1 = at.optional("beta1").number(0, kBelowOne, o.beta1);
  o.beta2 = at.optional("beta2").number(0, kBelowOne, o.beta2);
  o.epsilon = at.optional("epsilon").number(kAboveZero, 1, o.epsilon);
  o.adamw_weight_decay = at.optional("weight_decay").number(0, 1e3, o.weight_decay);
}

}  // namespace

Optimizer read_optimizer(const base::Cursor& at) {
  Optimizer o = defaults(choose(at.optional("name"), kOptimizerWords, OptimizerKind::adamw));
  o.learning_rate = at.optional("learning_rate").number(0, 1e3, o.learning_rate);
  if (traits_of(o.kind).betas) {
    o.beta1 = at.optional("beta1").number(0, kBelowOne, o.beta1);
    o.beta2 = at.optional("beta2").number(0, kBelowOne, o.beta2);
  }
  if (traits_of(o.kind).epsilon) o.epsilon = at.optional("epsilon").number(kAboveZero, 1, o.epsilon);
  const base::Cursor decay = at.optional("weight_decay");
  o.weight_decay = decay.number(0, 1e3, o.weight_decay);
  if (o.kind == OptimizerKind::adam && o.weight_decay != 0)
    decay.error("E0121", "adam has no weight decay; adamw has decoupled weight decay", "name: adamw");
  if (o.kind == OptimizerKind::sgd) {
    o.momentum = at.optional("momentum").number(0, kBelowOne, o.momentum);
    const base::Cursor nesterov = at.optional("nesterov");
    o.nesterov = nesterov.boolean(o.nesterov);
    if (o.nesterov && o.momentum == 0)
      nesterov.error("E0121", "nesterov looks ahead along the momentum, but that is 0", "give a momentum, say 0.9");
  }
  if (o.kind == OptimizerKind::muon) {
    o.momentum = at.optional("momentum").number(0, kBelowOne, o.momentum);
    read_adamw(at.optional("adamw"), o);
  }
  if (o.kind == OptimizerKind::adafactor) {
    o.adaptive = at.optional("adaptive").boolean(o.adaptive);
    o.clip_update = at.optional("clip_update").number(kAboveZero, 1e30, o.clip_update);
    o.decay_power = at.optional("decay_power").number(kAboveZero, 1, o.decay_power);
  }
  return o;
}

std::vector<std::pair<std::string, std::string>> optimizer_lines(const Optimizer& o) {
  std::vector<std::pair<std::string, std::string>> out;
  const auto line = [&](const char* key, const auto& value) { out.emplace_back(key, fmt::format("{}", value)); };
  line("name", name_of(o.kind));
  line("learning_rate", o.learning_rate);
  if (traits_of(o.kind).betas) {
    line("beta1", o.beta1);
    line("beta2", o.beta2);
  }
  if (traits_of(o.kind).epsilon) line("epsilon", o.epsilon);
  line("weight_decay", o.weight_decay);
  if (o.kind == OptimizerKind::sgd) {
    line("momentum", o.momentum);
    line("nesterov", o.nesterov);
  }
  if (o.kind == OptimizerKind::adafactor) {
    line("adaptive", o.adaptive);
    line("clip_update", o.clip_update);
    line("decay_power", o.decay_power);
  }
  if (o.kind == OptimizerKind::muon) {
    line("momentum", o.momentum);
    line("adamw", fmt::format("{{learning_rate: {}, beta1: {}, beta2: {}, epsilon: {}, weight_decay: {}}}",
                              o.adamw_learning_rate, o.beta1, o.beta2, o.epsilon, o.adamw_weight_decay));
  }
  return out;
}

void take_optimizer(PlanSpec& spec, const Training& training) {
  spec.states.optimizer = training.optimizer.kind;
  spec.states.momentum = training.optimizer.kind != OptimizerKind::sgd || training.optimizer.momentum > 0;
}

const char* name_of(OptimizerKind kind) {
  return traits_of(kind).name;
}
const char* name_of(Rounding rounding) {
  return kRoundingWords[static_cast<std::size_t>(rounding)].c_str();
}

}  // namespace orrery::plan
