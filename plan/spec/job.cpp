// Job files: reading, writing, and the learning rate that they describe.
#include "plan/spec/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/ensure.h"
#include "models/read/read.h"
#include "plan/spec/expert_loads.h"
#include "plan/spec/fields_yaml.h"
#include "plan/spec/job_optimizer.h"
#include "plan/spec/synonyms.h"
#include "plan/spec/words.h"

namespace orrery::plan {
namespace {

using base::Cursor;

const std::vector<std::string> kDataOrderWords = {"sequential", "shuffled"};
const std::vector<std::string> kBadLineWords = {"refuse", "skip"}, kCategoryWords = {"hashed", "rows"};
constexpr int kMostReadAhead = 64;  // batches
const std::vector<std::string> kDecayWords = {"none", "cosine", "linear", "inverse_square_root", "wsd"};

// A scalar or a list without duplicates; an empty list is an error, as it leaves the search nothing.
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

// A bound: a list of values, or one value. If the field itself is a list (layers_per_stage), the bound is its value.
template <class Of, class T>
void read_bound(const Cursor& at, const Field<Of>& field, std::vector<T>& bound) {
  if constexpr (kIsList<typename Field<Of>::Value>)
    bound = read_value(at, field, bound);
  else
    bound = choices<T>(at, [&](const Cursor& item) {
      return is_other_word(item, field.key) ? least<T>(field) : read_value(item, field, least<T>(field));
    });
}
template <class Of, class T>
void read_bound(const Cursor& at, const Field<Of>& field, std::optional<T>& bound) {
  if (at.exists()) bound = read_value(at, field, least<T>(field));
}

template <class Of, class T>
requires kIsRows<T>
void read_bound(const Cursor& at, const Field<Of>& field, T& bound) {
  bound = read_value(at, field, bound);
}

// The name of a file, or a word. The caller opens the file and reads its passes.
void read_orders(const Cursor& at, const FieldInfo& field, Bounds& b) {
  b.stages.order = choices<Order>(at, [&](const Cursor& item) {
    const std::string text = item.is_scalar() ? item.scalar_text() : std::string();
    if (is_other_word(item, field.key)) return Order::one_f_one_b;
    if (!text.ends_with(".csv")) return choose(item, *field.words, Order::one_f_one_b);
    b.stages.order_file = item.text();
    return Order::custom;
  });
}

Bounds read_bounds(const Cursor& at) {
  Bounds b;
  name_keys(at, "plan");
  for_each_field(kChosenFields, [&](const auto& field) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field.of(b))>, std::vector<Order>>)
      read_orders(field_of(at, field), field, b);
    else
      read_bound(field_of(at, field), field, field.of(b));
  });
  const auto custom = std::find(b.stages.order.begin(), b.stages.order.end(), Order::custom) != b.stages.order.end();
  if (custom && b.stages.passes.empty() && b.stages.order_file.empty())
    at.at("schedule")
        .error("E0121", "`schedule: custom` without `passes`",
               "write the name of a file instead, my-order.csv (docs/formats.md, Orders of passes)");
  if (!b.stages.passes.empty() && !custom)
    at.at("passes").error("E0121", "`passes` belong to a custom order, but another is named", "schedule: custom");
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
    decay_steps.warning("E0122", "decay_steps has no effect without `decay: wsd`",
                        "other decays last until the run's end");
  }
  if (s.decay == Decay::wsd && s.warmup_steps + s.decay_steps > training.steps) {
    decay_steps.warning("E0122",
                        fmt::format("{} steps of warm-up and {} of decay are more than the run's {} steps",
                                    s.warmup_steps, s.decay_steps, training.steps),
                        "the decay begins during the warm-up");
  }
  return s;
}

/// A path, or a map that says what is drawn.
void read_data(const Cursor& at, Training& t) {
  if (!at.is_map()) {
    t.data = at.text();
    return;
  }
  const Cursor generate = at.at("generate");
  GeneratedSamples drawn;
  drawn.samples = generate.at("samples").integer(1, kMostGenerated, 1);
  drawn.seed =
      static_cast<std::uint64_t>(generate.optional("seed").integer(0, std::numeric_limits<std::int64_t>::max(), 1));
  t.generated = drawn;
}

