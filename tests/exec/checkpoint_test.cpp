// Checkpoints between plans: what one wrote another reads, bit for bit; what is damaged or incomplete is refused.
#include "exec/state/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "exec/engine/thread_transport.h"
#include "exec/failure.h"
#include "exec/files/files.h"
#include "exec/state/checkpoint_manifest.h"
#include "exec/state/gather_logical.h"
#include "exec/state/generations.h"
#include "exec/state/initialise.h"
#include "plan/lower/experts.h"
#include "plan/lower/lower.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace checkpoint_test {

namespace fs = std::filesystem;

class Checkpoint : public ::testing::Test {
 protected:
  Checkpoint() : folder_(fs::temp_directory_path() / ("orrery-checkpoint-" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
  }
  ~Checkpoint() override { fs::remove_all(folder_); }

  /// All ranks of a plan with fresh arenas; `body` gets each rank's context.
  static void with_plan(const plan::PlanSpec& spec, const std::function<void(const CheckpointContext&)>& body,
                        const models::Experts& experts = {}) {
    testing::Trial trial = testing::golden_trial("constant");
    trial.model.layers = 4;
    trial.model.experts = experts;
    trial.spec = spec;
    const plan::Schedule of_all = plan::lower(testing::plan_of(trial));
    ThreadWorld world(spec.mesh.ranks());
    testing::in_threads(
        spec.mesh.ranks(),
        [&](int rank) {
          plan::Schedule schedule = of_all;
          plan::name_experts(schedule, rank);
          const auto transport = world.transport(rank);
          const auto backend = make_cpu_backend(1);
          const plan::Placement placement = plan::place(schedule.class_of(rank));
          Arena arena(*backend, schedule.class_of(rank), placement, Arena::Check::overlaps);
          initialise(schedule, rank, arena, *backend, seeded_source(5));
          body({schedule, arena, *backend, *transport});
        },
        [&](const std::string& why) { world.abort(why); });
  }

  static plan::PlanSpec spec(int data, int tensor, int pipeline, int zero) {
    plan::PlanSpec s = testing::golden_trial("constant").spec;
    s.mesh.data = data;
    s.mesh.tensor = tensor;
    s.mesh.pipeline = pipeline;
    s.states.zero_stage = zero;
    return s;
  }

  /// Gives every state values of its own: seeds differ, so that swapped states would show.
  static void fill(const CheckpointContext& c) {
    for (const plan::Bucket& bucket : c.schedule.class_of(c.transport.rank()).buckets)
      for (const State state : kStates) {
        const auto source = seeded_source(100 + static_cast<std::uint64_t>(state));
        move(c, bucket, state, StateTransfer::to_device,
             [&](const Holding& h, const exec::Run& run, std::span<float> values) {
               plan::ParameterRange range = *h.range;
               range.tensor.initial_stddev = 1;
               source(range, run.logical, values);
             });
      }
  }
  static void move(const CheckpointContext& c, const plan::Bucket& bucket, State state, StateTransfer direction,
                   const Visit& visit) {
    const int rank = c.transport.rank();
    const plan::RankClass& rank_class = c.schedule.class_of(rank);
    const plan::BufferId buffer = buffer_of(bucket, state);
    const plan::Holders holders = c.schedule.spec.holders(bucket.experts);
    transfer(c.arena.data(buffer, -1), models::DType::fp32, holdings(rank_class, bucket, buffer, holders.shard(rank)),
             holders.part(rank), c.backend, direction, visit);
  }
  /// Every state holds what fill() gave it.
  static void expect_filled(const CheckpointContext& c) {
    for (const plan::Bucket& bucket : c.schedule.class_of(c.transport.rank()).buckets)
      for (const State state : kStates) {
        const auto source = seeded_source(100 + static_cast<std::uint64_t>(state));
        move(c, bucket, state, StateTransfer::from_device,
             [&](const Holding& h, const exec::Run& run, std::span<float> values) {
               plan::ParameterRange range = *h.range;
               range.tensor.initial_stddev = 1;
               std::vector<float> expected(values.size());
               source(range, run.logical, expected);
               EXPECT_EQ(std::memcmp(expected.data(), values.data(), values.size_bytes()), 0)
                   << h.range->name << " " << name_of(state);
             });
      }
  }
  void save(const plan::PlanSpec& s, std::int64_t step, const models::Experts& experts = {}) {
    with_plan(
        s,
        [&](const CheckpointContext& c) {
          fill(c);
          save_checkpoint(c, folder_, step);
        },
        experts);
  }
  fs::path folder_;
};

// All ordered pairs of ten plans: 90 of different ones, and each to itself.
TEST_F(Checkpoint, OfAnyPlanIsReadByAnyOther) {
  std::vector<plan::PlanSpec> specs = {spec(1, 1, 1, 0), spec(2, 1, 1, 1), spec(1, 4, 1, 0), spec(2, 1, 2, 3),
                                       spec(2, 2, 1, 2), spec(3, 1, 1, 3), spec(1, 1, 2, 0), spec(1, 2, 2, 1),
                                       spec(4, 1, 1, 3), spec(2, 1, 2, 1)};
  specs[5].shape.batch = 6;
  specs[6].stages.virtual_stages = 2, specs[6].shape.micro_batch = 1;  // interleaved
  specs[7].mesh.context = 2, specs[7].stages.layers_per_stage = {3, 1};
  specs[8].states.zero_group = 2;
  specs[9].stages.order = plan::Order::dualpipe, specs[9].stages.virtual_stages = 2, specs[9].shape.micro_batch = 1;
  for (std::size_t from = 0; from < specs.size(); ++from) {
    fs::remove_all(folder_);
    save(specs[from], 3);
    for (std::size_t to = 0; to < specs.size(); ++to) {
      SCOPED_TRACE(plan::describe(specs[from]) + " -> " + plan::describe(specs[to]));
      with_plan(specs[to], [&](const CheckpointContext& c) {
        EXPECT_EQ(load_checkpoint(c, folder_ / "step-000003"), 3);
        expect_filled(c);
      });
    }
  }
}

// Which rank has an expert is a plan's, not the checkpoint's.
TEST_F(Checkpoint, OfExpertsIsReadByRanksThatDivideThemOtherwise) {
  const models::Experts experts = {.count = 4, .chosen = 2, .hidden = 16, .balance_bias = true};
  std::vector<plan::PlanSpec> specs = {spec(1, 1, 1, 0), spec(2, 1, 1, 0), spec(4, 1, 1, 1),
                                       spec(4, 1, 1, 3), spec(2, 2, 1, 2), spec(2, 1, 2, 0),
                                       spec(1, 2, 1, 0), spec(1, 4, 1, 0), spec(4, 1, 1, 1)};
  specs[1].mesh.expert = 2;
  specs[2].mesh.expert = 2;
  specs[3].mesh.expert = 4;
  specs[4].mesh.expert = 4, specs[4].mesh.expert_tensor = 1, specs[4].mesh.sequence_parallel = true;
  specs[5].mesh.expert = 2;
  specs[7].mesh.expert = specs[7].mesh.expert_tensor = 2, specs[7].mesh.sequence_parallel = true;
  specs[8].mesh.expert = specs[8].mesh.expert_tensor = 2;
  for (std::size_t from = 0; from < specs.size(); ++from) {
    fs::remove_all(folder_);
    save(specs[from], 3, experts);
    for (std::size_t to = 0; to < specs.size(); ++to) {
      SCOPED_TRACE(plan::describe(specs[from]) + " -> " + plan::describe(specs[to]));
      with_plan(
          specs[to],
          [&](const CheckpointContext& c) {
            EXPECT_EQ(load_checkpoint(c, folder_ / "step-000003"), 3);
            expect_filled(c);
          },
          experts);
    }
  }
}

TEST_F(Checkpoint, OfAnotherNumberOfExpertsIsRefusedByName) {
  save(spec(2, 1, 1, 0), 3, {.count = 8, .chosen = 2, .hidden = 16});
  with_plan(spec(2, 1, 1, 0),
            [&](const CheckpointContext& c) {
              try {
                (void)load_checkpoint(c, folder_ / "step-000003");
                ADD_FAILURE() << "a checkpoint of 8 experts was taken for one of 4";
              } catch (const Failure& failure) {
                EXPECT_NE(std::string(failure.what()).find("mlp."), std::string::npos) << failure.what();
              }
            },
            {.count = 4, .chosen = 2, .hidden = 16});
}

TEST_F(Checkpoint, HoldsWhatWasThereWhenItWasBegun) {
  with_plan(spec(2, 1, 2, 1), [&](const CheckpointContext& c) {
    fill(c);
    CheckpointSaver saver(c, folder_, 2);
    saver.begin(4);
    for (const plan::Bucket& bucket : c.schedule.class_of(c.transport.rank()).buckets)  // the next step's updates
      for (const State state : kStates)
        move(c, bucket, state, StateTransfer::to_device, [](const Holding&, const exec::Run&, std::span<float> values) {
          std::fill(values.begin(), values.end(), 9.0F);
        });
    EXPECT_TRUE(saver.pending());
    EXPECT_EQ(saver.commit(), 4);
    EXPECT_FALSE(saver.pending());
  });
  with_plan(spec(1, 2, 1, 0), [&](const CheckpointContext& c) {
    EXPECT_EQ(load_checkpoint(c, folder_ / "step-000004"), 4);
    expect_filled(c);
  });
}

TEST_F(Checkpoint, ThatIsNotCommittedIsNone) {
  save(spec(1, 1, 1, 0), 2);
  with_plan(spec(2, 1, 1, 1), [&](const CheckpointContext& c) {
    CheckpointSaver saver(c, folder_, 2);
    saver.begin(3);
    while (!saver.written()) std::this_thread::yield();
    c.transport.barrier();  // the machine dies here
  });
  EXPECT_TRUE(fs::exists(folder_ / "step-000003.tmp"));
  EXPECT_EQ(latest_checkpoint(folder_), folder_ / "step-000002");
  save(spec(2, 1, 1, 1), 3);
  EXPECT_FALSE(fs::exists(folder_ / "step-000003.tmp"));
  EXPECT_EQ(latest_checkpoint(folder_), folder_ / "step-000003");
}

TEST_F(Checkpoint, ThatCouldNotBeWrittenFailsTheCommit) {
  with_plan(spec(1, 1, 1, 0), [&](const CheckpointContext& c) {
    CheckpointSaver saver(c, folder_ / "gone", 2);
    fs::create_directories(folder_);
    std::ofstream(folder_ / "gone") << "a file where the folder should be";
    EXPECT_ANY_THROW({
      saver.begin(1);
      (void)saver.commit();
    });
  });
  EXPECT_FALSE(latest_checkpoint(folder_ / "gone"));
}

TEST_F(Checkpoint, KeepsAsManyAsAsked) {
  with_plan(spec(1, 1, 1, 0), [&](const CheckpointContext& c) {
    for (std::int64_t step = 1; step <= 6; ++step) save_checkpoint(c, folder_, step, 4);
  });
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_)) ++entries;
  EXPECT_EQ(entries, 4U);
  EXPECT_TRUE(fs::exists(folder_ / "step-000003"));
}

