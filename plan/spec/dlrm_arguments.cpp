// Arguments of dlrm_s_pytorch.py.
#include "plan/spec/dlrm_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "models/read/read.h"

namespace orrery::plan {
namespace {

/// What happens to an argument that is not read below.
enum class Fate { ignored, ignored_flag, refused, refused_flag };
struct Other {
  const char* name;
  Fate fate;
  const char* why = "";  ///< if refused: what is missing
};
// A refused argument is still accepted if it has the script's default, which is given after it.
constexpr auto kOthers = std::to_array<Other>({
    {"print-freq", Fate::ignored},
    {"print-precision", Fate::ignored},
    {"print-time", Fate::ignored_flag},
    {"print-wall-time", Fate::ignored_flag},
    {"debug-mode", Fate::ignored_flag},
    {"enable-profiling", Fate::ignored_flag},
    {"plot-compute-graph", Fate::ignored_flag},
    {"tensor-board-filename", Fate::ignored},
    {"use-gpu", Fate::ignored_flag},
    {"use-torch2trt-for-mlp", Fate::ignored_flag},
    {"use-fbgemm-gpu", Fate::ignored_flag},
    {"fbgemm-gpu-codegen-pref", Fate::ignored},
    {"dist-backend", Fate::ignored},
    {"local_rank", Fate::ignored},
    {"sync-dense-params", Fate::ignored},
    {"num-workers", Fate::ignored},
    {"test-num-workers", Fate::ignored},
    {"test-mini-batch-size", Fate::ignored},
    {"test-freq", Fate::ignored},
    {"memory-map", Fate::ignored_flag},
    {"dataset-multiprocessing", Fate::ignored_flag},
    {"save-model", Fate::ignored},
    {"save-onnx", Fate::ignored_flag},
    {"mlperf-logging", Fate::ignored_flag},
    {"mlperf-acc-threshold", Fate::ignored},
    {"mlperf-auc-threshold", Fate::ignored},
    {"mlperf-bin-loader", Fate::ignored_flag},
    {"mlperf-coalesce-sparse-grads", Fate::ignored_flag},
    {"round-targets", Fate::ignored},  // labels are 0 or 1
    {"data-trace-file", Fate::ignored},
    {"data-trace-enable-padding", Fate::ignored},
    {"rand-data-dist", Fate::ignored},
    {"rand-data-min", Fate::ignored},
    {"rand-data-max", Fate::ignored},
    {"rand-data-mu", Fate::ignored},
    {"rand-data-sigma", Fate::ignored},
    {"loss-weights", Fate::ignored},  // belongs to wbce, which is refused
    {"md-threshold", Fate::ignored},
    {"md-temperature", Fate::ignored},
    {"md-round-dims", Fate::ignored_flag},
    {"qr-threshold", Fate::ignored},
    {"qr-operation", Fate::ignored},
    {"qr-collisions", Fate::ignored},
    {"arch-interaction-itself", Fate::refused_flag, "products of a vector with itself"},
    {"md-flag", Fate::refused_flag, "tables of different widths"},
    {"qr-flag", Fate::refused_flag, "tables of quotients and remainders"},
    {"weighted-pooling", Fate::refused, "weights of rows that are learned"},
    {"arch-project-size", Fate::refused, "a projection before the interaction"},
    {"quantize-emb-with-bit", Fate::refused, "quantised tables"},
    {"quantize-mlp-with-bit", Fate::refused, "quantised MLPs"},
    {"loss-threshold", Fate::refused, "a clamped prediction"},
    {"data-sub-sample-rate", Fate::refused, "data with samples left out"},
    {"lr-decay-start-step", Fate::refused, "a decay that begins at a step"},
    {"lr-num-decay-steps", Fate::refused, "a quadratic decay of the rate"},
    {"mlperf-grad-accum-iter", Fate::refused, "gradients of several batches"},
    {"load-model", Fate::refused, "a checkpoint of PyTorch's; `initial_weights` of a job reads safetensors"},
    {"inference-only", Fate::refused_flag, "a run without training"},
});
const std::map<std::string, std::string> kDefaults = {
    {"arch-project-size", "0"},  {"quantize-emb-with-bit", "32"}, {"quantize-mlp-with-bit", "32"},
    {"loss-threshold", "0.0"},   {"data-sub-sample-rate", "0.0"}, {"lr-decay-start-step", "0"},
    {"lr-num-decay-steps", "0"}, {"mlperf-grad-accum-iter", "1"}, {"weighted-pooling", "fixed"},  // all weights are 1

    {"load-model", ""},
};

struct Given {
  std::string value;
  int column = 1, width = 1;
};

class Arguments {
 public:
  explicit Arguments(std::string_view text) : text_(text) { split(); }

