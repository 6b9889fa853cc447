/// Translates rows into plans.
#include "sim/validate/translate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>

#include "clusters/build.h"
#include "clusters/read.h"
#include "cost/parameters/habits.h"
#include "models/read/read.h"
#include "sim/validate/likeness.h"
#include "sim/validate/made_to_fit.h"
#include "sim/validate/mixture_rows.h"
#include "sim/validate/row_devices.h"
#include "sim/validate/row_family.h"
#include "sim/validate/row_words.h"
#include "sim/validate/software.h"
#include "sim/validate/software_said.h"
#include "sim/validate/translate_recommender.h"
#include "sim/validate/unstated.h"

namespace orrery::sim {

namespace {

using base::fail;
using base::Result;

constexpr std::int64_t kUsualNode = 8;  // devices

bool cuts_vocabulary(const cost::Stack& stack) {
  return cost::number_of(stack, "stack.cuts_vocabulary", 0) != 0;
}

/// Unstated properties of experts take their usual form: normalised weights, experts in every layer.
std::string experts_text(const Setup& s, std::vector<std::string>& notes) {
  const std::int64_t width = s.expert_ffn.value_or(s.ffn_hidden.value_or(4 * *s.hidden));
  if (!s.experts_per_token) notes.push_back("two experts a token");
  return fmt::format(
      "experts: {{count: {}, chosen: {}, hidden: {}, shared: {}, first_dense: {}, period: {}, "
      "normalised: true}}\n",
      *s.experts, s.experts_per_token.value_or(2), width,
      s.shared_experts.value_or(0) * s.shared_expert_ffn.value_or(width), s.first_dense.value_or(0),
      s.moe_every.value_or(1));
}

/// The experts' own mesh: split over as many ranks as the row says, otherwise whole if they are divided.
void fold_experts(const Setup& s, plan::PlanSpec& spec, std::vector<std::string>& notes) {
  spec.mesh.expert = static_cast<int>(s.expert.value_or(1));
  if (!s.experts) return;
  // Experts divided among ranks are usually whole on each (Megatron-Core's guide to mixtures of experts).
  const auto ways = static_cast<int>(s.expert_tensor.value_or(spec.mesh.expert > 1 ? 1 : 0));
  spec.mesh.expert_tensor = ways == spec.mesh.tensor ? 0 : ways;
  const bool own_rows = spec.mesh.routes_own_rows() && spec.mesh.tensor > 1;
  if (own_rows && !s.expert_tensor) notes.push_back("experts are whole on each tensor rank");
  if (own_rows && !s.sequence_parallel.value_or(false))
    notes.push_back("sequence parallelism, without which all tensor ranks would route the same rows");
  spec.mesh.sequence_parallel = spec.mesh.sequence_parallel || own_rows;
  // A framework's allocator adapts to the actual load.
  spec.tokens.bound = spec.tokens.imbalance = imbalance_of(s, notes);
  if (spec.tokens.bound == 1) notes.push_back("experts with equal numbers of tokens");
}

/// "q_proj, v_proj" and the like: if part of a product is named, the adapter is of the whole product.
models::Lora lora_of(const Setup& s, const cost::Stack& stack, std::vector<std::string>& notes) {
  const std::string& targets = s.lora_targets.empty() ? stack.usual.lora_targets : s.lora_targets;
  const auto has = [&](std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](const char* word) { return targets.find(word) != std::string::npos; });
  };
  if (s.lora_targets.empty() && !targets.empty()) notes.push_back("adapters of " + targets);
  const bool queries = has({"q_proj", "k_proj", "v_proj"});
  models::Lora out{.rank = *s.lora_rank,
                   .alpha = static_cast<double>(*s.lora_rank),
                   .qkv = queries || has({"qkv"}),
                   .projection = has({"o_proj", "linear_proj"}),
                   .up = has({"gate_proj", "up_proj", "fc1"}),
                   .down = has({"down_proj", "fc2"})};
  if (queries && !(has({"q_proj"}) && has({"k_proj"}) && has({"v_proj"}))) notes.push_back("an adapter of q, k and v");
  if (out.qkv || out.projection || out.up || out.down) return out;
  notes.push_back("adapters of all products");
  return {.rank = out.rank, .alpha = out.alpha};
}