TEST_F(Checkpoint, KeepsTheNewestTwoAndLeavesNoTemporaryBehind) {
  for (const std::int64_t step : {5, 10, 15}) save(spec(2, 1, 1, 1), step);
  EXPECT_EQ(latest_checkpoint(folder_), folder_ / "step-000015");
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_)) ++entries;
  EXPECT_EQ(entries, 2U);
}

// What reads a run by itself (export, samples) falls back as --resume does, and says so.
TEST_F(Checkpoint, ThatIsDamagedIsPassedOverForTheOneBefore) {
  for (const std::int64_t step : {5, 10}) save(spec(2, 1, 1, 1), step);
  EXPECT_EQ(newest_whole(folder_).from, folder_ / "step-000010");
  {
    std::fstream shard(folder_ / "step-000010/rank-00001.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(shard.seekp(-3, std::ios::end).put('x'));
  }
  const Resumed found = newest_whole(folder_);
  EXPECT_EQ(found.from, folder_ / "step-000005");
  const base::Diagnostics said = passed_over(found);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said.front().code, "E0642");
  EXPECT_NE(said.front().message.find("rank-00001"), std::string::npos) << said.front().message;
  fs::remove_all(folder_ / "step-000005");
  EXPECT_FALSE(newest_whole(folder_).from);
}