  base::Result<DlrmCommand> read() {
    collect();
    model();
    training();
    std::stable_sort(found_.begin(), found_.end(), [](const base::Diagnostic& a, const base::Diagnostic& b) {
      return a.where.column < b.where.column;
    });
    if (!found_.empty()) return base::fail(std::move(found_));
    return std::move(out_);
  }

 private:
  struct Word {
    std::string text;
    int column = 1;
  };

  void split() {
    Word word;
    bool open = false;
    char quote = 0;
    for (std::size_t i = 0; i <= text_.size(); ++i) {
      const char c = i < text_.size() ? text_[i] : ' ';
      const bool space = c == ' ' || c == '\t' || c == '\n' || c == '\\';
      if (quote == 0 && (space || i == text_.size())) {
        if (open) words_.push_back(std::move(word));
        word = {};
        open = false;
        continue;
      }
      if (!open) word.column = static_cast<int>(i) + 1;
      open = true;
      if (quote != 0 && c == quote)
        quote = 0;
      else if (quote == 0 && (c == '"' || c == '\''))
        quote = c;
      else if (i < text_.size())
        word.text += c;
    }
    if (open) words_.push_back(std::move(word));  // a quote that is never closed
  }

  void error(const char* code, const Given& at, std::string message, std::string help) {
    base::Diagnostic one{base::Severity::error, code, {}, std::move(message), std::move(help), std::string(text_)};
    one.where = {"--dlrm", 1, at.column, at.width};
    found_.push_back(std::move(one));
  }

  void collect() {
    static const std::set<std::string> kRead = {"arch-sparse-feature-size",
                                                "arch-embedding-size",
                                                "arch-mlp-bot",
                                                "arch-mlp-top",
                                                "arch-interaction-op",
                                                "activation-function",
                                                "loss-function",
                                                "num-indices-per-lookup",
                                                "num-indices-per-lookup-fixed",
                                                "mini-batch-size",
                                                "learning-rate",
                                                "optimizer",
                                                "data-size",
                                                "num-batches",
                                                "nepochs",
                                                "data-generation",
                                                "data-set",
                                                "raw-data-file",
                                                "processed-data-file",
                                                "data-randomize",
                                                "max-ind-range",
                                                "numpy-rand-seed",
                                                "lr-num-warmup-steps"};
    static const std::set<std::string> kReadFlags = {"mlperf-bin-shuffle"};
    std::size_t i = 0;
    while (i < words_.size() && words_[i].text.rfind("--", 0) != 0) ++i;  // skip `python dlrm_s_pytorch.py`
    for (; i < words_.size(); ++i) {
      const Word& word = words_[i];
      Given given{"", word.column, static_cast<int>(word.text.size())};
      if (word.text.rfind("--", 0) != 0) {
        error("E0140", given, fmt::format("{} belongs to no argument", base::quoted(word.text)), "--key=value");
        continue;
      }
      const std::size_t equals = std::min(word.text.find('='), word.text.size());
      const std::string name = word.text.substr(2, equals - 2);
      const auto* other = std::find_if(kOthers.begin(), kOthers.end(), [&](const Other& o) { return name == o.name; });
      const bool flag =
          kReadFlags.count(name) > 0 ||
          (other != kOthers.end() && (other->fate == Fate::ignored_flag || other->fate == Fate::refused_flag));
      if (!flag && kRead.count(name) == 0 && other == kOthers.end()) {
        error("E0140", given, fmt::format("the benchmark has no argument {}", base::quoted("--" + name)),
              "arguments are those of facebookresearch/dlrm's dlrm_s_pytorch.py");
        if (equals == word.text.size() && i + 1 < words_.size() && words_[i + 1].text.rfind("--", 0) != 0) ++i;
        continue;
      }
      if (equals < word.text.size()) {
        given.value = word.text.substr(equals + 1);
      } else if (!flag) {
        if (i + 1 == words_.size() || words_[i + 1].text.rfind("--", 0) == 0) {
          error("E0140", given, fmt::format("--{} has no value", name), "--key=value");
          continue;
        }
        given.value = words_[++i].text;
      }
      if (other != kOthers.end()) refuse(*other, given);
      given_[name] = std::move(given);
    }
  }

  void refuse(const Other& other, const Given& given) {
    if (other.fate != Fate::refused && other.fate != Fate::refused_flag) return;
    const auto usual = kDefaults.find(other.name);
    if (usual != kDefaults.end() && usual->second == given.value) return;
    error("E0141", given, fmt::format("--{}: not supported here: {}", other.name, other.why),
          "leave it out; the model that is trained then differs");
  }