/// A token of a packed sequence sees those before it in its own sample: half of a sample's in the mean.
std::int64_t window_of(const Setup& s, std::vector<std::string>& notes) {
  notes.push_back(fmt::format("attention within packed samples of {} tokens", *s.packed));
  return (*s.packed + 1) / 2;
}

Result<std::shared_ptr<const models::Model>> model_of(const Setup& s, const cost::Stack& stack,
                                                      const std::vector<models::Model>& catalogue,
                                                      std::vector<std::string>& notes) {
  const bool mixed = s.experts.value_or(1) > 1;
  if (s.family == "moe" && !mixed) return fail("V01", "it does not state experts");
  const auto called =
      std::find_if(catalogue.begin(), catalogue.end(), [&](const models::Model& m) { return m.name == s.catalogued; });
  const models::Model* const meant = called != catalogue.end() ? &*called : mixed ? model_meant(s, catalogue) : nullptr;
  if (meant) {
    if (s.catalogued.empty())
      notes.push_back(fmt::format("what the row leaves open about its model comes from {}", meant->name));
    models::Model model = as_row_has(*meant, s);
    if (s.lora_rank) model.lora = lora_of(s, stack, notes);
    if (s.packed && model.causal) model.window = window_of(s, notes);
    return std::make_shared<const models::Model>(as_script_runs(std::move(model), s, notes));
  }
  const FamilyWord& family = family_of(s, notes);
  std::string text = fmt::format("family: {}\nname: row\nlayers: {}\nhidden: {}\nheads: {}\nmax_sequence: {}\n{}",
                                 family.family, *s.layers, *s.hidden, *s.heads, *s.sequence, family.extra);
  if (!s.vocab) notes.push_back(fmt::format("vocabulary of {}", family.vocab));
  const std::int64_t vocab = s.vocab.value_or(family.vocab);
  text += fmt::format("vocab: {}\n", cuts_vocabulary(stack) ? vocab / *s.tensor * *s.tensor : vocab);
  if (s.tied_embeddings || family.tied)
    text += fmt::format("tied_embeddings: {}\n", s.tied_embeddings.value_or(family.tied));
  if (const std::int64_t groups = s.kv_heads.value_or(family.kv_heads); groups > 0)
    text += fmt::format("kv_heads: {}\n", copied_groups(groups, *s.tensor, notes));
  if (const std::int64_t columns = s.head_dim.value_or(family.head_dim); columns > 0 && !s.latent_kv)
    text += fmt::format("head_dim: {}\n", columns);
  if (s.ffn_hidden)
    text += fmt::format("ffn_hidden: {}\n", *s.ffn_hidden);
  else if (mixed) {
    text += fmt::format("ffn_hidden: {}\n", s.expert_ffn.value_or(4 * *s.hidden));
  } else if (std::string(family.family) == "llama") {
    // Llama's own rule: two thirds of four widths, rounded up to a multiple of 256.
    constexpr std::int64_t kMultiple = 256;
    const std::int64_t width = (8 * *s.hidden / 3 + kMultiple - 1) / kMultiple * kMultiple;
    text += fmt::format("ffn_hidden: {}\n", width);
    notes.push_back(fmt::format("MLP of {}", width));
  }
  if (mixed) text += latent_line(s) + experts_text(s, notes);
  // BertForMaskedLM predicts every token (Transformers, modeling_bert.py); its Trainer has no next sentences.
  if (std::string(family.family) == "bert" && runs_transformers(s, stack)) {
    text += "masked_fraction: 1\nnext_sentence: false\n";
    notes.push_back("every token is predicted, as Transformers does");
  }
  if (s.lora_rank) text += fmt::format("lora: {}\n", models::lora_text(lora_of(s, stack, notes)));
  if (s.packed) text += fmt::format("window: {}\n", window_of(s, notes));
  auto model = models::parse_model(text, s.id);
  if (!model) return fail("V01", model.error().front().message);
  return std::make_shared<const models::Model>(as_script_runs(std::move(*model), s, notes));
}

/// As stated: with one replica nothing is sharded, but the stage determines the software.
int zero_stage_of(const Setup& s) {
  return static_cast<int>(s.zero_stage.value_or(0));
}

