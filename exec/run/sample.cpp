// Draws tokens from forward passes.
#include "exec/run/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/ensure.h"
#include "base/random.h"
#include "clusters/read.h"
#include "exec/failure.h"
#include "exec/files/files.h"
#include "exec/state/checkpoint_files.h"
#include "exec/state/generations.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "plan/spec/plan_file.h"

namespace orrery::exec {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostPlan = 64U << 20;

base::Diagnostics wrong(const char* code, const std::string& file, const std::string& message,
                        const std::string& help) {
  return {{base::Severity::error, code, {file, 0, 0, 1}, message, help, {}}};
}

/// Only a checkpoint's weights, without the optimizer's states. A tensor is requested in consecutive runs, and read
/// once.
LogicalSource weights_of(const CheckpointReader& reader) {
  struct Last {
    std::string name;
    std::vector<float> values;
  };
  return [&reader, last = std::make_shared<Last>()](const plan::ParameterRange& range, std::int64_t first,
                                                    std::span<float> out) {
    if (last->name != range.name) {
      last->values = reader.tensor(State::weight, range.name, range.tensor.logical_shape);
      last->name = range.name;
    }
    std::copy_n(last->values.begin() + first, out.size(), out.begin());
  };
}

}  // namespace

std::int32_t choose_token(std::span<const float> logits, const SampleOptions& options, double uniform) {
  ENSURE(!logits.empty(), "no logits");
  if (options.temperature <= 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < ids.size()) {
    std::partial_sort(ids.begin(), ids.begin() + options.top_k, ids.end(), [&](std::int32_t a, std::int32_t b) {
      return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
    });
    ids.resize(static_cast<std::size_t>(options.top_k));
    std::sort(ids.begin(), ids.end());
  }
  const float largest = logit(
      *std::max_element(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) { return logit(a) < logit(b); }));
  std::vector<double> upto;  // sums of values proportional to the probabilities
  for (const std::int32_t id : ids)
    upto.push_back((upto.empty() ? 0 : upto.back()) +
                   std::exp((static_cast<double>(logit(id)) - static_cast<double>(largest)) / options.temperature));
  const auto found = std::upper_bound(upto.begin(), upto.end(), uniform * upto.back());
  return ids[static_cast<std::size_t>(std::min(found, upto.end() - 1) - upto.begin())];
}

base::Result<std::unique_ptr<LanguageModel>> LanguageModel::make(const models::Model& model,
                                                                 const clusters::Cluster& cluster,
                                                                 std::int64_t sequence, Backend& backend,
                                                                 Transport& transport, const Waiter& waiter) {
  auto one = clusters::resized(cluster, 1);
  if (!one) return base::fail(one.error());
  plan::PlanSpec spec;
  spec.shape.sequence = sequence;
  spec.numerics.vocab_multiple = 1;
  auto plan = plan::make_plan(std::make_shared<const models::Model>(model),
                              std::make_shared<const clusters::Cluster>(std::move(*one)), spec);
  if (!plan) return base::fail(plan.error());
  std::unique_ptr<LanguageModel> made(new LanguageModel(std::move(*plan), backend));
  made->schedule_ = plan::lower(made->plan_, {.forward_only = true, .keep_logits = true});
  const plan::RankClass& only = made->schedule_.classes.front();
  made->placement_ = plan::place(only);
  for (const plan::BufferId i : only.buffers.keys())
    if (only.buffers[i].name == "head.logits") made->logits_ = i;
  ENSURE(made->logits_.exists(), "the forward pass keeps no logits");
  Executor::Options options;
  options.record = false;
  made->executor_ = std::make_unique<Executor>(made->schedule_, made->placement_, backend, transport, waiter, options);
  return made;
}

std::vector<float> LanguageModel::logits(std::span<const std::int32_t> ids) {
  const auto most = static_cast<std::size_t>(sequence());
  if (ids.size() > most) ids = ids.last(most);
  ENSURE(!ids.empty(), "nothing to continue from");
  StepInput input;
  // The model is causal: the last token does not see what follows it. Targets only make the loss, which is unused.
  input.load = [ids](const Instance&, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
    std::fill(tokens.begin(), tokens.end(), 0);
    std::fill(targets.begin(), targets.end(), 0);
    std::copy(ids.begin(), ids.end(), tokens.begin());
  };
  (void)executor_->run_step(input);
  const plan::Buffer& buffer = schedule_.classes.front().buffers[logits_];
  const std::int64_t columns = buffer.elements / sequence();
  std::vector<float> row(static_cast<std::size_t>(plan_.model().vocab));
  backend_.copy_to_host(std::as_writable_bytes(std::span(row)),
                        arena().data(logits_, -1) + 4 * static_cast<std::int64_t>(ids.size() - 1) * columns);
  return row;
}

