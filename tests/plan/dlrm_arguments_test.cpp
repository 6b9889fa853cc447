// The public DLRM benchmark's command lines: what is read, what differs, and what is refused by name.
#include "plan/spec/dlrm_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <sstream>

namespace orrery::plan {
namespace dlrm_arguments_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

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
  EXPECT_EQ(one.training.categories, Categories::hashed) << "modulo so many";
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
  ASSERT_EQ(one.notes.size(), 2U);
  EXPECT_THAT(one.notes[0], HasSubstr("kaggleAdDisplayChallenge_processed.npz"));
  EXPECT_EQ(one.notes[1],
            "Without effect here: --data-set, --print-freq, --print-time, --test-num-workers, --test-mini-batch-size, "
            "--round-targets.");
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

// What the scripts' argument parsers take, at facebookresearch/dlrm 090956e (2025-10-02), sorted.
constexpr const char* kOfPytorch =
    "activation-function arch-embedding-size arch-interaction-itself arch-interaction-op arch-mlp-bot arch-mlp-top "
    "arch-sparse-feature-size data-generation data-randomize data-set data-size data-sub-sample-rate "
    "data-trace-enable-padding data-trace-file dataset-multiprocessing debug-mode dist-backend enable-profiling "
    "inference-only learning-rate load-model local_rank loss-function loss-threshold loss-weights "
    "lr-decay-start-step lr-num-decay-steps lr-num-warmup-steps max-ind-range md-flag md-round-dims md-temperature "
    "md-threshold memory-map mini-batch-size mlperf-acc-threshold mlperf-auc-threshold mlperf-bin-loader "
    "mlperf-bin-shuffle mlperf-grad-accum-iter mlperf-logging nepochs num-batches num-indices-per-lookup "
    "num-indices-per-lookup-fixed num-workers numpy-rand-seed optimizer plot-compute-graph print-freq "
    "print-precision print-time print-wall-time processed-data-file qr-collisions qr-flag qr-operation qr-threshold "
    "quantize-emb-with-bit quantize-mlp-with-bit rand-data-dist rand-data-max rand-data-min rand-data-mu "
    "rand-data-sigma raw-data-file round-targets save-model save-onnx sync-dense-params tensor-board-filename "
    "test-freq test-mini-batch-size test-num-workers use-gpu weighted-pooling";
constexpr const char* kOfMain =
    "adagrad allow_tf32 batch_size collect_multi_hot_freqs_stats dataset_name dcn_low_rank_dim dcn_num_layers "
    "dense_arch_layer_sizes drop_last_training_batch embedding_dim epochs eps in_memory_binary_criteo_path "
    "interaction_branch1_layer_sizes interaction_branch2_layer_sizes interaction_type learning_rate "
    "limit_test_batches limit_train_batches limit_val_batches lr_decay_start lr_decay_steps lr_warmup_steps "
    "mmap_mode multi_hot_distribution_type multi_hot_sizes num_embeddings num_embeddings_per_feature "
    "over_arch_layer_sizes pin_memory print_lr print_sharding_plan seed shuffle_batches shuffle_training_set "
    "synthetic_multi_hot_criteo_path test_batch_size undersampling_rate validation_freq_within_epoch";

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// None is forgotten, and none is made up but those that other versions have.
TEST(DlrmArguments, AreAllThatTheScriptsHave) {
  const auto known = [](DlrmScript script) {
    std::vector<std::string> names;
    for (const DlrmArgument& one : dlrm_arguments(script)) {
      names.emplace_back(one.name);
      EXPECT_EQ(one.fate == DlrmFate::refused, *one.why != 0) << one.name << ": a refusal says why";
    }
    return names;
  };
  std::vector<std::string> pytorch = words_of(kOfPytorch);
  for (const char* other :
       {"use-torch2trt-for-mlp", "use-fbgemm-gpu", "fbgemm-gpu-codegen-pref", "mlperf-coalesce-sparse-grads"})
    pytorch.emplace_back(other);
  EXPECT_THAT(known(DlrmScript::dlrm_s_pytorch), UnorderedElementsAreArray(pytorch));
  EXPECT_THAT(known(DlrmScript::dlrm_main), UnorderedElementsAreArray(words_of(kOfMain)));
}

TEST(DlrmArguments, ThatAreRefusedMayHaveTheScriptsDefault) {
  for (const DlrmScript script : {DlrmScript::dlrm_s_pytorch, DlrmScript::dlrm_main})
    for (const DlrmArgument& one : dlrm_arguments(script)) {
      if (one.fate != DlrmFate::refused) continue;
      const std::string begin = std::string(name_of(script)) + " --" + one.name;
      EXPECT_THAT(refused(begin + (one.flag ? "" : "=7")), HasSubstr("not supported here: " + std::string(one.why)));
      if (one.usual != nullptr) {
        EXPECT_EQ(refused(begin + "=" + one.usual), "") << one.name;
      }
    }
}

// torchrec_dlrm/README.MD: MLPerf's DLRM-DCNv2 on eight GPUs.
TEST(DlrmArguments, OfTorchRecsScriptAreReadAsItReadsThem) {
  const std::string rows =
      "40000000,39060,17295,7424,20265,3,7122,1543,63,40000000,3067956,405282,10,2209,11938,155,4,976,14,40000000,"
      "40000000,40000000,590152,12973,108,36";
  const std::string all =
      "torchx run -s local_cwd dist.ddp -j 1x8 --script dlrm_main.py -- --embedding_dim 128 "
      "--dense_arch_layer_sizes 512,256,128 --over_arch_layer_sizes 1024,1024,512,256,1 "
      "--in_memory_binary_criteo_path $PREPROCESSED_DATASET --num_embeddings_per_feature " +
      rows +
      " --validation_freq_within_epoch 3200 --epochs 1 --pin_memory --mmap_mode --batch_size 8192 "
      "--interaction_type=dcn --dcn_num_layers=3 --dcn_low_rank_dim=512 --adagrad --learning_rate 0.005 "
      "--multi_hot_distribution_type uniform "
      "--multi_hot_sizes=3,2,1,2,6,1,1,1,1,7,3,8,1,6,9,5,1,1,1,12,100,27,10,3,1,1";
  const DlrmCommand one = read(all);
  const models::Recommender& r = *one.model.recommender;
  EXPECT_EQ(r.dense_features, 13);
  EXPECT_EQ(r.embedding_dim, 128);
  EXPECT_THAT(r.bottom_mlp, ElementsAre(512, 256, 128));
  EXPECT_THAT(r.top_mlp, ElementsAre(1024, 1024, 512, 256, 1));
  EXPECT_EQ(r.interaction, models::Interaction::cross);
  EXPECT_EQ(r.cross_layers, 3);
  EXPECT_EQ(r.cross_rank, 512);
  ASSERT_EQ(r.tables.size(), 26U);
  EXPECT_EQ(r.tables[20].rows, 40'000'000);
  EXPECT_EQ(r.tables[20].multi_hot, 100);
  EXPECT_EQ(one.batch, 65'536) << "of eight processes";
  EXPECT_EQ(one.training.optimizer.kind, OptimizerKind::rowwise_adagrad);
  EXPECT_EQ(one.training.optimizer.learning_rate, 0.005);
  EXPECT_EQ(one.training.optimizer.epsilon, 1e-8);
  EXPECT_EQ(one.training.order, DataOrder::sequential);
  ASSERT_EQ(one.notes.size(), 4U);
  EXPECT_THAT(one.notes[0], HasSubstr("a state for each value"));
  EXPECT_THAT(one.notes[1], HasSubstr("once per epoch"));
  EXPECT_THAT(one.notes[2], HasSubstr("numpy's arrays cannot be read"));
  EXPECT_EQ(one.notes[3],
            "Without effect here: --validation_freq_within_epoch, --pin_memory, --mmap_mode, "
            "--multi_hot_distribution_type.");
  EXPECT_EQ(read("torchrun --nnodes=2 --nproc-per-node 4 --role trainer dlrm_main.py --batch_size=16").batch, 128);
  EXPECT_EQ(refused("dlrm_main.py --num_embeddings_per_feature 40,9"),
            "E0140:14: --num_embeddings_per_feature has 2 values, but Criteo's data has 26 categorical features\n");
  EXPECT_EQ(refused("dlrm_main.py --over_arch_layer_sizes=64-1"),
            "E0140:14: --over_arch_layer_sizes is sizes with commas between them, found `64-1`\n");
  EXPECT_THAT(refused("dlrm_main.py --interaction_type projection"), HasSubstr("E0141:14: --interaction_type=proj"));
}

TEST(DlrmArguments, WithoutAScriptBelongToTheOneThatHasThem) {
  const DlrmCommand one = read("--batch_size=64 --seed=5");
  ASSERT_EQ(one.model.recommender->tables.size(), 26U);
  EXPECT_EQ(one.model.recommender->tables[3].rows, 100'000);
  EXPECT_EQ(one.batch, 64);
  EXPECT_EQ(one.training.optimizer.learning_rate, 15) << "the script's default";
  EXPECT_EQ(one.training.steps, 10) << "of drawn data";
  EXPECT_EQ(one.training.generated, (GeneratedSamples{640, 5}));
  ASSERT_EQ(one.notes.size(), 2U);
  EXPECT_THAT(one.notes[0], HasSubstr("is of one process"));
  EXPECT_EQ(refused("--batch_size=64 --arch-mlp-bot=4-2"),
            "E0140:17: the benchmark has no argument `--arch-mlp-bot`\n");
}

}  // namespace dlrm_arguments_test
}  // namespace orrery::plan