/// The share of a padded sequence that the software computes (stack.token_share).
double token_share(const cost::Stack& stack, std::int64_t sequence) {
  const bool leaves_out = static_cast<double>(sequence) >= cost::number_of(stack, "stack.token_share_from", 0);
  return leaves_out ? cost::number_of(stack, "stack.token_share", 1) : 1;
}

/// "ZB-1p", "ZB-2p*", "ZB-H1", "ZB-H2" (Qi et al. 2023).
plan::ZeroBubble zero_bubble(const std::string& schedule) {
  const std::pair<const char*, plan::ZeroBubble> words[] = {{"ZB-1p", plan::ZeroBubble::h1},
                                                            {"ZB-2p", plan::ZeroBubble::limit_2p},
                                                            {"ZB-H1", plan::ZeroBubble::h1},
                                                            {"ZB-H2", plan::ZeroBubble::h2}};
  for (const auto& [word, order] : words)
    if (schedule.rfind(word, 0) == 0) return order;
  return plan::ZeroBubble::none;
}

/// The zero-bubble paper's orders; those found by search are taken as the hand-made ones with the same memory.
plan::Order order_of(const Setup& s, std::vector<std::string>& notes) {
  if (s.schedule == "ZB-V") return plan::Order::zb_v;
  if (s.schedule == "DualPipe") return plan::Order::dualpipe;
  if (s.schedule == "DualPipeV") return plan::Order::dualpipe_v;
  const plan::ZeroBubble kind = zero_bubble(s.schedule);
  if (kind == plan::ZeroBubble::none) return plan::Order::one_f_one_b;
  const plan::Order order = kind == plan::ZeroBubble::h1 ? plan::Order::zb_h1 : plan::Order::zb_h2;
  if (s.schedule.find('H') == std::string::npos)
    notes.push_back(fmt::format("{} is treated as {}", s.schedule, plan::name_of(order)));
  return order;
}

/// Sub-groups of ZeRO: as stated, or a node's ranks under PyTorch's HYBRID_SHARD. A group at least as large as the data
/// group counts as none.
int zero_group_of(const Setup& s, const plan::PlanSpec& spec, int per_node, std::vector<std::string>& notes) {
  if (spec.states.zero_stage == 0) return 0;
  const bool hybrid = s.fsdp_sharding.find("HYBRID_SHARD") != std::string::npos;
  const std::int64_t group = s.zero_group ? *s.zero_group : hybrid ? per_node / spec.mesh.tensor : 0;
  if (group <= 1 || group >= spec.mesh.replicas()) return 0;
  if (!s.zero_group)
    notes.push_back(fmt::format("{}: states partitioned among {} ranks of a node", s.fsdp_sharding, group));
  return static_cast<int>(group);
}

/// The machine with nodes of as many devices as the row's; nodes keep their switches and NICs. Trays of a rack are not
/// nodes of their own, but a rack stays whole where the row fills one (NVL72: the catalogue's uses 64 of 72).
Result<clusters::Cluster> with_nodes_of(const clusters::Cluster& machine, const Setup& s) {
  constexpr int kWholeRack = 72;
  const std::int64_t per_node = s.gpus_per_node.value_or(machine.devices_per_node);
  const bool torus = machine.shape->node.fabric == clusters::NodeFabric::torus;
  clusters::Cluster out = machine;
  if (machine.devices_per_node <= kUsualNode && !torus && per_node < machine.devices_per_node) {
    auto part = clusters::resized(machine, static_cast<int>(per_node));
    if (!part) return fail("V02", part.error().front().message);
    out = std::move(*part);
  } else if (machine.devices_per_node > kUsualNode && machine.devices_per_node < kWholeRack &&
             *s.gpus % machine.devices_per_node != 0 && *s.gpus % kWholeRack == 0) {
    clusters::NodeShape& node = out.shape->node;
    const auto grown = [&](int count) { return count * kWholeRack / machine.devices_per_node; };
    node.pcie_switches = grown(node.pcie_switches);
    node.nics = grown(node.nics);
    node.sockets = grown(node.sockets);
    out.devices_per_node = kWholeRack;
    clusters::build(out);
  }
  return out;
}

