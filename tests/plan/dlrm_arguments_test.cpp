// The public DLRM benchmark's command lines: what is read, what differs, and what is refused by name.
#include "plan/spec/dlrm_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DlrmCommand read(const std::string& text) {
  auto command = read_dlrm_arguments(text);
  EXPECT_TRUE(command) << base::render(command.error(), false);
  return command ? *command : DlrmCommand{};
}

std::string refused(const std::string& text) {
  const auto command = read_dlrm_arguments(text);
  std::string out;
  if (!command)
    for (const base::Diagnostic& one : command.error())
      out += one.code + ":" + std::to_string(one.where.column) + ": " + one.message + "\n";
  return out;
}

// bench/dlrm_s_criteo_kaggle.sh of the repository, with a few of its tables' rows.
TEST(DlrmArguments, OfTheKaggleBenchmarkAreReadAsItReadsThem) {
  const DlrmCommand one = read(
      "python dlrm_s_pytorch.py --arch-sparse-feature-size=16 --arch-mlp-bot=\"13-512-256-64-16\" "
      "--arch-mlp-top=\"512-256-1\" --arch-embedding-size=1460-583-10131227 --max-ind-range=1000000 "
      "--data-generation=dataset --data-set=kaggle --raw-data-file=./input/train.txt "
      "--processed-data-file=./input/kaggleAdDisplayChallenge_processed.npz --loss-function=bce --round-targets=True "
      "--learning-rate=0.1 --mini-batch-size=128 --print-freq=1024 --print-time --test-mini-batch-size=16384 "
      "--test-num-workers=16 --num-batches 300");
  const models::Recommender& r = *one.model.recommender;
  EXPECT_EQ(r.dense_features, 13);
  EXPECT_EQ(r.embedding_dim, 16);
  EXPECT_THAT(r.bottom_mlp, ElementsAre(512, 256, 64, 16));
  EXPECT_THAT(r.top_mlp, ElementsAre(512, 256, 1));
  ASSERT_EQ(r.tables.size(), 3U);
  EXPECT_EQ(r.tables[1].rows, 583);
  EXPECT_EQ(r.tables[2].rows, 1'000'000) << "at most so many indices";
  EXPECT_EQ(r.tables[2].multi_hot, 1);
  EXPECT_EQ(r.tables[2].pooling, models::Pooling::sum);
  EXPECT_EQ(one.batch, 128);
  EXPECT_EQ(one.training.steps, 300);
  EXPECT_EQ(one.training.optimizer.kind, OptimizerKind::sgd);
  EXPECT_EQ(one.training.optimizer.momentum, 0);
  EXPECT_EQ(one.training.optimizer.learning_rate, 0.1);
  EXPECT_EQ(one.training.data, "./input/train.txt");
  EXPECT_EQ(one.training.order, DataOrder::shuffled);
  EXPECT_EQ(one.training.seed, 123U);
  ASSERT_EQ(one.notes.size(), 1U);
  EXPECT_THAT(one.notes[0], HasSubstr("kaggleAdDisplayChallenge_processed.npz"));
}

// bench/dlrm_s_benchmark.sh: drawn data.
TEST(DlrmArguments, OfDrawnDataGiveBagsAndSteps) {
  const DlrmCommand one = read(
      "--arch-interaction-op=dot --arch-mlp-bot 512-512-64 --arch-mlp-top '1024-1024-1' --arch-sparse-feature-size 64 "
      "--arch-embedding-size 1000000-1000000 --num-indices-per-lookup=100 --mini-batch-size=2048 --data-size=20480 "
      "--nepochs=2 --optimizer=rwsadagrad --loss-function bce --numpy-rand-seed=727");
  const models::Recommender& r = *one.model.recommender;
  EXPECT_EQ(r.dense_features, 512);
  EXPECT_THAT(r.bottom_mlp, ElementsAre(512, 64));
  EXPECT_EQ(r.tables[0].multi_hot, 100);
  EXPECT_EQ(r.tables[0].fewest, 1) << "drawn bags have 1 to 100 indices";
  EXPECT_EQ(one.training.steps, 20);
  EXPECT_EQ(one.training.optimizer.kind, OptimizerKind::rowwise_adagrad);
  EXPECT_EQ(one.training.optimizer.epsilon, 1e-10);
  EXPECT_EQ(one.training.seed, 727U);
  EXPECT_TRUE(one.training.data.empty());
  EXPECT_EQ(one.training.generated, (GeneratedSamples{20 * 2048, 727}));
  ASSERT_EQ(one.notes.size(), 1U);
  EXPECT_THAT(one.notes[0], HasSubstr("a click model that is known"));
}

