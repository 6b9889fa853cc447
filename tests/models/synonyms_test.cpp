// Words of other tools in a model's file: the message names ours, and points to where a number stands.
#include "models/synonyms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/read/read.h"

namespace orrery::models {
namespace synonyms_test {

using ::testing::HasSubstr;
using ::testing::Not;

std::string said(const std::string& text, const std::string& file = "model.yaml") {
  const auto model = parse_model(text, file);
  return model ? std::string("accepted") : base::render(model.error(), false);
}

constexpr const char* kGpt =
    "name: mine\nfamily: gpt\nlayers: 12\nhidden: 768\nheads: 12\nvocab: 50257\nmax_sequence: 1024\n";

TEST(ModelSynonyms, KeysOfOtherToolsAreNamedInOursAndNotAlsoMissing) {
  const std::string text = said(
      "name: mine\nfamily: llama\nnum_layers: 32\nhidden_size: 4096\nnum_attention_heads: 32\n"
      "num_key_value_heads: 8\nffn_hidden_size: 14336\npadded_vocab_size: 128256\nseq_length: 8192\n");
  for (const char* ours : {"layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "max_sequence"})
    EXPECT_THAT(text, HasSubstr("here it is called `" + std::string(ours) + "`"));
  EXPECT_THAT(text, HasSubstr("model.yaml:5:1\n"));
  EXPECT_THAT(text, Not(HasSubstr("is missing"))) << text;
  EXPECT_THAT(text, Not(HasSubstr("known keys"))) << text;
}

TEST(ModelSynonyms, AreThoseOfNanoGptAndMegatronsFlagsToo) {
  const std::string text = said(
      "name: mine\nfamily: gpt\nn_layer: 12\nn-embd: 768\nN_HEAD: 12\nvocab: 50257\n"
      "block_size: 1024\n");
  EXPECT_THAT(text, HasSubstr("unknown key `n-embd`"));
  EXPECT_THAT(text, HasSubstr("unknown key `N_HEAD`"));
  EXPECT_THAT(text, Not(HasSubstr("is missing"))) << text;
  EXPECT_THAT(said(kGpt + std::string("num_heads: 12\n")), HasSubstr("here it is called `heads`"));
}

TEST(ModelSynonyms, OfExpertsAreKnownInTheirMapAndOutsideIt) {
  EXPECT_THAT(said(kGpt + std::string("experts: {num_experts: 8, top_k: 2}\n")),
              ::testing::AllOf(HasSubstr("here it is called `count`"), HasSubstr("here it is called `chosen`"),
                               Not(HasSubstr("is missing"))));
  EXPECT_THAT(said(kGpt + std::string("num_local_experts: 8\n")), HasSubstr("`experts: {count: …}`"));
}

TEST(ModelSynonyms, ValuesOfOtherToolsAreNamedInOurs) {
  EXPECT_THAT(said(kGpt + std::string("activation: SiLU\n")), HasSubstr("here it is called `swiglu`"));
  EXPECT_THAT(said(kGpt + std::string("activation: gelu_new\n")), HasSubstr("`gelu` with `gelu: tanh`"));
  EXPECT_THAT(said(kGpt + std::string("normalisation: RMSNorm\n")), HasSubstr("here it is called `rms_norm`"));
  EXPECT_THAT(said(kGpt + std::string("positions: rotary\n")), HasSubstr("here it is called `rope`"));
  EXPECT_EQ(said(kGpt + std::string("activation: relu\nnormalisation: rms_norm\npositions: rope\n")), "accepted");
}

TEST(ModelSynonyms, UnknownKeysListTheKnownOnesOnce) {
  const std::string text = said(kGpt + std::string("colour: red\nshape: round\n"));
  EXPECT_EQ(text.find("known keys: family"), text.rfind("known keys: family")) << text;
  EXPECT_THAT(text, HasSubstr("known keys: those named above"));
}

TEST(ModelSynonyms, RelationsPointToTheKeyThatSaysTheNumber) {
  EXPECT_THAT(said("name: m\nfamily: gpt\nlayers: 2\nhidden: 100\nvocab: 100\nheads: 8\nmax_sequence: 64\n"),
              HasSubstr("model.yaml:6:8"));
  const std::string config =
      "{\n\"model_type\": \"llama\",\n\"hidden_size\": 100,\n\"num_hidden_layers\": 2,\n\"num_attention_heads\": 8,\n"
      "\"intermediate_size\": 64,\n\"vocab_size\": 100,\n\"max_position_embeddings\": 64\n}\n";
  EXPECT_THAT(said(config, "config.json"), HasSubstr("config.json:5:24")) << "in Hugging Face's words";
}

TEST(ModelSynonyms, WhatNoKeySaysIsTheFamilys) {
  // BERT's head predicts masked tokens from both sides.
  const std::string text = said(
      "name: m\nfamily: bert\nlayers: 2\nhidden: 64\nheads: 8\nvocab: 100\n"
      "max_sequence: 64\npre_norm: true\nparallel: true\nshared_norm: false\n"
      "next_sentence: true\n");
  EXPECT_THAT(text, HasSubstr("model.yaml:11:16")) << text;
}

}  // namespace synonyms_test
}  // namespace orrery::models