/// "JUWELS Booster" as the catalogue writes names: juwels-booster.
std::string as_name(const std::string& words) {
  std::string out = small_letters(words);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c == ' ' || c == '_'; }, '-');
  return out;
}

/// Numbers that a row's words give in place of its stack's. The rate of software that is only resembled is none: it
/// says how little is known.
std::set<std::string> numbers_said(const cost::Stack& stack, const cost::Stack& own) {
  std::set<std::string> out;
  for (const cost::Parameter& p : own.parameters)
    if (p.name != "stack.matmul_share" && std::ranges::find(stack.parameters, p) == stack.parameters.end())
      out.insert(p.name);
  if (own.memory.fragmentation != stack.memory.fragmentation) out.insert("memory.fragmentation");
  if (own.memory.stuck != stack.memory.stuck) out.insert("memory.stuck");
  return out;
}

/// "-custom-interact" if a recommendation model's run says that the interaction has a custom kernel.
const char* interaction_of(const Setup& s) {
  return s.tables.interaction.find("custom interact") != std::string::npos ? "-custom-interact" : "";
}

/// That another stack stands for the software that a row names, by `stack` or else by `framework`.
std::string treated_as(const Setup& s, const cost::Stack& stack) {
  if (s.stack.empty() && s.framework.empty()) return fmt::format("no software is named: treated as {}", stack.name);
  return fmt::format("{} '{}' is treated as {}{}", s.stack.empty() ? "framework" : "stack",
                     s.stack.empty() ? s.framework : s.stack, stack.name,
                     stack.generic && !stack.fitted ? ": no stack of this name is known" : "");
}

}  // namespace

Translator::Translator(Library library) : library_(std::move(library)) {}

const cost::Stack* Translator::stack_named(const std::string& name) const {
  const auto found = std::find_if(library_.stacks.begin(), library_.stacks.end(),
                                  [&](const cost::Stack& stack) { return stack.name == name; });
  return found == library_.stacks.end() ? nullptr : &*found;
}

const cost::Stack* Translator::stack_of_family(const std::string& name) const {
  if (name.empty()) return nullptr;
  const Version wanted = version_of(name);
  const cost::Stack* best = nullptr;
  const auto distance = [&](const cost::Stack& stack) {
    constexpr std::int64_t kToday = 2024;  // the year assumed for a name without one
    const auto dated = [](const Version& version) { return version.year == 0 ? kToday : version.year; };
    return std::abs(dated(version_of(stack.name)) - dated(wanted));
  };
  const auto rank = [&](const cost::Stack& stack) { return std::pair(distance(stack), stack.name.size()); };
  for (const cost::Stack& stack : library_.stacks)
    if (version_of(stack.name).family == wanted.family && (!best || rank(stack) < rank(*best))) best = &stack;
  if (best) return best;
  // "megatron-kwai" is a fork of megatron, "deepspeed-hf-peft" what runs on deepspeed.
  const std::size_t dash = wanted.family.rfind('-');
  return dash == std::string::npos ? nullptr : stack_of_family(wanted.family.substr(0, dash));
}

/// The stack whose prices the row's plan takes: chosen as `orrery plan` does for a job (cost::Stacks).
const cost::Stack* Translator::standing_for(const cost::Stack& named, bool stands_in, const Setup& s,
                                            const clusters::Cluster& cluster, std::vector<std::string>& notes) const {
  if (library_.for_all) return &named;
  const cost::Stacks stacks(named, [&](const std::string& name) { return stack_named(name); });
  // Measured layers within a node are from one version of the software.
  const bool several = stands_in || cluster.size() > cluster.devices_per_node;
  const std::string& chosen = stacks.all()[stacks.place_of(zero_stage_of(s), several)].name;
  const cost::Stack* out = chosen == named.name ? &named : stack_named(chosen);
  if (!out) out = &named;
  if (out->name != s.stack && !(library_.stand_in && out == &*library_.stand_in)) notes.push_back(treated_as(s, *out));
  return out;
}

