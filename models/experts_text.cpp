// Experts and latent attention in a model's file: reads them, checks relations between their numbers, writes them.
#include "models/experts_text.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "models/limits.h"
#include "models/synonyms.h"

namespace orrery::models {
namespace {

using base::Cursor;

// In the enumeration's order.
const std::vector<std::string> kScores = {"softmax", "softmax_chosen", "sigmoid", "sparse_mixer", "sqrt_softplus"};
constexpr double kMostFactor = 1e6;

/// Each key with its member: whole numbers, numbers and switches.
struct Whole {
  const char* key;
  std::int64_t Experts::*of;
  std::int64_t least, most;
};
constexpr Whole kWhole[] = {
    {"chosen", &Experts::chosen, 1, kMostExperts}, {"narrow", &Experts::narrow, 0, kMostWidth},
    {"shared", &Experts::shared, 0, kMostWidth},   {"first_dense", &Experts::first_dense, 0, kMostLayers},
    {"period", &Experts::period, 1, kMostLayers},  {"hashed", &Experts::hashed, 0, kMostLayers},
    {"groups", &Experts::groups, 1, kMostExperts}, {"groups_chosen", &Experts::groups_chosen, 1, kMostExperts}};
struct Real {
  const char* key;
  double Experts::*of;
};
constexpr Real kReal[] = {{"weight_scale", &Experts::weight_scale},   {"limit", &Experts::limit},
                          {"bias_rate", &Experts::bias_rate},         {"aux_coefficient", &Experts::aux_coefficient},
                          {"z_coefficient", &Experts::z_coefficient}, {"capacity_factor", &Experts::capacity_factor}};
struct Switch {
  const char* key;
  bool Experts::*of;
};
constexpr Switch kSwitches[] = {
    {"shared_gate", &Experts::shared_gate},        {"normalised", &Experts::normalised},
    {"scales_input", &Experts::scales_input},      {"groups_by_two", &Experts::groups_by_two},
    {"balance_bias", &Experts::balance_bias},      {"router_bias", &Experts::router_bias},
    {"expert_bias", &Experts::expert_bias},        {"beside", &Experts::beside},
    {"own_router_norm", &Experts::own_router_norm}};

}  // namespace

Experts read_experts(const Cursor& at, const Model& model) {
  Experts e = model.experts;
  if (!at.is_map()) {
    at.error("E0105", "`experts` is a map of sizes", "experts: {count: 8, chosen: 2}");
    return e;
  }
  name_keys(at, "experts");
  e.count = needed(at, "experts", "count").integer(1, kMostExperts, 1);
  e.hidden = at.optional("hidden").integer(1, kMostWidth, model.ffn_hidden);
  e.scores = static_cast<Scores>(at.optional("scores").choice(kScores, static_cast<int>(e.scores)));
  for (const Whole& one : kWhole) e.*one.of = at.optional(one.key).integer(one.least, one.most, e.*one.of);
  for (const Real& one : kReal) e.*one.of = at.optional(one.key).number(0, kMostFactor, e.*one.of);
  for (const Switch& one : kSwitches) e.*one.of = at.optional(one.key).boolean(e.*one.of);
  return e;
}

LatentAttention read_latent(const Cursor& at) {
  LatentAttention latent;
  if (!at.is_map()) {
    at.error("E0105", "`latent_attention` is a map of sizes",
             "latent_attention: {q_rank: 1536, kv_rank: 512, nope: 128, rope: 64, value: 128}");
    return latent;
  }
  latent.q_rank = at.optional("q_rank").integer(0, kMostWidth, 0);
  latent.kv_rank = at.at("kv_rank").integer(1, kMostWidth, 1);
  latent.nope = at.at("nope").integer(1, kMostWidth, 1);
  latent.rope = at.at("rope").integer(2, kMostWidth, 2);
  latent.value = at.at("value").integer(1, kMostWidth, 1);
  return latent;
}

CompressedAttention read_compressed(const Cursor& at) {
  CompressedAttention a;
  if (!at.is_map()) {
    at.error("E0105", "`compressed_attention` is a map of sizes",
             "compressed_attention: {q_rank: 1024, rope: 64, window: 128, short_run: 4, long_run: 128, out_groups: 8, "
             "out_rank: 1024, theta: 160000}");
    return a;
  }
  a.q_rank = at.at("q_rank").integer(1, kMostWidth, 1);
  a.rope = at.at("rope").integer(2, kMostWidth, 2);
  a.window = at.at("window").integer(1, kMostSequence, 1);
  a.short_run = at.at("short_run").integer(2, kMostSequence, 2);
  a.long_run = at.at("long_run").integer(2, kMostSequence, 2);
  a.out_groups = at.at("out_groups").integer(1, kMostWidth, 1);
  a.out_rank = at.at("out_rank").integer(1, kMostWidth, 1);
  a.theta = at.at("theta").number(1, 1e12, 1);
  return a;
}

std::string compressed_text(const CompressedAttention& a, const std::string& margin) {
  if (!a.any()) return {};
  return fmt::format(
      "{}compressed_attention: {{q_rank: {}, rope: {}, window: {}, short_run: {}, long_run: {}, out_groups: {}, "
      "out_rank: {}, theta: {}}}\n",
      margin, a.q_rank, a.rope, a.window, a.short_run, a.long_run, a.out_groups, a.out_rank, a.theta);
}

Indexer read_indexer(const Cursor& at) {
  Indexer indexer;
  if (!at.is_map()) {
    at.error("E0105", "`indexer` is a map of sizes", "indexer: {heads: 64, width: 128, chosen: 2048}");
    return indexer;
  }
  indexer.heads = at.at("heads").integer(1, kMostWidth, 1);
  indexer.width = at.at("width").integer(1, kMostWidth, 1);
  indexer.chosen = at.at("chosen").integer(1, kMostSequence, 1);
  indexer.every = at.optional("every").integer(1, kMostLayers, 1);
  indexer.first = at.optional("first").integer(0, kMostLayers, 0);
  indexer.block = at.optional("block").integer(0, kMostSequence, 0);
  indexer.after = at.optional("after").integer(0, kMostLayers, 0);
  return indexer;
}

void check_experts(const Cursor& root, const Model& m) {
  const Experts& e = m.experts;
  if (!e.any()) return;
  bool sound = true;
  const auto needs = [&](const char* key, bool holds, const std::string& message, const std::string& help) {
    if (holds) return;
    place_of(root, "experts", key).error("E0112", message, help);
    sound = false;
  };
  needs("chosen", e.chosen <= e.count, fmt::format("a token takes {} of {} experts", e.chosen, e.count),
        fmt::format("use chosen: {}, or more experts", e.count));
  needs("groups", e.count % e.groups == 0, fmt::format("{} experts do not divide into {} groups", e.count, e.groups),
        "make all groups equally large");
  needs("groups_chosen", e.groups_chosen <= e.groups,
        fmt::format("a token takes experts of {} of {} groups", e.groups_chosen, e.groups),
        fmt::format("use groups_chosen: {}, or more groups", e.groups));
  if (sound) {
    const std::int64_t reach = e.groups_chosen * (e.count / e.groups);
    needs("groups_chosen", e.groups == 1 || e.chosen <= reach,
          fmt::format("a token takes {} experts, but {} groups have {}", e.chosen, e.groups_chosen, reach),
          fmt::format("use groups_chosen: {}, or fewer chosen experts", (e.chosen * e.groups + e.count - 1) / e.count));
  }
  needs("first_dense", e.first_dense < m.layers,
        fmt::format("the first {} layers have no experts, but there are only {}", e.first_dense, m.layers),
        "use fewer, or leave `experts` out");
  needs("period", e.first_dense >= m.layers || e.layers_of(m.layers) > 0,
        fmt::format("none of {} layers has experts: only the last of every {} has, and none of the first {}", m.layers,
                    e.period, e.first_dense),
        "use a shorter period, or leave `experts` out");
  needs("shared_gate", !e.shared_gate || e.shared > 0, "a gate for shared experts, but there are none",
        "give `shared` their width, or use shared_gate: false");
  needs("bias_rate", e.bias_rate == 0 || e.balance_bias, "a rate for a bias that does not exist",
        "balance_bias: true, or bias_rate: 0");
  const double room = e.capacity_factor * static_cast<double>(e.chosen) * static_cast<double>(m.max_sequence) /
                      static_cast<double>(e.count);
  needs("capacity_factor", e.capacity_factor == 0 || room >= 1,
        fmt::format("an expert takes {:.2g} tokens of a sequence of {}: less than one", room, m.max_sequence),
        fmt::format("use capacity_factor: {} or more, or 0, which drops no token",
                    std::ceil(100 * e.capacity_factor / (room > 0 ? room : 1)) / 100));
  needs("narrow", e.narrow == 0 || !e.scales_input, "weights that scale what experts read cannot scale a copy of it",
        "narrow: 0, or scales_input: false");
  needs("beside",
        !e.beside || (m.output_norm && m.input_norm && !m.parallel && e.shared == 0 && m.pattern.empty() && !m.bias),
        "an MLP stands beside experts between norms before and after it, where no expert is shared",
        "output_norm: true and shared: 0, without pattern and bias; or beside: false");
  needs("own_router_norm", !e.own_router_norm || (e.beside && !e.scales_input && e.narrow == 0),
        "a router has a norm of its own where experts stand beside an MLP, and weights scale what experts make",
        "beside: true; or own_router_norm: false");
  needs("", m.pre_norm, "layers with experts must normalise first", "pre_norm: true, or leave `experts` out");
  const double all = static_cast<double>(e.count) * static_cast<double>(e.hidden) *
                     static_cast<double>(e.columns(m.hidden)) * 3 * static_cast<double>(m.layers);
  needs("count", all <= kMostParameters, fmt::format("experts have {:.2g} parameters, more than can be counted", all),
        "use fewer or narrower experts");
}

void check_latent(const Cursor& root, Model& m) {
  if (m.indexer.any() && !m.compressed.any() &&
      (m.indexer.block > 0 ? m.latent.any() : m.latent.q_rank == 0 || !m.latent.any()))
    place_of(root, "", "indexer")
        .error("E0112",
               "an indexer's queries come from latent attention's narrow vector for queries, but of blocks of tokens "
               "from the token",
               "latent_attention with q_rank, or `block` without latent_attention, or no indexer");
  if (m.indexer.any() && (m.indexer.after >= m.layers || (m.indexer.after > 0 && m.indexer.every > 1)))
    place_of(root, "", "indexer")
        .error("E0112", "an indexer behind the first layers is in each of the others, of which there are some",
               "fewer layers in `after`, or every: 1");
  if (m.indexer.any() && m.indexer.heads * m.indexer.width > kMostWidth)
    place_of(root, "", "indexer")
        .error("E0112",
               fmt::format("{} heads of width {} of an indexer are wider than {}", m.indexer.heads, m.indexer.width,
                           kMostWidth),
               "fewer, or narrower ones");
  const std::int64_t turning = m.latent.any() ? m.latent.rope : m.rotary_columns();
  if (m.indexer.any() && !m.compressed.any() && m.indexer.width < turning)
    place_of(root, "", "indexer")
        .error("E0112", fmt::format("an indexer's heads of {} columns, of which {} rotate", m.indexer.width, turning),
               "width: that of the rotating columns, or more");
  if (m.indexer.any() && m.indexer.after == 0 && !m.indexer.chooses(0))
    place_of(root, "", "indexer")
        .error("E0112", "the first layer has no layer before it whose choice it could read", "first: 1, or more");
  if (!m.latent.any()) return;
  const auto needs = [&](bool holds, const std::string& message, const std::string& help) {
    if (!holds) place_of(root, "", "latent_attention").error("E0112", message, help);
  };
  needs(m.head_dim == m.latent.nope + m.latent.rope,
        fmt::format("heads are {} wide, but latent attention composes them of {} and {}", m.head_dim, m.latent.nope,
                    m.latent.rope),
        "leave head_dim out");
  needs(m.kv_heads == m.heads, "latent attention makes a key and a value for each head", "leave kv_heads out");
  needs(m.positions == Positions::rope && m.causal && m.pre_norm && !m.qk_norm && !m.bias && !m.qkv_bias &&
            m.rotary_share == 1,
        "latent attention rotates some columns of its keys, and its products have no biases",
        "positions: rope, causal, pre_norm, without bias, qkv_bias, qk_norm and rotary_share");
  needs(m.latent.value <= m.head_dim,
        fmt::format("values of {} columns are wider than their heads of {}", m.latent.value, m.head_dim),
        "value: nope + rope, or less");
  needs(m.latent.rope % 2 == 0,
        fmt::format("rotary positions rotate pairs, but {} columns are not pairs", m.latent.rope), "");
}

std::string experts_text(const Experts& e, const Experts& usual, const std::string& margin) {
  if (!e.any()) return {};
  std::string out = margin + "experts:\n";
  const auto line = [&](const char* key, const auto& value) { out += fmt::format("{}  {}: {}\n", margin, key, value); };
  line("count", e.count);
  line("hidden", e.hidden);
  for (const Whole& one : kWhole)
    if (e.*one.of != usual.*one.of || one.of == &Experts::chosen) line(one.key, e.*one.of);
  if (e.scores != usual.scores) line("scores", kScores[static_cast<std::size_t>(e.scores)]);
  for (const Real& one : kReal)
    if (e.*one.of != usual.*one.of) line(one.key, e.*one.of);
  for (const Switch& one : kSwitches)
    if (e.*one.of != usual.*one.of) line(one.key, e.*one.of);
  return out;
}

std::string indexer_text(const Indexer& i, const std::string& margin) {
  if (!i.any()) return {};
  const std::string shared = i.every > 1 ? fmt::format(", every: {}, first: {}", i.every, i.first) : "";
  const std::string blocks = i.block > 0 ? fmt::format(", block: {}", i.block) : "";
  const std::string after = i.after > 0 ? fmt::format(", after: {}", i.after) : "";
  return fmt::format("{}indexer: {{heads: {}, width: {}, chosen: {}{}{}{}}}\n", margin, i.heads, i.width, i.chosen,
                     shared, blocks, after);
}

std::string latent_text(const LatentAttention& l, const std::string& margin) {
  if (!l.any()) return {};
  return fmt::format("{}latent_attention: {{q_rank: {}, kv_rank: {}, nope: {}, rope: {}, value: {}}}\n", margin,
                     l.q_rank, l.kv_rank, l.nope, l.rope, l.value);
}

}  // namespace orrery::models
