// Sampling: the forward pass is the trained model's, draws follow their probabilities, and greedy text is its argmax.
#include "exec/run/sample.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <map>

#include "exec/engine/thread_transport.h"
#include "exec/files/files.h"
#include "exec/run/run.h"
#include "exec/state/checkpoint.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace sample_test {

namespace fs = std::filesystem;
using testing::Trial;

const std::vector<float> kLogits = {0.0F, 2.0F, 1.0F, 2.0F, -1.0F};

TEST(ChooseToken, IsTheFirstOfTheLargestAtTemperatureZero) {
  SampleOptions greedy;
  greedy.temperature = 0;
  for (const double uniform : {0.0, 0.5, 0.999}) EXPECT_EQ(choose_token(kLogits, greedy, uniform), 1);
  EXPECT_EQ(choose_token(std::vector<float>{-3.0F}, greedy, 0.7), 0);
}

TEST(ChooseToken, FollowsTheProbabilities) {
  SampleOptions options;
  options.temperature = 0.5;
  std::map<std::int32_t, int> count;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) ++count[choose_token(kLogits, options, (i + 0.5) / kDraws)];
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(static_cast<double>(logit) / 0.5);
  for (std::size_t id = 0; id < kLogits.size(); ++id)
    EXPECT_NEAR(count[static_cast<std::int32_t>(id)] / static_cast<double>(kDraws),
                std::exp(static_cast<double>(kLogits[id]) / 0.5) / sum, 2.0 / kDraws);
}

TEST(ChooseToken, TakesOnlyTheMostLikely) {
  SampleOptions options;
  options.top_k = 2;
  for (int i = 0; i < 100; ++i) {
    const std::int32_t id = choose_token(kLogits, options, i / 100.0);
    EXPECT_TRUE(id == 1 || id == 3) << id;
  }
  options.top_k = 1;
  EXPECT_EQ(choose_token(kLogits, options, 0.99), 1) << "of equal ones the first";
  options.top_k = 99;
  EXPECT_EQ(choose_token(kLogits, options, 0), 0);
}