Evaluation read_evaluation(const Cursor& at, bool generated) {
  Evaluation e;
  const Cursor data = generated ? at.optional("data") : at.at("data");
  e.data = data.text();
  if (generated && data.exists())
    data.error("E0121", "`evaluation.data` beside generated samples: an evaluation takes those that follow them",
               "leave `data` out of `evaluation`");
  e.every = at.optional("every").integer(1, kMostSteps, e.every);
  e.batches = at.optional("batches").integer(1, kMostSteps, e.batches);
  return e;
}

Training read_training(const Cursor& at) {
  Training t;
  name_keys(at, "training");
  if (at.is_map() && at.has("optimizer")) name_keys(at.optional("optimizer"), "optimizer");
  t.steps = at.optional("steps").integer(1, kMostSteps, t.steps);
  read_data(at.optional("data"), t);
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
  if (const Cursor lora = at.optional("lora"); lora.exists()) t.lora = models::read_lora(lora);
  if (const Cursor evaluation = at.optional("evaluation"); evaluation.exists())
    t.evaluation = read_evaluation(evaluation, t.generated.has_value());
  t.bad_lines = choose(at.optional("bad_lines"), kBadLineWords, t.bad_lines);
  if (const Cursor categories = at.optional("categories"); categories.exists())
    t.categories = choose(categories, kCategoryWords, Categories::hashed);
  t.read_ahead = small(at.optional("read_ahead"), 0, kMostReadAhead, t.read_ahead);
  return t;
}

// Writing. Every key is written, so that a file carries the defaults of the version that wrote it.

class JobWriter {
 public:
  explicit JobWriter(int indent) : indent_(indent) {}
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

template <class Of, class T>
std::string bound_text(const Field<Of>& field, const std::vector<T>& bound) {
  if (bound.empty()) return {};
  std::vector<std::string> words;
  for (const T value : bound) words.push_back(value_text(field, value));
  return fmt::format("[{}]", fmt::join(words, ", "));
}
template <class Of, class T>
requires kIsRows<T> std::string bound_text(const Field<Of>& field, const T& bound) {
  return bound.empty() ? std::string() : value_text(field, bound);
}
template <class Of, class T>
std::string bound_text(const Field<Of>& field, const std::optional<T>& bound) {
  return bound ? value_text(field, *bound) : std::string();
}

// Writes a custom order as the name of its file.
std::string orders_text(const FieldInfo& field, const Bounds& b) {
  std::vector<std::string> words;
  for (const Order order : b.stages.order)
    words.push_back(order == Order::custom ? base::yaml_text(b.stages.order_file) : value_text(field, order));
  return fmt::format("[{}]", fmt::join(words, ", "));
}

void write_bounds(JobWriter& w, const Bounds& b) {
  if (b == Bounds{}) return;
  w.open("plan");
  std::string open;
  for_each_field(kChosenFields, [&](const auto& field) {
    std::string text = bound_text(field, field.of(b));
    if (text.empty()) return;
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field.of(b))>, std::vector<Order>>)
      if (!b.stages.order_file.empty()) text = orders_text(field, b);
    if (*field.group != '\0' && open != field.group) w.open(field.group, 2);
    open = field.group;
    w.line(field.key, text, open.empty() ? 2 : 4);
  });
}

void write_training(JobWriter& w, const Training& t) {
  w.open("training");
  w.line("steps", t.steps, 2);
  if (!t.data.empty()) w.line("data", base::yaml_text(t.data), 2);
  if (t.generated) w.line("data", generated_text(*t.generated), 2);
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
  if (t.lora) w.line("lora", models::lora_text(*t.lora), 2);
  if (t.bad_lines != BadLines::refuse) w.line("bad_lines", kBadLineWords[static_cast<std::size_t>(t.bad_lines)], 2);
  if (t.categories) w.line("categories", name_of(*t.categories), 2);
  if (t.read_ahead != Training{}.read_ahead) w.line("read_ahead", t.read_ahead, 2);
  if (!t.evaluation) return;
  w.open("evaluation", 2);
  if (!t.evaluation->data.empty()) w.line("data", base::yaml_text(t.evaluation->data), 4);
  w.line("every", t.evaluation->every, 4);
  w.line("batches", t.evaluation->batches, 4);
}

}  // namespace

