#pragma once
/// Small mixtures of experts of every kind, and what they come to on one rank.
#include <map>
#include <string>

#include "tests/exec/mixtures.h"

namespace orrery::exec::testing {

struct Mixture {
  const char* name;
  void (*set)(models::Model&);
};

inline Trial mixture_trial(const Mixture& mixture) {
  Trial trial = golden_trial("cosine_clipped");
  trial.training.initial_weights.clear();
  models::Model& m = trial.model;
  m.layers = 4;
  m.normalisation = models::Normalisation::rms_norm;
  m.activation = models::Activation::swiglu;
  m.positions = models::Positions::rope;
  m.bias = false;
  m.tied_embeddings = false;
  m.initial_stddev = 0.2;  // routers that prefer some experts
  m.experts = {.count = 8, .chosen = 2, .hidden = 24, .normalised = true};
  mixture.set(m);
  trial.spec.shape.batch = 8;
  trial.spec.shape.micro_batch = 2;
  trial.spec.stages.order = plan::Order::gpipe;
  trial.steps = 20;
  return trial;
}

inline const Mixture kMixtures[] = {
    {"top_2", [](models::Model&) {}},
    {"top_1_switch",
     [](models::Model& m) {
       m.experts.chosen = 1;
       m.experts.normalised = false;
       m.experts.period = 2;
       m.activation = models::Activation::relu;
     }},
    {"top_8_of_16_balanced",
     [](models::Model& m) {
       m.experts.count = 16;
       m.experts.chosen = 8;
       m.experts.hidden = 8;
       m.experts.aux_coefficient = 0.02;
       m.experts.z_coefficient = 0.01;
     }},
    {"shared_with_a_gate",
     [](models::Model& m) {
       m.experts.shared = 16;
       m.experts.shared_gate = true;
       m.experts.normalised = false;
     }},
    {"sigmoid_in_groups",
     [](models::Model& m) {
       m.experts.scores = models::Scores::sigmoid;
       m.experts.groups = 4;
       m.experts.groups_chosen = 2;
       m.experts.weight_scale = 2.5;
       m.experts.balance_bias = true;
       m.experts.bias_rate = 0.01;
       m.initial_stddev = 0.3;  // no choice of these runs is so near a tie that rounding decides it
       m.experts.first_dense = 1;
       m.experts.shared = 16;
     }},
    {"narrow_copies",
     [](models::Model& m) {
       m.experts.narrow = 20;
       m.experts.shared = 16;
       m.experts.scores = models::Scores::sigmoid;
       m.experts.weight_scale = 2.5;
     }},
    {"dropping",
     [](models::Model& m) {
       m.experts.capacity_factor = 1;
       m.experts.aux_coefficient = 0.01;
     }},
    {"weights_on_inputs",
     [](models::Model& m) {
       m.experts.scales_input = true;
       m.experts.chosen = 1;
       m.experts.scores = models::Scores::sigmoid;
       m.experts.normalised = false;
       m.experts.shared = 16;
     }},
    {"gpt_oss",
     [](models::Model& m) {
       m.activation = models::Activation::clamped_swiglu;
       m.bias = m.attention_sinks = true;
       m.experts.scores = models::Scores::softmax_chosen;
       m.experts.router_bias = m.experts.expert_bias = true;
     }},
};

inline const Outcome& serial_mixture(const Mixture& mixture) {
  static std::map<std::string, Outcome> known;
  auto found = known.find(mixture.name);
  if (found == known.end()) found = known.emplace(mixture.name, train(mixture_trial(mixture))).first;
  return found->second;
}

}  // namespace orrery::exec::testing