std::pair<const cost::Stack*, bool> Translator::stack_of(const Setup& s, std::vector<std::string>& notes) const {
  if (library_.stand_in && (library_.for_all || !stack_named(s.stack))) {
    if (!library_.for_all) notes.push_back(treated_as(s, *library_.stand_in));
    return {&*library_.stand_in, false};
  }
  // A name without a year is of the run's, if the row says that.
  const std::int64_t year = version_of(s.stack).year == 0 ? year_of(s) : 0;
  const cost::Stack* best =
      year > 0 && !s.stack.empty() ? stack_of_family(fmt::format("{}-{}", s.stack, year)) : nullptr;
  if (!best) best = stack_named(s.stack);
  // A fork stands in as its origin does, whether the row has a date or not.
  const bool stands_in = !best || version_of(best->name).family != version_of(s.stack).family;
  if (!best && !s.stack.empty()) best = stack_of_family(s.stack);
  if (!best && s.family != kRecommender) best = stack_of_family(software_of(s));
  if (!best) best = stack_named(generic_of(s));
  if (best)
    for (const std::string& more : {std::string(interaction_of(s)), release_of(s.framework)})
      if (const cost::Stack* variant = more.empty() ? nullptr : stack_named(best->name + more)) best = variant;
  if (const cost::Stack* core = best && is_core(best->name, year_of(s)) ? stack_named("megatron-core") : nullptr)
    best = core;
  if (best && best->name == cost::kTransformers && replaces_operators(s)) return {stack_named(generic_of(s)), true};
  return {best, stands_in};
}

Result<std::shared_ptr<const clusters::Cluster>> Translator::cluster_of(const Setup& s,
                                                                        std::vector<std::string>& notes) {
  const std::int64_t per_node = s.gpus_per_node.value_or(kUsualNode);
  if (library_.machine) return sized_cluster(*library_.machine, s, notes);
  if (!s.cluster.empty()) {
    for (const clusters::Cluster& c : library_.clusters)
      if (c.name == s.cluster) return sized_cluster(c, s, notes);
    return fail("V02", fmt::format("no cluster of the catalogue is called '{}'", s.cluster));
  }
  for (const clusters::Cluster& c : library_.clusters)
    if (!s.machine.empty() && c.shape && c.name == as_name(s.machine)) {
      notes.push_back(fmt::format("the catalogue's {}", c.name));
      return sized_cluster(c, s, notes);
    }
  // Prefers the most similar device, and of several that are, one in nodes of the row's size if that is more than the
  // usual eight (a DGX-2's, as nodes cannot be grown), then the one in most machines; then the closest number of
  // devices per node, then the network that the row names, then the smallest cluster, then the first by name.
  const auto alike = [&](const clusters::Cluster& c) { return likeness(s.gpu_type, c.device().name, s.gpu_gb); };
  std::map<std::string, int> machines;
  for (const clusters::Cluster& c : library_.clusters) machines[c.device().name] -= 1;
  const clusters::Cluster* base = nullptr;
  const std::string stated = network_of(s.inter_node_link);
  const std::string network = stated.empty() ? "infiniband" : stated;  // the usual one in such clusters
  const auto rank = [&](const clusters::Cluster& c) {
    const Likeness like = alike(c);
    return std::tuple(-like.model, -like.words, !like.form, -like.memory_apart, -like.prefix,
                      per_node > kUsualNode && c.devices_per_node != per_node, machines.at(c.device().name),
                      std::abs(c.devices_per_node - per_node), c.shape->network.kind != network, std::int64_t{c.nodes});
  };
  for (const clusters::Cluster& c : library_.clusters)
    if (c.shape && c.device().kind != clusters::DeviceKind::cpu && (!base || rank(c) < rank(*base))) base = &c;
  if (!base || alike(*base).model == 0)
    return fail("V02",
                fmt::format("no device like '{}' is in the catalogue; describe it in a cluster file (docs/formats.md), "
                            "put that in the catalogue's folder and name it: `catalog_cluster`",
                            s.gpu_type));
  if (base->device().name != s.gpu_type)
    notes.push_back(fmt::format("device '{}' is treated as {}", s.gpu_type, base->device().name));
  auto machine = with_nodes_of(*base, s);
  if (!machine) return fail(machine.error());
  if (machine->devices_per_node != per_node) notes.push_back(fmt::format("nodes of {}", machine->devices_per_node));
  if (*s.gpus > per_node && stated.empty())
    notes.push_back(fmt::format("the network of {} ({})", base->name, base->shape->network.kind));
  else if (*s.gpus > per_node && base->shape->network.kind != stated)
    notes.push_back(
        fmt::format("a network of {} is treated as {} ({})", stated, base->shape->network.kind, base->name));
  return sized_cluster(*machine, s, notes);
}