TEST(Printable, ReplacesWhatATerminalMustNotGet) {
  EXPECT_EQ(printable("a\tb\né🙂"), "a\tb\né🙂");
  EXPECT_EQ(printable("\x1b[31m"), "\xef\xbf\xbd[31m");
  EXPECT_EQ(printable(std::string("\xff\0\x7f\xc2\x9b", 5)), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

/// The golden model before its first step, on one rank.
class Sample : public ::testing::Test {
 protected:
  Sample() : folder_(fs::temp_directory_path() / ("orrery-sample-" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
  }
  ~Sample() override { fs::remove_all(folder_); }

  std::unique_ptr<LanguageModel> model(std::int64_t sequence) {
    auto made = LanguageModel::make(trial_.model, testing::plan_of(trial_).cluster(), sequence, *backend_, *transport_,
                                    waiter_);
    if (!made) throw std::runtime_error(base::render(made.error(), false));
    return std::move(*made);
  }
  void load_initial(LanguageModel& model) {
    const auto file = SafetensorsFile::open(trial_.training.initial_weights);
    const auto source = file_source(*file, model.schedule());
    initialise(model.schedule(), 0, model.arena(), *backend_, *source);
  }

  Trial trial_ = testing::golden_trial("constant");
  ThreadWorld world_{1};
  std::unique_ptr<Transport> transport_ = world_.transport(0);
  std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  Waiter waiter_{wait_policy(1, 1, std::chrono::seconds(60))};
  fs::path folder_;
};

// The golden run's first loss (PyTorch's, float64 within 1e-7) from the logits of every position, each asked for alone.
TEST_F(Sample, LogitsAreThoseOfTheTrainedModel) {
  const auto golden_loss = testing::train([&] {
                             Trial one = trial_;
                             one.steps = 1;
                             one.gradients_at = {};
                             return one;
                           }())
                               .steps.front()
                               .loss;
  const auto one = model(trial_.spec.shape.sequence);
  load_initial(*one);
  const auto stream = TokenStream::open(trial_.training.data);
  double sum = 0;
  std::int64_t count = 0;
  std::vector<std::int32_t> window(static_cast<std::size_t>(trial_.spec.shape.sequence) + 1);
  for (std::int64_t row = 0; row < trial_.spec.shape.batch; ++row) {
    stream->read(row * trial_.spec.shape.sequence, window, trial_.model.vocab);
    for (std::size_t t = 1; t < window.size(); ++t, ++count) {
      const std::vector<float> logits = one->logits(std::span(window).first(t));
      ASSERT_EQ(logits.size(), static_cast<std::size_t>(trial_.model.vocab));
      double total = 0;
      for (const float logit : logits) total += std::exp(static_cast<double>(logit));
      sum += std::log(total) - static_cast<double>(logits[static_cast<std::size_t>(window[t])]);
    }
  }
  EXPECT_NEAR(sum / static_cast<double>(count), golden_loss, 1e-6 * golden_loss);
}

TEST_F(Sample, OfALongTextTheLastTokensCount) {
  const auto one = model(4);
  load_initial(*one);
  const std::vector<std::int32_t> text = {5, 9, 1, 44, 3, 17};
  EXPECT_EQ(one->logits(text), one->logits(std::span(text).last(4)));
}

TEST_F(Sample, GreedyTextIsTheLogitsArgmaxEachTime) {
  SampleOptions greedy;
  greedy.temperature = 0;
  greedy.tokens = 40;  // longer than the model's 32 positions
  const auto one = model(trial_.model.max_sequence);
  load_initial(*one);
  std::vector<std::int32_t> drawn, ids = {7, 3};
  draw_tokens(*one, greedy, ids, [&](std::int32_t id) { drawn.push_back(id); });
  ASSERT_EQ(drawn.size(), 40U);
  for (const std::int32_t id : drawn) {
    const std::vector<float> logits = one->logits(ids);
    EXPECT_EQ(id, std::max_element(logits.begin(), logits.end()) - logits.begin());
    ids.push_back(id);
  }
}

TEST_F(Sample, DrawsAreRepeatedByTheirSeedAlone) {
  const auto one = model(16);
  load_initial(*one);
  const auto drawn = [&](std::uint64_t seed) {
    SampleOptions options;
    options.tokens = 12;
    options.seed = seed;
    std::vector<std::int32_t> out;
    draw_tokens(*one, options, {1}, [&](std::int32_t id) { out.push_back(id); });
    return out;
  };
  EXPECT_EQ(drawn(3), drawn(3));
  EXPECT_NE(drawn(3), drawn(4));
}

TEST_F(Sample, OfARunComesFromItsNewestCheckpointWhateverThePlan) {
  trial_.model.vocab = 256;
  trial_.training.initial_weights.clear();
  std::map<std::string, std::string> texts;
  for (const int ways : {1, 2}) {
    Trial trial = trial_;
    trial.spec.mesh.tensor = trial.spec.mesh.pipeline = ways;
    const plan::Plan plan = testing::plan_of(trial);
    const plan::Schedule schedule = plan::lower(plan);
    ThreadWorld world(plan.spec().mesh.ranks());
    testing::in_threads(
        plan.spec().mesh.ranks(),
        [&](int rank) {
          const auto transport = world.transport(rank);
          const auto backend = make_cpu_backend(1);
          RunOptions options;
          options.directory = folder_ / std::to_string(ways);
          options.plan_text = testing::plan_text(trial);
          options.steps = 3;
          ASSERT_TRUE(run(plan, trial.training, schedule, *backend, *transport, waiter_, options));
        },
        [&](const std::string& why) { world.abort(why); });
    SampleOptions greedy;
    greedy.temperature = 0;
    greedy.tokens = 20;
    greedy.prompt = "orrery";
    const auto text = sample_run(folder_ / std::to_string(ways), greedy, *backend_, *transport_, waiter_);
    ASSERT_TRUE(text) << base::render(text.error(), false);
    EXPECT_EQ(text->size(), 20U);
    texts[*text] = std::to_string(ways);
  }
  EXPECT_EQ(texts.size(), 1U) << "two plans of one run say different things";
}

TEST_F(Sample, SaysWhatItLacks) {
  fs::create_directories(folder_);
  write_atomically(folder_ / "plan.yaml", testing::plan_text(trial_));
  const auto nothing = sample_run(folder_, {}, *backend_, *transport_, waiter_);
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().front().code, "E0619");
}

}  // namespace sample_test
}  // namespace orrery::exec
