// Job files: reading, writing, and the learning rate that they describe.
#include "plan/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/ensure.h"
#include "models/read.h"
#include "plan/job_compression.h"
#include "plan/job_optimizer.h"
#include "plan/words.h"

namespace orrery::plan {
namespace {

using base::Cursor;

const std::vector<std::string> kDataOrderWords = {"sequential", "shuffled"};
const std::vector<std::string> kDecayWords = {"none", "cosine", "linear", "inverse_square_root", "wsd"};

// A scalar or a list, each value once; a list that is given but empty leaves the search nothing.
template <class T, class Read>
std::vector<T> choices(const Cursor& at, const Read& read) {
  std::vector<T> values;
  const std::vector<Cursor> items = at.one_or_many();
  if (at.is_sequence() && items.empty()) {
    at.error("E0121", fmt::format("`{}` is empty and leaves nothing to choose from", at.path()),
             "remove the key to leave it free");
  }
  for (const Cursor& item : items) {
    const T value = read(item);
    if (std::find(values.begin(), values.end(), value) == values.end()) {
      values.push_back(value);
    } else if (!at.findings().failed()) {
      item.error("E0121", fmt::format("`{}` names this value twice", at.path()), "keep one of them");
    }
  }
  return values;
}

std::vector<int> degrees(const Cursor& at, std::int64_t low = 1, std::int64_t high = kMostRanks) {
  return choices<int>(at, [&](const Cursor& item) { return small(item, low, high, static_cast<int>(low)); });
}

Bounds read_bounds(const Cursor& at) {
  Bounds b;
  b.data = degrees(at.optional("data"));
  b.tensor = degrees(at.optional("tensor"));
  b.pipeline = degrees(at.optional("pipeline"));
  b.context = degrees(at.optional("context"));
  b.expert = degrees(at.optional("expert"));
  b.virtual_stages = degrees(at.optional("virtual_stages"), 1, kMostLayers);
  b.micro_batch = degrees(at.optional("micro_batch"), 1, kMostBatch);
  b.zero_stage = degrees(at.optional("zero_stage"), 0, 3);
  b.schedule = choices<Order>(at.optional("schedule"),
                              [](const Cursor& item) { return choose(item, kOrderWords, Order::gpipe); });
  b.recompute = choices<Recompute>(at.optional("recompute"),
                                   [](const Cursor& item) { return choose(item, kRecomputeWords, Recompute::none); });
  for (const Cursor& item : at.optional("layers_per_stage").items()) {
    b.layers_per_stage.push_back(item.integer(0, kMostLayers, 1));
  }
  if (const Cursor flash = at.optional("flash"); flash.exists()) b.flash = flash.boolean(true);
  if (const Cursor old = at.optional("staleness"); old.exists()) b.staleness = small(old, 0, kMostStaleness, 0);
  b.sequence_parallel =
      choices<bool>(at.optional("sequence_parallel"), [](const Cursor& item) { return item.boolean(false); });
  if (const Cursor layers = at.optional("recompute_layers"); layers.exists())
    b.recompute_layers = layers.integer(0, kMostLayers, 0);
  if (const Cursor ends = at.optional("ends_as_layers"); ends.exists()) b.ends_as_layers = ends.boolean(false);
  if (const Cursor early = at.optional("overlap_gradients"); early.exists()) b.overlap_gradients = early.boolean(true);
  b.zero_group = degrees(at.optional("zero_group"), 0);
  const Cursor offload = at.optional("offload");
  const auto spaces = [&](const char* key) {
    return choices<Space>(offload.optional(key),
                          [](const Cursor& item) { return choose(item, kSpaceWords, Space::device); });
  };
  b.offload_activations = spaces("activations");
  b.offload_optimizer = spaces("optimizer");
  b.offload_parameters = spaces("parameters");
  if (const Cursor prefetch = offload.optional("prefetch"); prefetch.exists())
    b.offload_prefetch = small(prefetch, 1, kMostPrefetch, 1);
  const Cursor compression = at.optional("compression");
  b.compress_gradients = choices<GradientCompression>(
      compression.optional("gradients"), [](const Cursor& item) { return read_gradient_compression(item); });
  b.compress_activations = choices<ActivationEncoding>(
      compression.optional("activations"), [](const Cursor& item) { return read_activation_encoding(item); });
  if (const Cursor rank = compression.optional("rank"); rank.exists()) b.compress_rank = read_rank(rank);
  if (const Cursor rate = compression.optional("minimum_rate"); rate.exists())
    b.compress_minimum_rate = read_minimum_rate(rate);
  b.compress_group =
      choices<int>(compression.optional("group"), [](const Cursor& item) { return read_exchange_group(item); });
  if (const Cursor share = compression.optional("capacity"); share.exists()) b.compress_capacity = read_capacity(share);
  if (const Cursor start = compression.optional("start"); start.exists()) b.compress_start = read_start(start);
  b.loss_chunks = degrees(at.optional("loss_chunks"), 1, kMostLossChunks);
  return b;
}

LearningRateSchedule read_schedule(const Cursor& at, const Training& training) {
  LearningRateSchedule s;
  if (at.is_scalar()) {
    (void)at.choice({"constant"});
    return s;
  }
  const Cursor warmup = at.optional("warmup_steps");
  s.warmup_steps = warmup.integer(0, kMostSteps, 0);
  s.decay = choose(at.optional("decay"), kDecayWords, s.decay);
  const Cursor decay_steps = at.optional("decay_steps");
  s.decay_steps = decay_steps.integer(1, kMostSteps, 0);
  const Cursor minimum = at.optional("minimum");
  s.minimum = minimum.number(0, 1e3, 0);
  if (s.minimum > training.optimizer.learning_rate) {
    minimum.error("E0121",
                  fmt::format("minimum {} is above the learning rate {}", s.minimum, training.optimizer.learning_rate));
  }
  if (s.warmup_steps > training.steps) {
    warmup.warning("E0122",
                   fmt::format("{} warm-up steps are more than the run's {} steps", s.warmup_steps, training.steps),
                   "the learning rate is never reached");
  }
  if (minimum.exists() && s.decay == Decay::none) {
    minimum.warning("E0122", "minimum has no effect without decay", "add `decay: cosine`");
  }
  if (decay_steps.exists() && s.decay != Decay::wsd) {
    decay_steps.warning("E0122", "decay_steps has no effect without `decay: wsd`", "the others decay to the run's end");
  }
  if (s.decay == Decay::wsd && s.warmup_steps + s.decay_steps > training.steps) {
    decay_steps.warning("E0122",
                        fmt::format("{} steps of warm-up and {} of decay are more than the run's {} steps",
                                    s.warmup_steps, s.decay_steps, training.steps),
                        "the decay begins within the warm-up");
  }
  return s;
}

Evaluation read_evaluation(const Cursor& at) {
  Evaluation e;
  e.data = at.at("data").text();
  e.every = at.optional("every").integer(1, kMostSteps, e.every);
  e.batches = at.optional("batches").integer(1, kMostSteps, e.batches);
  return e;
}

Training read_training(const Cursor& at) {
  Training t;
  t.steps = at.optional("steps").integer(1, kMostSteps, t.steps);
  t.data = at.optional("data").text();
  t.tokenizer = at.optional("tokenizer").text();
  t.order = choose(at.optional("order"), kDataOrderWords, t.order);
  t.initial_weights = at.optional("initial_weights").text();
  t.optimizer = read_optimizer(at.optional("optimizer"));
  t.schedule = read_schedule(at.optional("learning_rate_schedule"), t);
  if (const Cursor clip = at.optional("clip_norm"); clip.exists()) t.clip_norm = clip.number(1e-30, 1e30, 1);
  const Cursor scaling = at.optional("loss_scaling");
  t.loss_scaling.initial = scaling.optional("initial").number(1, 1e30, t.loss_scaling.initial);
  t.loss_scaling.interval = scaling.optional("interval").integer(1, kMostSteps, t.loss_scaling.interval);
  t.loss_scaling.factor = scaling.optional("factor").number(1.0001, 1e6, t.loss_scaling.factor);
  t.seed = static_cast<std::uint64_t>(at.optional("seed").integer(0, std::numeric_limits<std::int64_t>::max(), 1));
  if (const Cursor dropout = at.optional("dropout"); dropout.exists()) t.dropout = models::read_dropout(dropout);
  if (const Cursor evaluation = at.optional("evaluation"); evaluation.exists())
    t.evaluation = read_evaluation(evaluation);
  return t;
}

// Writing. Every key is written, so that a file carries the defaults of the version that wrote it.

class Writer {
 public:
  explicit Writer(int indent) : indent_(indent) {}
  template <class T>
  void line(const char* key, const T& value, int deeper = 0) {
    out_ += fmt::format("{}{}: {}\n", std::string(static_cast<std::size_t>(indent_ + deeper), ' '), key, value);
  }
  void open(const char* key, int deeper = 0) {
    out_ += fmt::format("{}{}:\n", std::string(static_cast<std::size_t>(indent_ + deeper), ' '), key);
  }
  template <class T>
  void list(const char* key, const std::vector<T>& values, int deeper) {
    if (!values.empty()) line(key, fmt::format("[{}]", fmt::join(values, ", ")), deeper);
  }
  [[nodiscard]] const std::string& text() const { return out_; }