Result<std::shared_ptr<const clusters::Cluster>> Translator::sized_cluster(const clusters::Cluster& machine,
                                                                           const Setup& s,
                                                                           std::vector<std::string>& notes) {
  clusters::Cluster cluster = machine;
  if (!library_.machine) {  // a file of the user's says itself what its devices have
    take_memory(s, cluster, notes);
    if (const auto why_not = take_power(s, cluster, notes)) return fail("V02", *why_not);
  }
  const clusters::Device& device = cluster.device();
  const std::string key = fmt::format("{} {} {} {} {} {}", machine.name, machine.devices_per_node, device.memory.value,
                                      device.power.value, *s.gpus, s.inter_node_gbps.value_or(0));
  if (const auto found = made_clusters_.find(key); found != made_clusters_.end()) return found->second;
  if (s.inter_node_gbps && cluster.shape && cluster.shape->node.nics > 0) {
    constexpr double kBytesPerGigabit = 1e9 / 8;
    // In a rack, whose trays rows call nodes, each device has a tray's share.
    const double trays = machine.devices_per_node > kUsualNode
                             ? static_cast<double>(machine.devices_per_node) /
                                   static_cast<double>(s.gpus_per_node.value_or(machine.devices_per_node))
                             : 1;
    cluster.shape->node.nic_bandwidth =
        base::BytesPerSecond{trays * *s.inter_node_gbps * kBytesPerGigabit / cluster.shape->node.nics};
    clusters::build(cluster);
  }
  if (*s.gpus > std::int64_t{1} << 20) return fail("V02", fmt::format("{} GPUs", *s.gpus));
  auto sized = clusters::resized(cluster, static_cast<int>(*s.gpus));
  if (!sized) return fail("V02", sized.error().front().message);
  return made_clusters_[key] = std::make_shared<const clusters::Cluster>(std::move(*sized));
}

std::shared_ptr<const cost::Pricing> Translator::priced(const std::shared_ptr<const clusters::Cluster>& cluster,
                                                        cost::Stack own, const std::string& variant) {
  const std::string key = fmt::format("{} {} {}", static_cast<const void*>(cluster.get()), own.name, variant);
  std::shared_ptr<const cost::Pricing>& pricing = made_prices_[key];
  if (!pricing) pricing = std::make_shared<const cost::Pricing>(cluster, std::move(own), library_.calibrations);
  return pricing;
}

/// In gigabytes, the memory of the same device in its larger size, if the row leaves the size open and its run does not
/// fit the smaller one.
std::optional<std::int64_t> Translator::larger_memory(const Setup& s, const Subject& subject) const {
  const clusters::Device& device = subject.pricing->cluster().device();
  if (s.gpu_gb || device_words(s.gpu_type).gb || !s.cluster.empty() || library_.machine) return std::nullopt;
  const DeviceWords meant = device_words(device.name);
  constexpr std::int64_t kLeast = 3, kOf = 2;  // half as large again: another size, not another count of the same
  std::optional<std::int64_t> larger;
  for (const clusters::Cluster& c : library_.clusters) {
    const DeviceWords other = device_words(c.device().name);
    const bool same = std::tie(other.letters, other.number, other.suffix, other.form, other.others) ==
                      std::tie(meant.letters, meant.number, meant.suffix, meant.form, meant.others);
    if (same && meant.gb && other.gb && kOf * *other.gb >= kLeast * *meant.gb)
      larger = std::max(*other.gb, larger.value_or(0));
  }
  if (!larger || !outgrows(subject)) return std::nullopt;
  return larger;
}

Setup Translator::completed(const Setup& row) const {
  Setup out = row;
  if (row.family != kRecommender) take_shape(out, library_.models);
  return out;
}