TEST_F(Checkpoint, WithoutAManifestIsNoCheckpoint) {
  save(spec(1, 1, 1, 0), 5);
  save(spec(1, 1, 1, 0), 6);
  fs::remove(folder_ / "step-000006/manifest.json");
  EXPECT_EQ(latest_checkpoint(folder_), folder_ / "step-000005");
  fs::remove_all(folder_);
  EXPECT_FALSE(latest_checkpoint(folder_));
}

TEST_F(Checkpoint, IsRefusedWhenABitFlipsAFileIsCutOrAPartIsMissing) {
  const auto refused = [&](const char* why) {
    try {
      with_plan(spec(2, 1, 1, 1),
                [&](const CheckpointContext& c) { (void)load_checkpoint(c, folder_ / "step-000001"); });
      ADD_FAILURE() << "accepted, expected: " << why;
    } catch (const Failure& failure) {
      EXPECT_NE(std::string(failure.what()).find(why), std::string::npos) << failure.what();
    }
  };
  const fs::path file = folder_ / "step-000001/rank-00001.safetensors",
                 manifest = folder_ / "step-000001/manifest.json";
  save(spec(2, 1, 1, 1), 1);
  const std::string good = read_file(file, 1 << 24), list = read_file(manifest, 1 << 24);
  for (const std::size_t at : {std::size_t{3}, good.size() / 2, good.size() - 1}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    write_atomically(file, bad);
    refused("damaged");
  }
  write_atomically(file, good.substr(0, good.size() - 4));
  refused("the manifest says");
  fs::remove(file);
  refused("rank-00001");
  write_atomically(file, good);
  std::string without = list;
  const std::size_t name = without.find("\"tensor\": \"h.1.mlp.fc.weight\"");
  ASSERT_NE(name, std::string::npos);
  without.replace(name, 29, "\"tensor\": \"h.9.mlp.fc.weight\"");
  write_atomically(manifest, without);
  refused("manifest.json: damaged in bytes 0 to");
  write_atomically(manifest, seal_manifest(without.substr(0, without.rfind(",\n \"checksum\"")) + "\n}\n"));
  refused(".mlp.fc.weight");
  write_atomically(manifest, list.substr(0, list.size() / 2));
  refused("not a checkpoint manifest");
}