TEST(DlrmArguments, HaveTheScriptsDefaults) {
  const DlrmCommand one = read("");
  EXPECT_EQ(one.model.recommender->dense_features, 4);
  EXPECT_EQ(one.model.recommender->tables.size(), 3U);
  EXPECT_EQ(one.model.recommender->tables[0].multi_hot, 4) << "10 lookups, but never more than rows";
  EXPECT_EQ(one.batch, 1);
  EXPECT_EQ(one.training.optimizer.learning_rate, 0.01);
  ASSERT_EQ(one.notes.size(), 2U) << "its loss is another, and so are its labels";
  EXPECT_THAT(one.notes[0], HasSubstr("mean square error"));
}

TEST(DlrmArguments, OfRecordsNameTheirFile) {
  const std::string all =
      "--arch-mlp-bot=4-2 --data-generation=dataset --arch-embedding-size=9 --loss-function=bce --mlperf-bin-loader "
      "--processed-data-file=terabyte/train_data.bin";
  EXPECT_EQ(read(all).training.data, "terabyte/train_data.bin");
  EXPECT_FALSE(read(all).training.generated);
  EXPECT_EQ(read(all).training.order, DataOrder::sequential);
  EXPECT_EQ(read(all + " --mlperf-bin-shuffle").training.order, DataOrder::shuffled);
}

TEST(DlrmArguments, ThatNobodyKnowsAreNamedAllAtOnceByColumn) {
  EXPECT_EQ(refused("--arch-mlp-bott=4-2 --frobnicate 7 --learning-rate=fast --mini-batch-size"),
            "E0140:1: the benchmark has no argument `--arch-mlp-bott`\n"
            "E0140:21: the benchmark has no argument `--frobnicate`\n"
            "E0140:36: --learning-rate is a number from 0 to 1000, found `fast`\n"
            "E0140:57: --mini-batch-size has no value\n");
  EXPECT_EQ(refused("--arch-mlp-top=4--1"),
            "E0140:1: --arch-mlp-top is sizes with dashes between them, found `4--1`\n");
  EXPECT_EQ(refused("--arch-mlp-bot=4-8"), "E0140:1: the bottom MLP ends in 8, but tables are 2 wide\n");
  EXPECT_EQ(refused("--data-generation=dataset"),
            "E0140:1: the rows of a data set's tables come from its counts, which no argument gives\n");
}

TEST(DlrmArguments, ThatAskForWhatThereIsNotAreRefused) {
  EXPECT_THAT(refused("--md-flag"), HasSubstr("E0141:1: --md-flag: not supported here: tables of different"));
  EXPECT_THAT(refused("--loss-function=wbce"), HasSubstr("E0141:1: --loss-function=wbce"));
  EXPECT_THAT(refused("--arch-interaction-op=cat"), HasSubstr("E0141:1: --arch-interaction-op=cat"));
  EXPECT_THAT(refused("--optimizer=adagrad"), HasSubstr("E0141:1: --optimizer=adagrad"));
  EXPECT_THAT(refused("--weighted-pooling=learned"), HasSubstr("weights of rows that are learned"));
  EXPECT_EQ(refused("--weighted-pooling=fixed"), "") << "all weights are 1";
  EXPECT_EQ(refused("--quantize-mlp-with-bit=32 --mlperf-grad-accum-iter=1"), "") << "the script's own defaults";
  EXPECT_THAT(refused("--mlperf-grad-accum-iter=4"), HasSubstr("gradients of several batches"));
}

}  // namespace
}  // namespace orrery::plan