Result<Subject> Translator::translate(const Setup& row) {
  Setup given = completed(row);
  if (const std::string why = unscorable(given); !why.empty()) return fail("V01", why);
  if (given.family == kRecommender) return translate_tables(given);
  const Setup open = given;
  auto subject = translate_halving(given);
  if (!subject) return subject;
  const auto translate_other = [&](const Setup& other) { return translate_as_stated(other); };
  Setup stated = given;
  if (const auto larger = given.kind == "training" ? larger_memory(given, *subject) : std::nullopt) {
    stated = open;
    stated.gpu_gb = larger;
    if (auto other = translate_halving(stated)) {
      other->notes.push_back(fmt::format("the run ran, but does not fit {}, whose memory the row leaves open",
                                         subject->pricing->cluster().device().name));
      subject = std::move(other);
    }
  }
  subject->smallest = needing_least(stated, *subject, translate_other);
  if (given.kind != "training") return subject;
  subject->fitting = made_to_fit(stated, *subject, translate_other);
  if (subject->fitting) subject->notes.push_back(subject->fitting->notes.back());
  return subject;
}

Result<Subject> Translator::translate_halving(Setup& given) {
  // A compiler recomputes what does not fit. The micro-batch of a run that died is not halved: it was too large.
  const auto needs_less = [&](const Subject& one) {
    return given.kind == "training" && cost::number_of(one.pricing->stack(), "stack.rematerializes", 0) == 0 &&
           outgrows(one);
  };
  auto subject = translate_as_stated(given);
  while (subject && given.open_micro_batch && *given.micro_batch % 2 == 0 && needs_less(*subject)) {
    given.micro_batch = *given.micro_batch / 2;
    subject = translate_as_stated(given);
  }
  if (!given.open_micro_batch) return subject;
  given.assumed.push_back(fmt::format("filled in: micro-batches of {}", *given.micro_batch));
  if (subject) subject->notes.push_back(given.assumed.back());
  return subject;
}

