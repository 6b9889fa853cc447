// What a file's own keys say of layers that are not known here, and which class reads it without them. The keys are
// those of the files that NVIDIA's aiconfigurator carries and of classes in Hugging Face's transformers 4 and 5.
#include "models/read/unread.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "models/read/families.h"
#include "models/read/read.h"

namespace orrery::models {
namespace {

using base::Cursor;

/// A key, and what its presence means.
struct UnreadSign {
  const char* key;
  const char* means;
};
constexpr UnreadSign kUnreadSigns[] = {
    {"linear_key_head_dim", "some layers are a gated delta rule, a linear attention"},
    {"linear_attn_config", "some layers are Kimi Delta Attention, a linear attention"},
    {"linear_attn_alpha_factor", "some layers are lightning attention, a linear attention"},
    {"layernorm_linear_attention_alpha", "some layers are lightning attention, a linear attention"},
    {"sparse_attention_config", "attention reads only chosen blocks of tokens"},
    {"index_topk", "attention reads only the tokens that an indexer picks"},
    {"compress_ratios", "attention reads runs of tokens in a compressed form"},
    {"hc_mult", "several residual streams are mixed between layers"},
    {"o_lora_rank", "attention's last product is two narrow ones"},
    {"attn_output_gate", "a gate multiplies attention's output"},
    {"attention_output_gate", "a gate multiplies attention's output"},
    {"mla_use_output_gate", "a gate multiplies attention's output"},
    {"swa_num_attention_heads", "layers with a window have a number and a width of heads of their own"},
    {"global_head_dim", "layers without a window have a width of heads of their own"},
    {"attention_k_eq_v", "values may be the keys"},
    {"enable_moe_block", "experts stand beside a layer's MLP, with norms of their own"},
    {"hidden_size_per_layer_input", "layers may have token tables of their own"},
    {"altup_num_inputs", "several residual streams are mixed between layers"},
    {"block_configs", "each layer has sizes of its own"},
    {"routed_expert_hidden_size", "experts work on a narrower copy of the token"},
    {"cross_attention_layers", "some layers attend to an image"},
    {"attn_layer_period", "state spaces are Mamba's first form"},
    {"time_step_rank", "state spaces are Mamba's first form"},
    {"attention_hidden_size", "layers are RWKV's, without attention"},
    {"is_encoder_decoder", "it has an encoder and a decoder"},
};

/// What no key says.
struct UnreadKind {
  const char* begins;  ///< the model_type or architecture, in small letters
  const char* means;
};
constexpr UnreadKind kUnreadKinds[] = {
    {"step3", "what its layers with and without a window each have is not known"},
    {"zamba", "layers share the weights of their attention"},
    {"persimmon", "heads of q and k have LayerNorms of their own"},
    {"gpt_neox_japanese", "attention's product into the residual has a bias in the last layer alone"},
    {"xglm", "positions are sines that are added to the tokens"},
    {"t5", "it has an encoder and a decoder"},
    {"switch_transformers", "it has an encoder and a decoder"},
    {"nllb-moe", "it has an encoder and a decoder"},
    {"whisper", "it has an encoder and a decoder"},
};

bool says_something(const Cursor& at, const char* key) {
  const Cursor value = at.optional(key);
  if (!value.exists()) return false;
  const std::string text = value.scalar_text();
  return !value.is_scalar() || (text != "0" && text != "false" && text != "null" && !text.empty());
}

bool attends_linearly(const Cursor& at) {
  const Cursor types = at.optional("layer_types");
  if (!types.is_sequence()) return false;
  const std::vector<Cursor> all = types.items();
  return std::any_of(all.begin(), all.end(), [](const Cursor& one) { return one.scalar_text() == "linear_attention"; });
}

std::string small_letters(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word;
}

std::vector<std::string> reasons_of(const Cursor& at, const std::string& name) {
  std::vector<std::string> out;
  const auto add = [&out](const char* what) {
    if (std::find(out.begin(), out.end(), what) == out.end()) out.emplace_back(what);
  };
  for (const UnreadKind& kind : kUnreadKinds)
    if (small_letters(name).rfind(kind.begins, 0) == 0) add(kind.means);
  for (const UnreadSign& sign : kUnreadSigns)
    if (says_something(at, sign.key)) add(sign.means);
  const auto linear = [](const std::string& one) { return one.find("linear attention") != std::string::npos; };
  if (attends_linearly(at) && std::none_of(out.begin(), out.end(), linear)) add("some layers are a linear attention");
  return out;
}

/// Classes to try, the more particular ones first, each with a key that its files have.
struct NearClass {
  const char* model_type;
  const char* key;
};
constexpr NearClass kNearClasses[] = {{"deepseek_v3", "kv_lora_rank"},
                                      {"glm4_moe", "n_routed_experts"},
                                      {"qwen3_moe", "num_experts"},
                                      {"mixtral", "num_local_experts"},
                                      {"gemma3_text", "hidden_activation"},
                                      {"llama", "intermediate_size"},
                                      {"gpt2", "n_embd"}};

/// The first of them that reads the file, which may leave nothing out that it has; none: empty.
std::string nearest_class(const Cursor& at) {
  bool mixture = false;
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"})
    mixture = mixture || says_something(at, key);
  for (const NearClass& one : kNearClasses) {
    if (!at.has(one.key)) continue;
    const base::Document text = base::Document::parse(at.dump(), "config.json", {{"model_type", one.model_type}});
    const Model model = read_model(text.root());
    if (!text.findings().failed() && model.experts.any() == mixture) return one.model_type;
  }
  return {};
}

/// What a size of a state space is called by Mamba's authors and by Hugging Face's classes, and how large it is where
/// the authors' file is silent: in the first form, in the second. 0: that form has none.
struct AuthorsSize {
  const char *theirs, *ours;
  std::int64_t first, second;
};
constexpr AuthorsSize kAuthorsSizes[] = {{"d_state", "state_size", 16, 128},
                                         {"d_conv", "conv_kernel", 4, 4},
                                         {"expand", "expand", 2, 2},
                                         {"headdim", "head_dim", 0, 64},
                                         {"ngroups", "n_groups", 0, 1}};

/// The keys that make a file of Mamba's authors (MambaConfig of mamba_ssm, and its modules' own sizes) one of Hugging
/// Face's. Empty: it is none, or has layers of attention too.
std::string help_with_authors_mamba(const Cursor& at) {
  const Cursor sizes = at.optional("ssm_cfg");
  const Cursor attend = at.optional("attn_layer_idx");
  if (!sizes.is_map() || (attend.is_sequence() && !attend.items().empty())) return {};
  const bool second = sizes.optional("layer").scalar_text() == "Mamba2";
  std::string keys = fmt::format(R"("model_type": "{}")", second ? "mamba2" : "mamba");
  std::int64_t expand = 0, width = 0;
  for (const AuthorsSize& one : kAuthorsSizes) {
    const std::int64_t usual = second ? one.second : one.first;
    if (usual == 0) continue;
    const std::int64_t size = sizes.optional(one.theirs).integer(1, kMostWidth, usual);
    const std::string_view key = one.ours;
    if (key == "expand") expand = size;
    if (key == "head_dim") width = size;
    if (second || size != usual) keys += fmt::format(R"(, "{}": {})", key, size);
  }
  const std::int64_t hidden = at.optional("d_model").integer(1, kMostWidth, 1);
  if (second) keys += fmt::format(R"(, "num_heads": {})", expand * hidden / width);
  const bool tied = at.optional("tie_embeddings").boolean(true);  // of the classes, the first form's alone ties them
  if (tied == second) keys += fmt::format(R"(, "tie_word_embeddings": {})", tied);
  const std::int64_t multiple = at.optional("pad_vocab_size_multiple").integer(1, kMostVocab, 8);
  const std::int64_t words = at.optional("vocab_size").integer(1, kMostVocab, multiple);
  const std::int64_t rows = (words + multiple - 1) / multiple * multiple;
  return fmt::format(
      "model_type is missing in this file of Mamba's authors: add {}{}", keys,
      rows != words ? fmt::format("; its weights have {} rows of words: \"vocab_size\": {}", rows, rows) : "");
}

}  // namespace

Unread unread(const Cursor& at, const std::string& name) {
  const std::vector<std::string> found = reasons_of(at, name);
  Unread out{.why = fmt::format("{}", fmt::join(found, "; ")), .help = {}};
  const auto is = [&](const char* what) { return std::find(found.begin(), found.end(), what) != found.end(); };
  if (is("it has an encoder and a decoder")) {
    out.help =
        "write both as one stack of layers, with `experts` if there are any, as models/catalog/switch-c.yaml does";
    return out;
  }
  if (const std::string help = name.empty() ? help_with_authors_mamba(at) : std::string(); !help.empty()) {
    out.help = help;
    return out;
  }
  const std::string near = nearest_class(at);
  if (found.empty()) {
    out.help = fmt::format(
        "known are {}; {}write other models {}", known_model_types(),
        near.empty() ? "" : fmt::format("with model_type {} this file is read, if its layers are such; ", near),
        kOwnForm);
  } else {
    out.help =
        near.empty()
            ? fmt::format("write what is near {}", kOwnForm)
            : fmt::format("with model_type {} this file is read as if it had none of that; or write what is near {}",
                          near, kOwnForm);
  }
  return out;
}

}  // namespace orrery::models
