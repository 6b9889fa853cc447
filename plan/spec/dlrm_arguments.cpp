// Arguments of dlrm_s_pytorch.py, and which script a command line is of.
#include "plan/spec/dlrm_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "models/read/read.h"
#include "plan/spec/dlrm_main.h"
#include "plan/spec/dlrm_words.h"

namespace orrery::plan {
namespace {

using enum DlrmFate;

constexpr auto kArguments = std::to_array<DlrmArgument>({
    {"arch-sparse-feature-size"},
    {"arch-embedding-size"},
    {"arch-mlp-bot"},
    {"arch-mlp-top"},
    {"arch-interaction-op"},
    {"activation-function"},
    {"loss-function"},
    {"num-indices-per-lookup"},
    {"num-indices-per-lookup-fixed"},
    {"mini-batch-size"},
    {"learning-rate"},
    {"optimizer"},
    {"data-size"},
    {"num-batches"},
    {"nepochs"},
    {"data-generation"},
    {"raw-data-file"},
    {"processed-data-file"},
    {"data-randomize"},
    {"max-ind-range"},
    {"numpy-rand-seed"},
    {"lr-num-warmup-steps"},
    {"mlperf-bin-shuffle", read, true},
    {"data-set", without_effect},  // its lines have one form, its rows come from --arch-embedding-size
    {"print-freq", without_effect},
    {"print-precision", without_effect},
    {"print-time", without_effect, true},
    {"print-wall-time", without_effect, true},
    {"debug-mode", without_effect, true},
    {"enable-profiling", without_effect, true},
    {"plot-compute-graph", without_effect, true},
    {"tensor-board-filename", without_effect},
    {"use-gpu", without_effect, true},
    {"use-torch2trt-for-mlp", without_effect, true},  // this and the next three: of other versions, recalled
    {"use-fbgemm-gpu", without_effect, true},
    {"fbgemm-gpu-codegen-pref", without_effect},
    {"mlperf-coalesce-sparse-grads", without_effect, true},
    {"dist-backend", without_effect},
    {"local_rank", without_effect},
    {"sync-dense-params", without_effect},
    {"num-workers", without_effect},
    {"test-num-workers", without_effect},
    {"test-mini-batch-size", without_effect},
    {"test-freq", without_effect},
    {"memory-map", without_effect, true},
    {"dataset-multiprocessing", without_effect, true},
    {"save-model", without_effect},
    {"save-onnx", without_effect, true},
    {"mlperf-logging", without_effect, true},
    {"mlperf-acc-threshold", without_effect},
    {"mlperf-auc-threshold", without_effect},
    {"mlperf-bin-loader", without_effect, true},
    {"round-targets", without_effect},  // labels are 0 or 1
    {"data-trace-file", without_effect},
    {"data-trace-enable-padding", without_effect},
    {"rand-data-dist", without_effect},
    {"rand-data-min", without_effect},
    {"rand-data-max", without_effect},
    {"rand-data-mu", without_effect},
    {"rand-data-sigma", without_effect},
    {"loss-weights", without_effect},  // belongs to wbce, which is refused
    {"md-threshold", without_effect},
    {"md-temperature", without_effect},
    {"md-round-dims", without_effect, true},
    {"qr-threshold", without_effect},
    {"qr-operation", without_effect},
    {"qr-collisions", without_effect},
    {"arch-interaction-itself", refused, true, "products of a vector with itself"},
    {"md-flag", refused, true, "tables of different widths"},
    {"qr-flag", refused, true, "tables of quotients and remainders"},
    {"weighted-pooling", refused, false, "weights of rows that are learned", "fixed"},  // fixed: all are 1
    {"quantize-emb-with-bit", refused, false, "quantised tables", "32"},
    {"quantize-mlp-with-bit", refused, false, "quantised MLPs", "32"},
    {"loss-threshold", refused, false, "a clamped prediction", "0.0"},
    {"data-sub-sample-rate", refused, false, "data with samples left out", "0.0"},
    {"lr-decay-start-step", refused, false, "a decay that begins at a step", "0"},
    {"lr-num-decay-steps", refused, false, "a quadratic decay of the rate", "0"},
    {"mlperf-grad-accum-iter", refused, false, "gradients of several batches", "1"},
    {"load-model", refused, false, "a checkpoint of PyTorch's; `initial_weights` of a job reads safetensors", ""},
    {"inference-only", refused, true, "a run without training"},
});

class Reader {
 public:
  Reader(std::string_view text, std::span<const DlrmWord> words) : in_(text, words, DlrmScript::dlrm_s_pytorch) {}

