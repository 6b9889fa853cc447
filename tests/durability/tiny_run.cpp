// Two ranks with a model of a thousand parameters.
#include "tests/durability/tiny_run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "exec/engine/logical.h"
#include "exec/engine/thread_transport.h"
#include "exec/state/checkpoint_files.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "tests/exec/training.h"

namespace orrery::exec::testing {

namespace fs = std::filesystem;

namespace {

int cases_asked = 0;

/// What an element of a tensor has after a step of a run.
float value_of(const std::string& job, std::int64_t step, State state, const std::string& tensor, std::int64_t index) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&](std::uint64_t word) { hash = (hash ^ word) * 0x100000001b3; };
  for (const char c : job) mix(static_cast<unsigned char>(c));
  for (const char c : tensor) mix(static_cast<unsigned char>(c));
  mix(static_cast<std::uint64_t>(step) * 64 + static_cast<std::uint64_t>(state));
  mix(static_cast<std::uint64_t>(index));
  return static_cast<float>(hash >> 40) + 1;
}

void visit_all(const CheckpointContext& c, StateTransfer direction,
               const std::function<void(State, const std::string&, const exec::Run&, std::span<float>)>& body) {
  const int rank = c.transport.rank();
  const plan::RankClass& rank_class = c.schedule.class_of(rank);
  for (const plan::Bucket& bucket : rank_class.buckets)
    for (const State state : kStates) {
      const plan::BufferId buffer = buffer_of(bucket, state);
      transfer(c.arena.data(buffer, -1), models::DType::fp32,
               holdings(rank_class, bucket, buffer, c.schedule.spec.shard_index(rank)), 0, c.backend, direction,
               [&](const Holding& holding, const exec::Run& run, std::span<float> values) {
                 body(state, holding.range->name, run, values);
               });
    }
}

void fill(const CheckpointContext& c, const std::string& job, std::int64_t step) {
  visit_all(c, StateTransfer::to_device,
            [&](State state, const std::string& name, const exec::Run& run, std::span<float> values) {
              for (std::size_t i = 0; i < values.size(); ++i)
                values[i] = value_of(job, step, state, name, run.logical + static_cast<std::int64_t>(i));
            });
}

}  // namespace

Scratch::Scratch() {
  static std::atomic<int> number{0};
  const fs::path memory = "/dev/shm";
  const fs::path base = ::access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path();
  path_ = base / ("orrery-durability-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
  fs::remove_all(path_);
  fs::create_directories(path_);
}

Scratch::~Scratch() {
  fs::remove_all(path_);
}

struct TinyRun::Rank {
  Rank(const plan::Schedule& schedule, int rank)
      : backend(make_cpu_backend(1)),
        placement(plan::place(schedule.class_of(rank))),
        arena(*backend, schedule.class_of(rank), placement, Arena::Check::none) {
    initialise(schedule, rank, arena, *backend, seeded_source(5));
  }
  std::unique_ptr<Backend> backend;
  plan::Placement placement;
  Arena arena;
};

TinyRun::TinyRun(std::string job) : job_(std::move(job)) {
  Trial trial = golden_trial("constant");
  models::Model& m = trial.model;
  m.layers = 1;
  m.hidden = 8;
  m.heads = m.kv_heads = 2;
  m.head_dim = 4;
  m.ffn_hidden = 16;
  m.vocab = 16;
  m.max_sequence = 8;
  trial.spec.shape.sequence = 8;
  trial.spec.numerics.vocab_multiple = 16;
  trial.spec.mesh.data = 2;
  trial.spec.states.zero_stage = 1;
  schedule_ = std::make_unique<plan::Schedule>(plan::lower(plan_of(trial)));
  for (int rank = 0; rank < 2; ++rank) ranks_.push_back(std::make_unique<Rank>(*schedule_, rank));
}

TinyRun::~TinyRun() = default;

void TinyRun::on_ranks(const std::function<void(const CheckpointContext&)>& body) {
  ThreadWorld world(2);
  std::atomic<int> threw{0};
  std::vector<std::string> said(2);
  const auto one = [&](int rank) {
    const auto transport = world.transport(rank);
    Rank& mine = *ranks_[static_cast<std::size_t>(rank)];
    try {
      body({*schedule_, mine.arena, *mine.backend, *transport});
    } catch (const std::exception& error) {
      ++threw;
      said[static_cast<std::size_t>(rank)] = error.what();
      throw;
    }
  };
  // Nobody is told to stop waiting: a rank that fails alone leaves the other in a wait, and the test runs out of time.
  try {
    in_threads(2, one, [](const std::string&) {});
  } catch (...) {
    EXPECT_EQ(threw, 2) << said[0] << said[1];
    EXPECT_EQ(said[0], said[1]);
    throw;
  }
}

std::vector<std::string> TinyRun::save(const fs::path& folder, std::int64_t step, int keep) {
  std::vector<std::string> warnings;
  on_ranks([&](const CheckpointContext& c) {
    fill(c, job_, step);
    CheckpointSaver saver(c, folder, keep);
    CheckpointNotes notes;
    notes.job = job_;
    if (c.transport.rank() == 0) notes.warn = [&](const std::string& what) { warnings.push_back(what); };
    saver.describe(std::move(notes));
    saver.begin(step);
    (void)saver.commit();
  });
  return warnings;
}

Resumed TinyRun::resume(const fs::path& folder) {
  Resumed out;
  on_ranks([&](const CheckpointContext& c) {
    visit_all(c, StateTransfer::to_device, [](State, const std::string&, const exec::Run&, std::span<float> values) {
      std::fill(values.begin(), values.end(), 0.0F);
    });
    Resumed mine = load_newest(c, folder);
    if (c.transport.rank() == 0) out = std::move(mine);
  });
  return out;
}

bool TinyRun::holds(std::int64_t step) {
  std::atomic<bool> all{true};
  on_ranks([&](const CheckpointContext& c) {
    visit_all(c, StateTransfer::from_device,
              [&](State state, const std::string& name, const exec::Run& run, std::span<float> values) {
                for (std::size_t i = 0; i < values.size(); ++i)
                  if (values[i] != value_of(job_, step, state, name, run.logical + static_cast<std::int64_t>(i)))
                    all = false;
              });
  });
  return all;
}

std::vector<std::string> debris_in(const fs::path& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".tmp") out.push_back(it->path().string());
  return out;
}

int cases(int otherwise) {
  return cases_asked > 0 ? cases_asked : otherwise;
}

int run_tests(int count, char** arguments) {
  ::testing::InitGoogleTest(&count, arguments);
  for (int i = 1; i + 1 < count; ++i)
    if (std::string_view(arguments[i]) == "--cases") cases_asked = std::atoi(arguments[i + 1]);
  return RUN_ALL_TESTS();
}

}  // namespace orrery::exec::testing