TEST(Manifest, NamesTheFormatOfItsDataAndRefusesAnUnknownOne) {
  Manifest head;
  head.data = DataMark{5, DataFormat::criteo_binary, 3};
  const std::string share =
      R"({"file":{"name":"f","bytes":24,"crc32":0,"header_bytes":8,"header_crc32":0},"parts":[)"
      R"({"file":"f","key":"k","state":"weight","tensor":"t",)"
      R"("logical_shape":[4],"part_shape":[4],"split_axis":0,"split_index":0,"begin":0,"end":4}]})";
  std::string text = join_shares(head, {share});
  EXPECT_EQ(parse_manifest(text, "m").data, head.data);
  EXPECT_EQ(describe(*head.data), "5 samples (criteo-binary), crc32:00000003");
  const std::string word = "criteo-binary";
  text.replace(text.find(word), word.size(), "words");
  text = seal_manifest(text.substr(0, text.rfind(",\n \"checksum\"")) + "\n}\n");
  EXPECT_THROW((void)parse_manifest(text, "m"), Failure);
}

TEST(Manifest, RefusesPartsThatContradictThemselves) {
  const auto manifest = [](const std::string& part) {
    return R"({"format_version":"1.0","step":1,"files":[{"name":"f","bytes":24,"crc32":0}],"parts":[)" + part + "]}";
  };
  const auto part = [](const std::string& file, const std::string& shape, int begin, int end) {
    return R"({"file":")" + file + R"(","key":"k","state":"weight","tensor":"t","logical_shape":[4],"part_shape":)" +
           shape + R"(,"split_axis":0,"split_index":0,"begin":)" + std::to_string(begin) + R"(,"end":)" +
           std::to_string(end) + "}";
  };
  EXPECT_EQ(parse_manifest(manifest(part("f", "[4]", 0, 4)), "m").parts.size(), 1U);
  EXPECT_THROW((void)parse_manifest(manifest(part("../f", "[4]", 0, 4)), "m"), Failure);
  EXPECT_THROW((void)parse_manifest(manifest(part("f", "[4]", 0, 5)), "m"), Failure);
  EXPECT_THROW((void)parse_manifest(manifest(part("f", "[4]", 3, 3)), "m"), Failure);
  EXPECT_THROW((void)parse_manifest(manifest(part("f", "[-4]", 0, 4)), "m"), Failure);
  EXPECT_THROW((void)parse_manifest(manifest(part("f", "[2,2]", 0, 4)), "m"), Failure);
  EXPECT_THROW((void)parse_manifest(manifest(part("g", "[4]", 0, 4)), "m"), Failure) << "a file that is not listed";
  EXPECT_THROW((void)parse_manifest(R"({"format_version":"2.0"})", "m"), Failure);
  EXPECT_THROW((void)parse_manifest(std::string(200'000, '['), "m"), Failure);
}

}  // namespace checkpoint_test
}  // namespace orrery::exec