  base::Result<DlrmCommand> read() {
    model();
    training();
    return in_.finish(std::move(out_));
  }

 private:
  // -- the model ------------------------------------------------------------------------------------------------------
  void model() {
    models::Recommender r;
    dataset_ =
        in_.word("data-generation", "random", {"random", "synthetic", "dataset"}, "random or dataset") == "dataset";
    const std::vector<std::int64_t> bottom = in_.sizes("arch-mlp-bot", "4-3-2", '-');
    r.top_mlp = in_.sizes("arch-mlp-top", "4-2-1", '-');
    r.embedding_dim = in_.integer("arch-sparse-feature-size", 2, 1, 1 << 14);
    std::vector<std::int64_t> rows;
    if (dataset_ && !in_.has("arch-embedding-size"))
      in_.error("E0140", in_.at("data-generation"),
                "the rows of a data set's tables come from its counts, which no argument gives",
                "give them: --arch-embedding-size=1460-583-…");
    else
      rows = in_.sizes("arch-embedding-size", "4-3-2", '-');
    const std::int64_t most = in_.integer("max-ind-range", -1, -1, std::int64_t{1} << 31);
    if (dataset_ && most > 0) out_.training.categories = Categories::hashed;  // it reads them modulo this range
    const std::int64_t hot = in_.integer("num-indices-per-lookup", 10, 1, 1 << 16);
    (void)in_.word("arch-interaction-op", "dot", {"dot"}, "--arch-interaction-op=dot");
    (void)in_.word("activation-function", "relu", {"relu"}, "MLPs have ReLU");
    if (bottom.empty() || r.top_mlp.empty() || in_.failed()) return;
    if (bottom.back() != r.embedding_dim)
      in_.error("E0140", in_.at("arch-mlp-bot"),
                fmt::format("the bottom MLP ends in {}, but tables are {} wide", bottom.back(), r.embedding_dim),
                fmt::format("--arch-sparse-feature-size={}", bottom.back()));
    if (r.top_mlp.back() != 1)
      in_.error("E0140", in_.at("arch-mlp-top"), fmt::format("the top MLP ends in {}", r.top_mlp.back()), "…-256-1");
    if (in_.failed()) return;
    r.dense_features = bottom.front();
    r.bottom_mlp.assign(bottom.begin() + 1, bottom.end());
    for (const std::int64_t one : rows)
      r.tables.push_back(table(dataset_ && most > 0 ? std::min(one, most) : one, hot));
    if (r.bottom_mlp.empty())
      return in_.error("E0140", in_.at("arch-mlp-bot"), "a bottom MLP without layers", "dense features, then widths");
    if (auto checked = checked_model(std::move(r)))
      out_.model = std::move(*checked);
    else
      in_.add(checked.error());
  }

  // Of a data set every bag has one index. Drawn ones have `hot` (fixed) or 1 to `hot`, and never more than the table
  // has rows; of rows drawn twice the benchmark keeps one.
  [[nodiscard]] models::Table table(std::int64_t rows, std::int64_t hot) const {
    models::Table out{rows, models::Pooling::sum, dataset_ ? 1 : std::min(rows, hot)};
    if (in_.text("num-indices-per-lookup-fixed", "").empty() && out.multi_hot > 1) out.fewest = 1;
    return out;
  }

  // -- its training ---------------------------------------------------------------------------------------------------
  void training() {
    Training& t = out_.training;
    out_.batch = in_.integer("mini-batch-size", 1, 1, std::int64_t{1} << 24);
    if (!in_.has("loss-function"))
      out_.notes.emplace_back(
          "The benchmark's loss is the mean square error unless it says --loss-function=bce; "
          "here it is the binary cross-entropy.");
    else
      (void)in_.word("loss-function", "mse", {"bce"}, "--loss-function=bce");
    const std::string optimizer =
        in_.word("optimizer", "sgd", {"sgd", "rwsadagrad"}, "sgd, or rwsadagrad: Adagrad by rows of tables");
    const double rate = in_.number("learning-rate", 0.01, 0, 1e3);
    t.optimizer = {};
    t.optimizer.kind = optimizer == "sgd" ? OptimizerKind::sgd : OptimizerKind::rowwise_adagrad;
    t.optimizer.learning_rate = rate;
    t.optimizer.momentum = t.optimizer.weight_decay = 0;
    t.optimizer.epsilon = 1e-10;  // as in its RWSAdagrad
    t.seed = static_cast<std::uint64_t>(in_.integer("numpy-rand-seed", 123, 0, std::int64_t{1} << 32));
    t.schedule.warmup_steps = in_.integer("lr-num-warmup-steps", 0, 0, std::int64_t{1} << 40);
    steps();
    data();
    t.schedule.warmup_steps = std::min(t.schedule.warmup_steps, t.steps);
  }