  // -- values ---------------------------------------------------------------------------------------------------------
  [[nodiscard]] const Given* given(const char* name) const {
    const auto at = given_.find(name);
    return at == given_.end() ? nullptr : &at->second;
  }
  [[nodiscard]] std::string text(const char* name, const char* usual) const {
    const Given* at = given(name);
    return at != nullptr ? at->value : usual;
  }
  template <class T>
  T number(const char* name, T usual, T low, T high) {
    const Given* at = given(name);
    if (at == nullptr) return usual;
    T value{};
    const char* const last = at->value.data() + at->value.size();
    const auto [end, failed] = std::from_chars(at->value.data(), last, value);
    if (failed == std::errc() && end == last && value >= low && value <= high) return value;
    error("E0140", *at,
          fmt::format("--{} is a number from {} to {}, found {}", name, low, high, base::quoted(at->value)), "");
    return usual;
  }
  std::vector<std::int64_t> sizes(const char* name, const char* usual) {
    const std::string all = text(name, usual);
    std::vector<std::int64_t> out;
    for (std::size_t begin = 0; begin <= all.size();) {
      const std::size_t end = std::min(all.find('-', begin), all.size());
      std::int64_t value = 0;
      const auto [last, failed] = std::from_chars(all.data() + begin, all.data() + end, value);
      if (failed != std::errc() || last != all.data() + end || value < 1) {
        const Given* at = given(name);
        error("E0140", at != nullptr ? *at : Given{},
              fmt::format("--{} is sizes with dashes between them, found {}", name, base::quoted(all)), "512-256-64");
        return {};
      }
      out.push_back(value);
      begin = end + 1;
    }
    return out;
  }
  // A word that must be one of those supported.
  std::string word(const char* name, const char* usual, const std::vector<std::string>& known, const char* help) {
    const std::string value = text(name, usual);
    if (std::find(known.begin(), known.end(), value) != known.end()) return value;
    const Given* at = given(name);
    error("E0141", at != nullptr ? *at : Given{}, fmt::format("--{}={}: not supported here", name, value), help);
    return known.front();
  }

  // -- the model ------------------------------------------------------------------------------------------------------
  void model() {
    models::Recommender r;
    dataset_ = word("data-generation", "random", {"random", "synthetic", "dataset"}, "random or dataset") == "dataset";
    const std::vector<std::int64_t> bottom = sizes("arch-mlp-bot", "4-3-2");
    r.top_mlp = sizes("arch-mlp-top", "4-2-1");
    r.embedding_dim = number<std::int64_t>("arch-sparse-feature-size", 2, 1, 1 << 14);
    std::vector<std::int64_t> rows;
    if (dataset_ && given("arch-embedding-size") == nullptr)
      error("E0140", at_or_none("data-generation"),
            "the rows of a data set's tables come from its counts, which no argument gives",
            "give them: --arch-embedding-size=1460-583-…");
    else
      rows = sizes("arch-embedding-size", "4-3-2");
    const auto most = number<std::int64_t>("max-ind-range", -1, -1, std::int64_t{1} << 31);
    const auto hot = number<std::int64_t>("num-indices-per-lookup", 10, 1, 1 << 16);
    (void)word("arch-interaction-op", "dot", {"dot"}, "--arch-interaction-op=dot");
    (void)word("activation-function", "relu", {"relu"}, "MLPs have ReLU");
    if (bottom.empty() || r.top_mlp.empty() || !found_.empty()) return;
    if (bottom.back() != r.embedding_dim)
      error("E0140", at_or_none("arch-mlp-bot"),
            fmt::format("the bottom MLP ends in {}, but tables are {} wide", bottom.back(), r.embedding_dim),
            fmt::format("--arch-sparse-feature-size={}", bottom.back()));
    if (r.top_mlp.back() != 1)
      error("E0140", at_or_none("arch-mlp-top"), fmt::format("the top MLP ends in {}", r.top_mlp.back()), "…-256-1");
    if (!found_.empty()) return;
    r.dense_features = bottom.front();
    r.bottom_mlp.assign(bottom.begin() + 1, bottom.end());
    for (const std::int64_t one : rows)
      r.tables.push_back(table(dataset_ && most > 0 ? std::min(one, most) : one, hot));
    if (r.bottom_mlp.empty())
      return error("E0140", at_or_none("arch-mlp-bot"), "a bottom MLP without layers", "dense features, then widths");
    models::Model model;
    model.name = "dlrm";
    model.family = models::Family::dlrm;
    model.recommender = std::move(r);
    // The reader of models checks the result against its own bounds.
    auto read = models::parse_model(models::write_model(model), "--dlrm");
    if (read)
      out_.model = std::move(*read);
    else
      found_.insert(found_.end(), read.error().begin(), read.error().end());
  }
  [[nodiscard]] Given at_or_none(const char* name) const {
    const Given* at = given(name);
    return at != nullptr ? *at : Given{};
  }