const char* name_of(Categories categories) {
  return kCategoryWords[static_cast<std::size_t>(categories)].c_str();
}

std::string generated_text(const GeneratedSamples& drawn) {
  return fmt::format("{{generate: {{samples: {}, seed: {}}}}}", drawn.samples, drawn.seed);
}

double adamw_rate_at(const Training& training, std::int64_t step) {
  const Optimizer& o = training.optimizer;
  if (o.learning_rate > 0) return learning_rate_at(training, step) * (o.adamw_learning_rate / o.learning_rate);
  Training alone = training;  // without a peak to scale by, the schedule is AdamW's own, with the job's minimum
  alone.optimizer.learning_rate = o.adamw_learning_rate;
  return learning_rate_at(alone, step);
}

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
  if (batch * sequence > kMostTokens) {  // both are bounded where they are read, so the product fits
    at.error("E0121", fmt::format("a step of {} x {} tokens is more than {}", batch, sequence, kMostTokens));
  }
}

constexpr std::int64_t kMostDevices = 1'000'000;
constexpr double kSurestFit = 0.999;  // nothing is known beyond

/// A name; a map in its place is told where it belongs.
std::string name_in(const Cursor& at, const char* kind) {
  if (!at.is_map()) return at.text();
  at.error("E0105", fmt::format("`{}` must be a name, found a map", kind),
           fmt::format("write the map into a file, my-{}.yaml, and name that: `{}: my-{}.yaml`", kind, kind, kind));
  at.ignore();
  return {};
}

/// Sequences of a step. "4M" and "4M tokens" are how others write tokens.
std::int64_t sequences_in(const Cursor& batch) {
  const std::string said = batch.scalar_text();
  std::string count = said.substr(0, said.find(" token"));
  count.erase(std::remove(count.begin(), count.end(), ','), count.end());
  const bool in_words = count.size() > 1 && std::string("kKmMbB").find(count.back()) != std::string::npos &&
                        count.find_first_not_of("0123456789.") == count.size() - 1;
  const bool of_tokens = said.find(" token") != std::string::npos && !count.empty() &&
                         count.find_first_not_of("0123456789.kKmMbB ") == std::string::npos;
  const bool counts = in_words || of_tokens;
  if (!counts) return batch.integer(1, kMostBatch, 1);
  batch.error("E0105", fmt::format("`batch` counts sequences, found {}", base::quoted(said)),
              "a batch in tokens, divided by the `sequence` length: 4M tokens of 4,096 are `batch: 1024`");
  batch.ignore();
  return 1;
}

