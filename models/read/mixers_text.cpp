// The text of mixers' sizes and of patterns.
#include "models/read/mixers_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "models/layers/mixers.h"
#include "models/limits.h"
#include "models/synonyms.h"

namespace orrery::models {

using base::Cursor;

namespace {
const std::vector<std::string> kPartNorms = {"weighted", "plain", "none"};
}

StateSpace read_state_space(const Cursor& at) {
  StateSpace s;
  if (!at.is_map()) {
    at.error("E0105", "`state_space` is a map of sizes", "state_space: {heads: 128, width: 64, groups: 8, state: 128}");
    return s;
  }
  s.heads = at.at("heads").integer(1, kMostWidth, 1);
  s.width = at.at("width").integer(1, kMostWidth, 1);
  s.groups = at.optional("groups").integer(1, kMostWidth, s.groups);
  s.state = at.at("state").integer(1, kMostWidth, 1);
  s.taps = at.optional("taps").integer(1, kMostWidth, s.taps);
  s.chunk = at.optional("chunk").integer(1, kMostSequence, s.chunk);
  s.rank = at.optional("rank").integer(0, kMostWidth, s.rank);
  s.norm_groups = at.optional("norm_groups").integer(0, kMostWidth, s.norm_groups);
  s.conv_bias = at.optional("conv_bias").boolean(s.conv_bias);
  if (const Cursor norms = at.optional("part_norms"); norms.exists())
    s.part_norms = static_cast<PartNorms>(norms.choice(kPartNorms));
  s.part_epsilon = at.optional("part_epsilon").number(0, 1, s.part_epsilon);
  s.normed = at.optional("normed").boolean(s.normed);
  constexpr double kLeast = -kMostCap, kMost = kMostCap;
  s.out_scale = at.optional("out_scale").number(kLeast, kMost, s.out_scale);
  if (const Cursor scales = at.optional("scales"); scales.exists()) {
    const std::vector<Cursor> all = scales.one_or_many();
    if (all.size() != s.scales.size())
      scales.error("E0105", "`scales` are of z, x, B, C and dt", "scales: [1, 1, 1, 1, 1]");
    for (std::size_t i = 0; i < all.size() && i < s.scales.size(); ++i) s.scales[i] = all[i].number(kLeast, kMost, 1);
  }
  return s;
}

std::vector<BlockParts> read_pattern(const Cursor& at) {
  std::vector<BlockParts> blocks;
  for (const Cursor& one : at.one_or_many()) {
    const std::string word = one.text();
    const auto parts = parts_of(word);
    if (!parts)
      one.error("E0105", fmt::format("{} is no kind of block", base::quoted(word)),
                known_mixers() + ", mlp or experts, or a mixer and what follows it, such as mamba+mlp");
    blocks.push_back(parts.value_or(BlockParts{}));
  }
  return shortest_period(std::move(blocks));
}

void check_pattern(const Cursor& root, const Model& m) {
  const auto needs = [&](const char* key, bool holds, const std::string& message, const std::string& help) {
    if (!holds) place_of(root, "", key).error("E0112", message, help);
  };
  const auto has = [&](auto&& holds) { return m.blocks_with(m.layers, holds) > 0; };
  const std::vector<const MixerTraits*> present = mixers_of(m);
  for (const MixerTraits* one : present) {
    if (one->key != nullptr)
      needs(one->key, one->sized(m), fmt::format("blocks of the pattern are {}, whose sizes are missing", one->titles),
            one->example);
    needs("causal", m.causal || !one->in_order, fmt::format("a {} reads a sequence from its beginning", one->title),
          "causal: true");
    if (one->check != nullptr) one->check(needs, m);
  }
  std::set<std::string_view> keys;
  for (const MixerTraits& one : mixers())
    if (one.key != nullptr && keys.insert(one.key).second)
      needs(one.key,
            !one.sized(m) || std::any_of(present.begin(), present.end(),
                                         [&](const MixerTraits* other) {
                                           return other->key != nullptr && std::string_view(other->key) == one.key;
                                         }),
            fmt::format("sizes of {}, but no block of the pattern is one", one.titles), one.example);
  if (m.ssm.any()) {
    const StateSpace& s = m.ssm;
    const auto any_has = [&](bool MixerTraits::*size) {
      return std::any_of(present.begin(), present.end(), [&](const MixerTraits* one) { return one->*size; });
    };
    needs("state_space", s.rank == 0 || any_has(&MixerTraits::has_rank),
          "no block of the pattern makes its step in `rank` columns", "leave rank out, or selective blocks");
    needs("state_space",
          (s.part_norms == PartNorms::weighted && s.part_epsilon == 0) || any_has(&MixerTraits::has_rank),
          "no block of the pattern has norms of a step, B and C", "leave part_norms and part_epsilon out");
    needs("state_space", s.taps == StateSpace{}.taps || any_has(&MixerTraits::convolves),
          "no block of the pattern has a convolution over `taps` tokens", "leave taps out");
    needs("state_space", s.heads % s.groups == 0 && s.inner() % s.normed_runs() == 0,
          fmt::format("{} heads of {} columns do not divide into {} groups, normed in {} runs", s.heads, s.width,
                      s.groups, s.normed_runs()),
          "make all groups equally large");
    needs("state_space", s.inner() <= kMostWidth && s.groups * s.state <= kMostWidth,
          fmt::format("{} heads of width {}, and {} groups of state {}, are wider than {}", s.heads, s.width, s.groups,
                      s.state, kMostWidth),
          "");
  }
  if (m.pattern.empty()) return;
  needs("pattern", m.layers % std::ssize(m.pattern) == 0,
        fmt::format("a pattern of {} blocks does not divide {} layers", m.pattern.size(), m.layers),
        "write a block for each layer, or a period");
  needs("pattern", m.pre_norm && !m.parallel && m.input_norm && !m.bias && !m.latent.any() && !m.further.any(),
        "a pattern's blocks have a norm before each half, products without biases, and ordinary attention",
        "pre_norm: true and bias: false, without parallel, latent_attention or further_prediction");
  const bool expert = has([](const BlockParts& one) { return one.feed == Feed::experts; });
  needs("experts", expert == m.experts.any() && m.experts.first_dense == 0 && m.experts.period == 1,
        "the pattern alone says which blocks have experts, and the model has some if one does",
        "name the blocks `experts`, and leave first_dense and period out");
}

std::string state_space_text(const StateSpace& s, const std::string& margin) {
  if (!s.any()) return {};
  std::string out = fmt::format("{}state_space: {{heads: {}, width: {}, groups: {}, state: {}, taps: {}, chunk: {}",
                                margin, s.heads, s.width, s.groups, s.state, s.taps, s.chunk);
  if (s.rank > 0) out += fmt::format(", rank: {}", s.rank);
  if (s.norm_groups > 0) out += fmt::format(", norm_groups: {}", s.norm_groups);
  if (!s.conv_bias) out += ", conv_bias: false";
  if (s.part_norms != PartNorms::weighted)
    out += fmt::format(", part_norms: {}", kPartNorms[static_cast<std::size_t>(s.part_norms)]);
  if (s.part_epsilon > 0) out += fmt::format(", part_epsilon: {}", s.part_epsilon);
  if (!s.normed) out += ", normed: false";
  if (s.out_scale != 1) out += fmt::format(", out_scale: {}", s.out_scale);
  if (s.scaled()) out += fmt::format(", scales: [{}]", fmt::join(s.scales, ", "));
  return out + "}\n";
}

std::string pattern_text(const std::vector<BlockParts>& pattern, const std::string& margin) {
  if (pattern.empty()) return {};
  std::string out;
  for (const BlockParts& one : pattern) out += (out.empty() ? "" : ", ") + word_of(one);
  return fmt::format("{}pattern: [{}]\n", margin, out);
}

}  // namespace orrery::models