  void steps() {
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    const std::int64_t epochs = in_.integer("nepochs", 1, 1, 1 << 20);
    std::int64_t batches = in_.integer("num-batches", 0, 0, kMost >> 20);
    const std::int64_t samples = in_.integer("data-size", 1, 1, kMost >> 20);
    if (batches == 0 && !dataset_) batches = (samples + out_.batch - 1) / out_.batch;
    if (batches == 0) {
      out_.notes.emplace_back(kOneEpoch);
      return;
    }
    out_.training.steps = batches * epochs;
  }

  void data() {
    const std::string raw = in_.text("raw-data-file", ""), processed = in_.text("processed-data-file", "");
    if (!dataset_) return draw_samples(out_);
    const std::string order = in_.word("data-randomize", "total", {"total", "day", "none"}, "total, day or none");
    // The loader of binary records reads batches in order or shuffled.
    const bool binary = processed.ends_with(".bin");
    out_.training.order =
        (binary ? in_.has("mlperf-bin-shuffle") : order != "none") ? DataOrder::shuffled : DataOrder::sequential;
    if (binary)
      out_.training.data = processed;
    else if (!raw.empty())
      out_.training.data = raw;
    if (!processed.empty() && !binary)
      out_.notes.push_back(fmt::format(
          "{} cannot be read: samples come from --raw-data-file, or from the .bin that the benchmark makes.",
          processed));
  }

  DlrmWords in_;
  bool dataset_ = false;
  DlrmCommand out_;
};

}  // namespace

const char* name_of(DlrmScript script) {
  return script == DlrmScript::dlrm_main ? "dlrm_main.py" : "dlrm_s_pytorch.py";
}

std::span<const DlrmArgument> dlrm_arguments(DlrmScript script) {
  return script == DlrmScript::dlrm_main ? dlrm_main_arguments() : std::span<const DlrmArgument>(kArguments);
}

base::Result<models::Model> checked_model(models::Recommender r) {
  models::Model model;
  model.name = "dlrm";
  model.family = models::Family::dlrm;
  model.recommender = std::move(r);
  return models::parse_model(models::write_model(model), "--dlrm");
}

void draw_samples(DlrmCommand& command) {
  const std::int64_t steps = std::min(command.training.steps, kMostGenerated / command.batch);  // read again beyond
  command.training.generated = GeneratedSamples{steps * command.batch, command.training.seed};
  command.notes.emplace_back(
      "The benchmark draws labels that nothing can be learned from; here samples follow a click model that is known.");
}

base::Result<DlrmCommand> read_dlrm_arguments(std::string_view text) {
  const std::vector<DlrmWord> words = dlrm_words(text);
  const auto names = [&](const DlrmWord& word, DlrmScript script) { return word.text.ends_with(name_of(script)); };
  const auto begins = [](const DlrmWord& word) { return word.text.rfind("--", 0) == 0; };
  // What stands before the script launches it: python, torchrun --nproc_per_node 8, torchx run … --script.
  const auto script = std::find_if(words.begin(), words.end(), [&](const DlrmWord& word) {
    return names(word, DlrmScript::dlrm_main) || names(word, DlrmScript::dlrm_s_pytorch);
  });
  auto first = script == words.end() ? std::find_if(words.begin(), words.end(), begins) : script + 1;
  const std::span<const DlrmWord> launcher(words.begin(), script == words.end() ? first : script);
  if (first != words.end() && first->text == "--") ++first;  // torchx: the script's own follow
  const std::span<const DlrmWord> own(first, words.end());
  const auto only_main = [&](const DlrmWord& word) {
    const std::string name = begins(word) ? word.text.substr(2, word.text.find('=') - 2) : std::string();
    const auto has = [&](std::span<const DlrmArgument> all) {
      return std::any_of(all.begin(), all.end(), [&](const DlrmArgument& one) { return name == one.name; });
    };
    return has(dlrm_main_arguments()) && !has(kArguments);
  };
  const bool main =
      script == words.end() ? std::any_of(own.begin(), own.end(), only_main) : names(*script, DlrmScript::dlrm_main);
  return main ? read_dlrm_main(text, launcher, own) : Reader(text, own).read();
}

}  // namespace orrery::plan