namespace {

/// Tokens of a sequence. "4k" is how others write them.
std::int64_t length_in(const Cursor& at) {
  const std::string said = at.scalar_text();
  const bool in_words = said.size() > 1 && said.size() < 8 && (said.back() == 'k' || said.back() == 'K') &&
                        said.find_first_not_of("0123456789") == said.size() - 1;
  const std::int64_t thousands = in_words ? std::stoll(said) : 0;
  if (!in_words) return at.integer(1, kMostSequence, 0);
  at.error("E0105", fmt::format("`sequence` is a number of tokens in digits, found {}", base::quoted(said)),
           thousands > 0 ? fmt::format("`sequence: {}`: in lengths of sequences a k is 1,024", 1024 * thousands)
                         : std::string("a sequence has at least 1 token"));
  at.ignore();
  return 0;
}

Job read_keys(const Cursor& at) {
  Job job;
  name_keys(at, "");
  job.model = name_in(at.at("model"), "model");
  job.cluster = name_in(at.at("cluster"), "cluster");
  job.devices = static_cast<int>(at.optional("devices").integer(1, kMostDevices, 0));
  const Cursor batch = at.at("batch");
  job.batch = sequences_in(batch);
  job.sequence = length_in(at.optional("sequence"));
  check_tokens(batch, job.batch, job.sequence);
  const Cursor precision = at.optional("precision");
  if (!is_other_word(precision, "precision")) job.precision = choose_precision(precision, job.precision);
  const Cursor rounding = at.optional("rounding");
  job.rounding = choose(rounding, kRoundingWords, job.rounding);
  if (job.rounding == Rounding::stochastic && job.precision != models::DType::bf16)
    rounding.error("E0121", "stochastic rounding is for bf16 parameters without fp32 masters",
                   "write precision: bf16, or leave rounding out");
  job.vocab_multiple = at.optional("vocab_multiple").integer(1, 1 << 16, job.vocab_multiple);
  job.objective = choose(at.optional("objective"), kObjectiveWords, job.objective);
  job.fits_probability = at.optional("fits_probability").number(0, kSurestFit, job.fits_probability);
  job.stack = at.optional("stack").text();
  name_keys(at.optional("software"), "software");
  job.software = read_software(at.optional("software"), job.precision);
  job.bounds = read_bounds(at.optional("plan"));
  if (!at.findings().failed())
    check_software(at.optional("software"), job.software, job.bounds.numerics.flash, job.bounds.compression.gradients);
  job.expert_loads = read_loads(at.optional("expert_loads"));
  job.training = read_training(at.optional("training"));
  return job;
}

}  // namespace

Job read_job(const Cursor& at) {
  Job job = read_keys(at);
  const Cursor training = at.optional("training");
  const std::array<Cursor, 5> maps = {at, at.optional("plan"), at.optional("software"), training,
                                      training.optional("optimizer")};
  if (std::ranges::all_of(maps, [](const Cursor& map) { return map.unread().empty(); })) return job;
  std::vector<base::Document> known;  // each optimizer has keys of its own
  for (const OptimizerTraits& one : kOptimizers) {
    known.push_back(
        base::Document::recording(fmt::format("{{training: {{optimizer: {{name: {}}}}}}}", one.name), "a job"));
    (void)read_keys(known.back().root());
  }
  for (const Cursor& map : maps) name_misplaced(map, known);
  return job;
}

base::Result<Job> parse_job(std::string_view text, std::string file, base::Diagnostics* warnings) {
  return base::read_document<Job>(text, std::move(file), read_job, warnings);
}

std::string write_job(const Job& job, int indent) {
  JobWriter w(indent);
  w.line("model", base::yaml_text(job.model));
  w.line("cluster", base::yaml_text(job.cluster));
  if (job.devices > 0) w.line("devices", job.devices);
  w.line("batch", job.batch);
  if (job.sequence > 0) w.line("sequence", job.sequence);
  w.line("precision", models::name_of(job.precision));
  if (job.rounding != Rounding::nearest) w.line("rounding", name_of(job.rounding));
  if (job.vocab_multiple != Job{}.vocab_multiple) w.line("vocab_multiple", job.vocab_multiple);
  w.line("objective", name_of(job.objective));
  if (job.fits_probability != kUsualFit) w.line("fits_probability", job.fits_probability);
  if (!job.stack.empty()) w.line("stack", base::yaml_text(job.stack));
  if (const auto said = software_lines(job.software); !said.empty()) {
    w.open("software");
    for (const auto& [key, value] : said) w.line(key.c_str(), value, 2);
  }
  write_bounds(w, job.bounds);
  if (const std::string loads = loads_text(job.expert_loads); !loads.empty()) w.line("expert_loads", loads);
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
const char* name_of(GradientCompression kind) {
  return kGradientWords[static_cast<std::size_t>(kind)].c_str();
}
const char* name_of(TableSharding sharding) {
  return kShardingWords[static_cast<std::size_t>(sharding)].c_str();
}
const char* name_of(models::TokenCodec codec) {
  return kTokenWords[static_cast<std::size_t>(codec)].c_str();
}
const char* name_of(PooledType type) {
  return kPooledWords[static_cast<std::size_t>(type)].c_str();
}
const char* name_of(ActivationEncoding kind) {
  return kActivationWords[static_cast<std::size_t>(kind)].c_str();
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