 private:
  int indent_;
  std::string out_;
};

template <class Enum>
std::vector<std::string> words_of(const std::vector<Enum>& values) {
  std::vector<std::string> words;
  for (const Enum value : values) words.emplace_back(name_of(value));
  return words;
}

// What stays on the device is not offloaded: `none`.
std::vector<std::string> places_of(const std::vector<Space>& values) {
  std::vector<std::string> words;
  for (const Space value : values) words.push_back(kSpaceWords[static_cast<std::size_t>(value)]);
  return words;
}

void write_bounds(Writer& w, const Bounds& b) {
  if (b == Bounds{}) return;
  w.open("plan");
  w.list("data", b.data, 2);
  w.list("tensor", b.tensor, 2);
  w.list("pipeline", b.pipeline, 2);
  w.list("context", b.context, 2);
  w.list("expert", b.expert, 2);
  w.list("virtual_stages", b.virtual_stages, 2);
  w.list("micro_batch", b.micro_batch, 2);
  w.list("zero_stage", b.zero_stage, 2);
  w.list("schedule", words_of(b.schedule), 2);
  w.list("recompute", words_of(b.recompute), 2);
  w.list("layers_per_stage", b.layers_per_stage, 2);
  if (b.flash) w.line("flash", *b.flash, 2);
  if (b.staleness) w.line("staleness", *b.staleness, 2);
  w.list("sequence_parallel", b.sequence_parallel, 2);
  if (b.recompute_layers) w.line("recompute_layers", *b.recompute_layers, 2);
  if (b.ends_as_layers) w.line("ends_as_layers", *b.ends_as_layers, 2);
  if (b.overlap_gradients) w.line("overlap_gradients", *b.overlap_gradients, 2);
  w.list("zero_group", b.zero_group, 2);
  w.list("loss_chunks", b.loss_chunks, 2);
  if (!b.compress_gradients.empty() || !b.compress_activations.empty() || b.compress_rank || b.compress_minimum_rate ||
      b.compress_capacity || !b.compress_group.empty() || b.compress_start) {
    w.open("compression", 2);
    w.list("gradients", words_of(b.compress_gradients), 4);
    w.list("activations", words_of(b.compress_activations), 4);
    if (b.compress_rank) w.line("rank", *b.compress_rank, 4);
    if (b.compress_minimum_rate) w.line("minimum_rate", *b.compress_minimum_rate, 4);
    if (b.compress_capacity) w.line("capacity", *b.compress_capacity, 4);
    w.list("group", b.compress_group, 4);
    if (b.compress_start) w.line("start", *b.compress_start, 4);
  }
  if (b.offload_activations.empty() && b.offload_optimizer.empty() && b.offload_parameters.empty() &&
      !b.offload_prefetch)
    return;
  w.open("offload", 2);
  w.list("activations", places_of(b.offload_activations), 4);
  w.list("optimizer", places_of(b.offload_optimizer), 4);
  w.list("parameters", places_of(b.offload_parameters), 4);
  if (b.offload_prefetch) w.line("prefetch", *b.offload_prefetch, 4);
}

void write_training(Writer& w, const Training& t) {
  w.open("training");
  w.line("steps", t.steps, 2);
  if (!t.data.empty()) w.line("data", base::yaml_text(t.data), 2);
  if (!t.tokenizer.empty()) w.line("tokenizer", base::yaml_text(t.tokenizer), 2);
  w.line("order", kDataOrderWords[static_cast<std::size_t>(t.order)], 2);
  if (!t.initial_weights.empty()) w.line("initial_weights", base::yaml_text(t.initial_weights), 2);
  w.open("optimizer", 2);
  for (const auto& [key, value] : optimizer_lines(t.optimizer)) w.line(key.c_str(), value, 4);
  if (t.schedule == LearningRateSchedule{}) {
    w.line("learning_rate_schedule", "constant", 2);
  } else {
    w.open("learning_rate_schedule", 2);
    w.line("warmup_steps", t.schedule.warmup_steps, 4);
    w.line("decay", kDecayWords[static_cast<std::size_t>(t.schedule.decay)], 4);
    w.line("minimum", t.schedule.minimum, 4);
    if (t.schedule.decay_steps > 0) w.line("decay_steps", t.schedule.decay_steps, 4);
  }
  if (t.clip_norm) w.line("clip_norm", *t.clip_norm, 2);
  if (t.loss_scaling != LossScaling{}) {
    w.open("loss_scaling", 2);
    w.line("initial", t.loss_scaling.initial, 4);
    w.line("interval", t.loss_scaling.interval, 4);
    w.line("factor", t.loss_scaling.factor, 4);
  }
  w.line("seed", t.seed, 2);
  if (t.dropout) w.line("dropout", models::dropout_text(*t.dropout), 2);
  if (!t.evaluation) return;
  w.open("evaluation", 2);
  w.line("data", base::yaml_text(t.evaluation->data), 4);
  w.line("every", t.evaluation->every, 4);
  w.line("batches", t.evaluation->batches, 4);
}

}  // namespace

double learning_rate_at(const Training& training, std::int64_t step) {
  const double peak = training.optimizer.learning_rate;
  const LearningRateSchedule& s = training.schedule;
  if (step < s.warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps);
  const auto toward_minimum = [&](double share) { return s.minimum + (peak - s.minimum) * share; };
  const std::int64_t length = std::max<std::int64_t>(1, training.steps - s.warmup_steps);
  const double progress = std::min(1.0, static_cast<double>(step - s.warmup_steps) / static_cast<double>(length));
  switch (s.decay) {
    case Decay::none: return peak;
    case Decay::cosine: return toward_minimum(0.5 * (1 + std::cos(std::numbers::pi * progress)));
    case Decay::linear: return toward_minimum(1 - progress);
    case Decay::inverse_square_root: {
      const auto warm = static_cast<double>(std::max<std::int64_t>(1, s.warmup_steps));
      return std::max(s.minimum, peak * std::sqrt(warm / std::max(warm, static_cast<double>(step + 1))));
    }
    case Decay::wsd: {
      constexpr std::int64_t kPart = 10;
      const std::int64_t decay = s.decay_steps > 0 ? s.decay_steps : std::max<std::int64_t>(1, training.steps / kPart);
      const double done = static_cast<double>(step - (training.steps - decay)) / static_cast<double>(decay);
      return toward_minimum(1 - std::clamp(done, 0.0, 1.0));
    }
  }
  return peak;
}

void check_tokens(const Cursor& at, std::int64_t batch, std::int64_t sequence) {
  if (batch * sequence > kMostTokens) {  // both are bounded where they are read: the product fits
    at.error("E0121", fmt::format("a step of {} x {} tokens is more than {}", batch, sequence, kMostTokens));
  }
}

Job read_job(const Cursor& at) {
  Job job;
  job.model = at.at("model").text();
  job.cluster = at.at("cluster").text();
  const Cursor batch = at.at("batch");
  job.batch = batch.integer(1, kMostBatch, 1);
  job.sequence = at.optional("sequence").integer(1, kMostSequence, 0);
  check_tokens(batch, job.batch, job.sequence);
  job.precision = choose_precision(at.optional("precision"), job.precision);
  const Cursor rounding = at.optional("rounding");
  job.rounding = choose(rounding, kRoundingWords, job.rounding);
  if (job.rounding == Rounding::stochastic && job.precision != models::DType::bf16)
    rounding.error("E0121", "stochastic rounding is of bf16 parameters without fp32 masters",
                   "write precision: bf16, or leave rounding out");
  job.objective = choose(at.optional("objective"), kObjectiveWords, job.objective);
  job.stack = at.optional("stack").text();
  job.bounds = read_bounds(at.optional("plan"));
  job.training = read_training(at.optional("training"));
  return job;
}

base::Result<Job> parse_job(std::string_view text, std::string file, base::Diagnostics* warnings) {
  return base::read_document<Job>(text, std::move(file), read_job, warnings);
}

std::string write_job(const Job& job, int indent) {
  Writer w(indent);
  w.line("model", base::yaml_text(job.model));
  w.line("cluster", base::yaml_text(job.cluster));
  w.line("batch", job.batch);
  if (job.sequence > 0) w.line("sequence", job.sequence);
  w.line("precision", models::name_of(job.precision));
  if (job.rounding != Rounding::nearest) w.line("rounding", name_of(job.rounding));
  w.line("objective", name_of(job.objective));
  if (!job.stack.empty()) w.line("stack", base::yaml_text(job.stack));
  write_bounds(w, job.bounds);
  write_training(w, job.training);
  return w.text();
}

const char* name_of(Order order) {
  return kOrderWords[static_cast<std::size_t>(order)].c_str();
}
const char* name_of(Recompute recompute) {
  return kRecomputeWords[static_cast<std::size_t>(recompute)].c_str();
}
const char* name_of(Objective objective) {
  return kObjectiveWords[static_cast<std::size_t>(objective)].c_str();
}

const char* name_of(Space space) {
  switch (space) {
    case Space::device: return "device";
    case Space::host: return "host";
    case Space::nvme: return "nvme";
  }
  return "?";
}

}  // namespace orrery::plan