  // Of a data set every bag has one index. Drawn ones have `hot` (fixed) or 1 to `hot`, and never more than the table
  // has rows; of rows drawn twice the benchmark keeps one.
  [[nodiscard]] models::Table table(std::int64_t rows, std::int64_t hot) const {
    models::Table out{rows, models::Pooling::sum, dataset_ ? 1 : std::min(rows, hot)};
    if (text("num-indices-per-lookup-fixed", "").empty() && out.multi_hot > 1) out.fewest = 1;
    return out;
  }

  // -- its training ---------------------------------------------------------------------------------------------------
  void training() {
    Training& t = out_.training;
    out_.batch = number<std::int64_t>("mini-batch-size", 1, 1, std::int64_t{1} << 24);
    if (given("loss-function") == nullptr)
      out_.notes.emplace_back(
          "The benchmark's loss is the mean square error unless it says --loss-function=bce; "
          "here it is the binary cross-entropy.");
    else
      (void)word("loss-function", "mse", {"bce"}, "--loss-function=bce");
    const std::string optimizer =
        word("optimizer", "sgd", {"sgd", "rwsadagrad"}, "sgd, or rwsadagrad: Adagrad by rows of tables");
    const double rate = number<double>("learning-rate", 0.01, 0, 1e3);
    t.optimizer = {};
    t.optimizer.kind = optimizer == "sgd" ? OptimizerKind::sgd : OptimizerKind::rowwise_adagrad;
    t.optimizer.learning_rate = rate;
    t.optimizer.momentum = t.optimizer.weight_decay = 0;
    t.optimizer.epsilon = 1e-10;  // as in its RWSAdagrad
    t.seed = static_cast<std::uint64_t>(number<std::int64_t>("numpy-rand-seed", 123, 0, std::int64_t{1} << 32));
    t.schedule.warmup_steps = number<std::int64_t>("lr-num-warmup-steps", 0, 0, std::int64_t{1} << 40);
    steps();
    data();
    t.schedule.warmup_steps = std::min(t.schedule.warmup_steps, t.steps);
  }

  void steps() {
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    const auto epochs = number<std::int64_t>("nepochs", 1, 1, 1 << 20);
    std::int64_t batches = number<std::int64_t>("num-batches", 0, 0, kMost >> 20);
    const auto samples = number<std::int64_t>("data-size", 1, 1, kMost >> 20);
    if (batches == 0 && !dataset_) batches = (samples + out_.batch - 1) / out_.batch;
    if (batches == 0) {
      out_.notes.emplace_back("The benchmark goes through its data once per epoch; here `steps` says how far to go.");
      return;
    }
    out_.training.steps = batches * epochs;
  }

  // The benchmark's random data has labels that do not depend on anything, so that nothing can be learned from it.
  void draw() {
    const std::int64_t steps = std::min(out_.training.steps, kMostGenerated / out_.batch);  // read again beyond that
    out_.training.generated = GeneratedSamples{steps * out_.batch, out_.training.seed};
    out_.notes.emplace_back(
        "The benchmark draws labels that nothing can be learned from; here samples follow a click model that is "
        "known.");
  }

  void data() {
    const std::string raw = text("raw-data-file", ""), processed = text("processed-data-file", "");
    (void)text("data-set", "kaggle");
    if (!dataset_) return draw();
    const std::string order = word("data-randomize", "total", {"total", "day", "none"}, "total, day or none");
    // The loader of binary records reads batches in order or shuffled.
    const bool binary = processed.ends_with(".bin");
    out_.training.order = (binary ? given("mlperf-bin-shuffle") != nullptr : order != "none") ? DataOrder::shuffled
                                                                                              : DataOrder::sequential;
    if (binary)
      out_.training.data = processed;
    else if (!raw.empty())
      out_.training.data = raw;
    if (!processed.empty() && !binary)
      out_.notes.push_back(fmt::format(
          "{} cannot be read: samples come from --raw-data-file, or from the .bin that the benchmark makes.",
          processed));
  }

  std::string_view text_;
  std::vector<Word> words_;
  std::map<std::string, Given> given_;
  bool dataset_ = false;
  base::Diagnostics found_;
  DlrmCommand out_;
};

}  // namespace

base::Result<DlrmCommand> read_dlrm_arguments(std::string_view text) {
  return Arguments(text).read();
}

}  // namespace orrery::plan