void draw_tokens(LanguageModel& model, const SampleOptions& options, std::vector<std::int32_t> ids,
                 const std::function<void(std::int32_t)>& drawn) {
  const std::uint64_t stream = base::stream_of("sample");
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const std::int32_t id =
        choose_token(model.logits(ids), options, base::uniform(options.seed, stream, static_cast<std::uint64_t>(i)));
    drawn(id);
    ids.push_back(id);
  }
}

base::Result<std::string> sample_run(const fs::path& run, const SampleOptions& options, Backend& backend,
                                     Transport& transport, const Waiter& waiter, base::Diagnostics* warnings) {
  const fs::path plan_path = run / "plan.yaml";
  auto file = plan::parse_plan_file(read_file(plan_path, kMostPlan), plan_path.string());
  if (!file) return base::fail(file.error());
  if (file->model.recommender)
    return base::fail(wrong("E0624", plan_path.string(),
                            fmt::format("{} is a recommendation model: it cannot continue a text", file->model.name),
                            "sample from a causal model"));
  if (!file->model.causal)
    return base::fail(wrong("E0624", plan_path.string(),
                            fmt::format("{} is not causal: it cannot continue a text", file->model.name),
                            "sample from a causal model"));
  const Resumed newest = newest_whole(run / "checkpoints");
  base::Diagnostics damaged = passed_over(newest);
  if (!newest.from) {
    base::Diagnostics all = wrong("E0619", run.string(), "the run has no whole checkpoint to take the model from",
                                  "train it first; a checkpoint is saved at its end");
    all.insert(all.end(), damaged.begin(), damaged.end());
    return base::fail(std::move(all));
  }
  if (warnings) warnings->insert(warnings->end(), damaged.begin(), damaged.end());
  const std::string& named = options.tokenizer.empty() ? file->job.training.tokenizer : options.tokenizer;
  auto tokenizer = named.empty() ? base::Result<Tokenizer>(Tokenizer::bytes()) : Tokenizer::open(named);
  if (!tokenizer) return base::fail(tokenizer.error());
  std::vector<std::int32_t> ids;
  tokenizer->encode(options.prompt, ids);
  if (ids.empty() && tokenizer->end_of_text()) ids.push_back(*tokenizer->end_of_text());
  if (ids.empty()) tokenizer->encode("\n", ids);
  for (const std::int32_t id : ids)
    if (id >= file->model.vocab)
      return base::fail(
          wrong("E0618", named.empty() ? plan_path.string() : named,
                fmt::format("token {} of the prompt is outside the model's vocabulary of {}", id, file->model.vocab),
                "name the tokenizer that the model was trained with: training.tokenizer, or --tokenizer"));
  const std::int64_t longest =
      std::min(file->model.max_sequence, static_cast<std::int64_t>(ids.size()) + options.tokens);
  auto model =
      LanguageModel::make(file->model, file->cluster, std::max<std::int64_t>(1, longest), backend, transport, waiter);
  if (!model) return base::fail(model.error());
  const CheckpointReader reader(*newest.from);
  initialise((*model)->schedule(), 0, (*model)->arena(), backend, weights_of(reader));
  std::string text;
  draw_tokens(**model, options, ids, [&](std::int32_t id) { text += tokenizer->piece(id); });
  return text;
}

std::string printable(std::string_view text) {
  constexpr const char* kReplacement = "\xef\xbf\xbd";
  std::string out;
  while (!text.empty()) {
    const std::size_t length = sequence_at(text);
    const auto first = static_cast<unsigned char>(text.front());
    const bool control = (first < 0x20 && first != '\t' && first != '\n') || first == 0x7f ||
                         (first == 0xc2 && length == 2 && static_cast<unsigned char>(text[1]) < 0xa0);
    if (length == 0 || control)
      out += kReplacement;
    else
      out += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(1, length));
  }
  return out;
}

}  // namespace orrery::exec