Result<Subject> Translator::translate_as_stated(const Setup& given) {
  std::vector<std::string> notes = given.assumed;
  Setup s = given;
  if (s.experts) take_recipe(s, notes);
  take_recomputation(s, notes);
  const auto [named, stands_in] = stack_of(s, notes);
  if (!named) return fail("V01", "there is no stack to treat it as");
  if (const auto usual = usual_zero_stage(s)) {
    s.zero_stage = usual->stage;
    notes.push_back(fmt::format("ZeRO {}, {}", usual->stage, usual->source));
  }
  auto cluster = cluster_of(s, notes);
  if (!cluster) return fail(cluster.error());
  const cost::Stack* stack = standing_for(*named, stands_in, s, **cluster, notes);
  auto model = model_of(s, *stack, library_.models, notes);
  if (!model) return fail(model.error());
  const models::DType precision = precision_of(s, (*cluster)->device(), notes);

  plan::PlanSpec spec;
  const auto degree = [](const std::optional<std::int64_t>& value) { return static_cast<int>(value.value_or(1)); };
  spec.mesh.data = degree(s.data);
  spec.mesh.tensor = degree(s.tensor);
  spec.mesh.pipeline = degree(s.pipeline);
  spec.mesh.context = degree(s.context);
  spec.stages.virtual_stages = degree(s.virtual_stages);
  if (s.interleaved.value_or(false) && !s.virtual_stages && spec.mesh.pipeline > 1) {
    constexpr std::int64_t kChunk = 2;  // layers: small chunks, as interleaving favours, but not single layers
    const std::int64_t per_stage = *s.layers / spec.mesh.pipeline;
    if (*s.layers % spec.mesh.pipeline == 0 && per_stage % kChunk == 0 && per_stage > kChunk) {
      spec.stages.virtual_stages = static_cast<int>(per_stage / kChunk);
      notes.push_back(fmt::format("interleaved: {} chunks of {} layers", spec.stages.virtual_stages, kChunk));
    }
  }
  if (spec.mesh.pipeline > 1) spec.stages.order = order_of(s, notes);
  // Stages that divide the layers only with embedding and head counted as one each: BLOOM's and zero bubbles' runs.
  const std::int64_t chunks = *s.pipeline * spec.stages.virtual_stages;
  spec.stages.ends_as_layers = *s.layers % chunks != 0 && (*s.layers + 2) % chunks == 0;
  spec.shape.micro_batch = *s.micro_batch;
  spec.shape.batch = *s.batch;
  spec.shape.sequence =
      std::max<std::int64_t>(1, std::llround(token_share(*stack, *s.sequence) * static_cast<double>(*s.sequence)));
  spec.numerics.precision = precision;
  spec.numerics.flash = s.flash_attention.value_or(stack->attends_fused((*cluster)->device()) &&
                                                   !(stack->generic && precedes_fused_attention(s)));
  if (const bool wide = precision == models::DType::fp32 || precision == models::DType::tf32;
      spec.numerics.flash && wide) {
    spec.numerics.flash = false;
    notes.push_back("FlashAttention and cuDNN's kernels are of 16 bits and fewer: attention is not fused");
  }
  spec.states.overlap_gradients =
      stack->reduces_early(zero_stage_of(s)) || small_letters(s.overlap).find("gradient") != std::string::npos;
  spec.states.zero_stage = spec.mesh.replicas() > 1 ? zero_stage_of(s) : 0;
  spec.states.zero_group = zero_group_of(s, spec, (*cluster)->devices_per_node, notes);
  spec.recomputation.what = s.recompute == "full"        ? plan::Recompute::full
                            : s.recompute == "selective" ? plan::Recompute::selective
                                                         : plan::Recompute::none;
  if (s.recompute == "selective" && cost::number_of(*stack, "stack.selective_operators", 0) != 0 &&
      s.recompute_modules.find("(layer)") != std::string::npos) {
    spec.recomputation.what = plan::Recompute::full;
    spec.recomputation.layers = (*s.layers / spec.mesh.pipeline + 1) / 2;
    notes.push_back("every second layer recomputed");
  }
  if (s.recompute == "partial") {
    spec.recomputation.what = plan::Recompute::full;
    const auto stages = static_cast<std::int64_t>(spec.mesh.pipeline);
    const auto stated = recomputed_layers(s);
    spec.recomputation.layers = stated ? (*stated + stages - 1) / stages : (*s.layers / stages + 1) / 2;
    if (!stated) notes.push_back("partial recomputation: half of the layers");
  }
  if (cost::number_of(*stack, "stack.recomputes", 1) == 0 && spec.recomputation.what != plan::Recompute::none) {
    spec.recomputation.what = plan::Recompute::none;
    notes.push_back("nothing is recomputed");
  }
  spec.states.optimizer = optimizer_of(s.optimizer);
  if (spec.recomputation.what == plan::Recompute::selective) spec.recomputation.modules = modules_of(s, **model);
  if (cuts_vocabulary(*stack)) spec.numerics.vocab_multiple = 1;
  spec.mesh.sequence_parallel = spec.mesh.tensor > 1 && s.sequence_parallel.value_or(false);
  take_practice(s, *stack, spec, notes);
  fold_experts(s, spec, notes);
  spec.offload = {space_of(s.offload_activations), space_of(s.offload_optimizer), space_of(s.offload_parameters), 1};
  spec.numerics.loss_chunks = loss_chunks_of(s, spec.tokens_per_rank() * spec.shape.micro_batch);
  auto plan = plan::make_plan(*model, *cluster, spec);
  if (!plan && spec.states.optimizer != plan::OptimizerKind::adamw) {
    notes.push_back(fmt::format("the update of '{}' is priced as AdamW's, as it does not go with this plan: {}",
                                s.optimizer, plan.error().front().message));
    spec.states.optimizer = plan::OptimizerKind::adamw;
    plan = plan::make_plan(*model, *cluster, spec);
  }
  if (!plan) return fail(plan.error());
  const cost::FindStack find = [&](const std::string& name) { return stack_named(name); };
  plan::Software software = cost::known_words(*stack, software_said(s, *stack, spec, stands_in, notes), find);
  const auto pricing = priced(*cluster, cost::as_run(*stack, software, find), plan::software_text(software));
  const cost::MemoryQuestion memory{cost::memory_kind(s.memory_kind, stack->memory.reported), zero_bubble(s.schedule)};
  std::set<std::string> stated = numbers_said(*stack, pricing->stack());
  return Subject{*model, pricing,           std::move(*plan),   memory, stands_in, std::move(notes), {},
                 {},     std::move(stated), std::move(software)};
}

}  // namespace orrery::sim
