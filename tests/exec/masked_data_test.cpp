// Masked sequences: as an independent program draws them, the same for any sharding, in the paper's proportions.
#include "exec/data/masked_data.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/data/data.h"
#include "exec/files/files.h"
#include "models/layers/inputs.h"

namespace orrery::exec {
namespace masked_data_test {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

const std::string kGolden = std::string(ORRERY_SOURCE_DIR) + "/tests/golden/pytorch/";

struct Read {
  Ids tokens, targets, types, rows, next;
  Read(const Batches& batches, std::int64_t step, std::int64_t first, std::size_t count, std::size_t length,
       std::size_t predictions)
      : tokens(count * length),
        targets(count * predictions),
        types(count * length),
        rows(count * predictions),
        next(count) {
    batches.load_masked(step, first, static_cast<std::int64_t>(count), {tokens, targets, types, rows, next});
  }
};

Batches golden_batches() {
  Batches out(std::move(*TokenStream::open(kGolden + "tokens.bin")), plan::DataOrder::sequential, 1, 8, 16, 67);
  out.mask({{64, 65, 66}, 64, 2, true});
  return out;
}

TEST(MaskedData, IsWhatAnotherProgramDrawsFromTheSameCounters) {
  const auto golden = nlohmann::json::parse(read_file(kGolden + "bert_golden.json", 1 << 20)).at("first_batch");
  const Read all(golden_batches(), 0, 0, 8, 16, 2);
  for (std::size_t g = 0; g < 8; ++g) {
    for (std::size_t t = 0; t < 16; ++t) {
      EXPECT_EQ(all.tokens[g * 16 + t], golden[g]["tokens"][t]) << g << " " << t;
      EXPECT_EQ(all.types[g * 16 + t], golden[g]["token_types"][t]) << g << " " << t;
    }
    for (std::size_t p = 0; p < 2; ++p) {
      EXPECT_EQ(all.rows[g * 2 + p], golden[g]["places"][p].get<std::int32_t>() + static_cast<std::int32_t>(g) * 16);
      EXPECT_EQ(all.targets[g * 2 + p], golden[g]["targets"][p]);
    }
    EXPECT_EQ(all.next[g], golden[g]["elsewhere"]);
  }
}

TEST(MaskedData, IsTheSameInAnyParts) {
  const Batches batches = golden_batches();
  const Read all(batches, 3, 0, 8, 16, 2);
  for (std::int64_t g = 0; g < 8; ++g) {
    const Read one(batches, 3, g, 1, 16, 2);
    const auto at = static_cast<std::size_t>(g);
    EXPECT_EQ(one.tokens, Ids(all.tokens.begin() + g * 16, all.tokens.begin() + g * 16 + 16));
    EXPECT_EQ(one.targets, Ids(all.targets.begin() + g * 2, all.targets.begin() + g * 2 + 2));
    EXPECT_EQ(one.rows[0] + static_cast<std::int32_t>(g) * 16, all.rows[at * 2]) << "rows count within the micro-batch";
    EXPECT_EQ(one.next[0], all.next[at]);
  }
}

TEST(MaskedData, HasThePapersProportions) {
  const fs::path file = fs::temp_directory_path() / ("orrery-masked-" + std::to_string(getpid()));
  std::string text;
  for (int i = 0; i < 40000; ++i) text += static_cast<char>('a' + i * 7 % 26);
  std::ofstream(file, std::ios::binary) << text;
  constexpr std::size_t kBatch = 64, kLength = 128, kPredictions = 19;
  Batches batches(std::move(*TokenStream::open(file)), plan::DataOrder::shuffled, 5, kBatch, kLength, 259);
  batches.mask({kSpecialBeyondBytes, kBytes, kPredictions, true});
  double masked = 0, kept = 0, others = 0, elsewhere = 0;
  for (std::int64_t step = 0; step < 8; ++step) {
    const Read read(batches, step, 0, kBatch, kLength, kPredictions);
    for (std::size_t g = 0; g < kBatch; ++g) {
      const std::int32_t* tokens = read.tokens.data() + g * kLength;
      EXPECT_EQ(tokens[0], kSpecialBeyondBytes.begin);
      EXPECT_EQ(tokens[kLength - 1], kSpecialBeyondBytes.separator);
      EXPECT_EQ(std::count(tokens, tokens + kLength, kSpecialBeyondBytes.separator), 2);
      elsewhere += read.next[g];
      // The second segment goes on where the first one ends, or does not.
      std::size_t split = 1;
      while (tokens[split] != kSpecialBeyondBytes.separator) ++split;
      EXPECT_EQ(read.types[g * kLength + split], 0);
      EXPECT_EQ(read.types[g * kLength + split + 1], 1);
      for (std::size_t p = 0; p < kPredictions; ++p) {
        const std::int32_t row = read.rows[g * kPredictions + p], target = read.targets[g * kPredictions + p];
        ASSERT_EQ(static_cast<std::size_t>(row) / kLength, g);
        if (p > 0) {
          EXPECT_LT(read.rows[g * kPredictions + p - 1], row) << "each once";
        }
        const std::int32_t token = read.tokens[static_cast<std::size_t>(row)];
        EXPECT_TRUE(target >= 'a' && target <= 'z');
        (token == kSpecialBeyondBytes.mask ? masked : token == target ? kept : others) += 1;
      }
    }
  }
  const double all = masked + kept + others;
  EXPECT_NEAR(masked / all, 0.8, 0.015);
  EXPECT_NEAR(kept / all, 0.1, 0.012);
  EXPECT_NEAR(others / all, 0.1, 0.012);
  EXPECT_NEAR(elsewhere / (8 * kBatch), 0.5, 0.08);
  const Read again(batches, 0, 0, kBatch, kLength, kPredictions);
  EXPECT_NE(again.rows, Read(batches, 10, 0, kBatch, kLength, kPredictions).rows) << "another epoch, other places";
  fs::remove(file);
}

TEST(MaskedData, TakesSpecialTokensBehindBytesAndRefusesWhatNothingNames) {
  models::Model model;
  model.masked_fraction = 0.15;
  model.next_sentence = true;
  model.vocab = 259;
  const fs::path file = fs::temp_directory_path() / ("orrery-special-" + std::to_string(getpid()));
  std::ofstream(file, std::ios::binary) << "some text";
  const auto bytes = TokenStream::open(file), numbers = TokenStream::open(kGolden + "tokens.bin");
  plan::Training training;
  const auto made = masking_of(model, 128, training, *bytes);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->special.mask, 258);
  EXPECT_EQ(made->words, 256);
  EXPECT_EQ(made->predictions, 19);
  model.vocab = 256;
  const auto crowded = masking_of(model, 128, training, *bytes);
  ASSERT_FALSE(crowded);
  EXPECT_EQ(crowded.error().front().code, "E0618");
  const auto unnamed = masking_of(model, 128, training, *numbers);
  ASSERT_FALSE(unnamed);
  EXPECT_EQ(unnamed.error().front().code, "E0617");
  training.tokenizer = std::string(ORRERY_SOURCE_DIR) + "/tests/golden/bpe";
  const auto other = masking_of(model, 128, training, *bytes);
  ASSERT_FALSE(other) << "a vocabulary without [MASK]";
  EXPECT_EQ(other.error().front().code, "E0617");
  fs::remove(file);
}

TEST(MaskedData, CountsPredictionsAsThePapersDataDoes) {
  models::Model model;
  EXPECT_EQ(models::predictions_per_sequence(model, 512), 0);
  model.masked_fraction = 0.15;
  EXPECT_EQ(models::predictions_per_sequence(model, 512), 77);
  EXPECT_EQ(models::predictions_per_sequence(model, 128), 19);
  EXPECT_EQ(models::predictions_per_sequence(model, 2), 1);
  model.masked_fraction = 1;
  EXPECT_EQ(models::predictions_per_sequence(model, 128), 125) << "[CLS] and [SEP] are told";
}

}  // namespace masked_data_test
}  // namespace orrery::exec
