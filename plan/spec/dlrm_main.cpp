// Arguments of torchrec_dlrm/dlrm_main.py.
#include "plan/spec/dlrm_main.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace orrery::plan {
namespace {

using enum DlrmFate;

constexpr auto kMainArguments = std::to_array<DlrmArgument>({
    {"epochs"},
    {"batch_size"},
    {"limit_train_batches"},
    {"dataset_name"},
    {"num_embeddings"},
    {"num_embeddings_per_feature"},
    {"dense_arch_layer_sizes"},
    {"over_arch_layer_sizes"},
    {"embedding_dim"},
    {"interaction_type"},
    {"dcn_num_layers"},
    {"dcn_low_rank_dim"},
    {"multi_hot_sizes"},
    {"seed"},
    {"in_memory_binary_criteo_path"},
    {"synthetic_multi_hot_criteo_path"},
    {"shuffle_batches", read, true},
    {"shuffle_training_set", read, true},
    {"learning_rate"},
    {"eps"},
    {"adagrad", read, true},
    {"lr_warmup_steps"},
    {"allow_tf32", read, true},
    {"drop_last_training_batch", without_effect, true},
    {"test_batch_size", without_effect},
    {"limit_val_batches", without_effect},
    {"limit_test_batches", without_effect},
    {"validation_freq_within_epoch", without_effect},
    {"pin_memory", without_effect, true},
    {"mmap_mode", without_effect, true},
    {"multi_hot_distribution_type", without_effect},  // which rows a bag has beside its first
    {"collect_multi_hot_freqs_stats", without_effect, true},
    {"print_lr", without_effect, true},
    {"print_sharding_plan", without_effect, true},
    {"interaction_branch1_layer_sizes", without_effect},  // of the projection, which is refused
    {"interaction_branch2_layer_sizes", without_effect},
    {"undersampling_rate", refused, false, "data with samples left out"},
    {"lr_decay_start", refused, false, "a decay that begins at a step", "0"},
    {"lr_decay_steps", refused, false, "a quadratic decay of the rate", "0"},
});

/// Processes that a launcher starts; 0: it does not say. torchrun has --nnodes and --nproc_per_node, torchx -j 2x8.
std::int64_t processes(std::span<const DlrmWord> launcher) {
  std::int64_t nodes = 1, each = 0;
  const auto number = [](std::string_view text, std::int64_t& out) {
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (failed != std::errc()) out = 0;
    return text.substr(static_cast<std::size_t>(end - text.data()));
  };
  for (std::size_t i = 0; i < launcher.size(); ++i) {
    std::string name = launcher[i].text, value = i + 1 < launcher.size() ? launcher[i + 1].text : std::string();
    if (const std::size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    std::replace(name.begin(), name.end(), '-', '_');
    if (name == "__nproc_per_node") (void)number(value, each);
    if (name == "__nnodes") (void)number(value, nodes);
    if (name == "_j") {
      const std::string_view rest = number(value, nodes);
      if (rest.starts_with("x"))
        (void)number(rest.substr(1), each);
      else
        each = std::exchange(nodes, 1);
    }
  }
  return nodes * each;
}

class MainReader {
 public:
  MainReader(std::string_view text, std::span<const DlrmWord> launcher, std::span<const DlrmWord> own)
      : in_(text, own, DlrmScript::dlrm_main), processes_(processes(launcher)) {}

  base::Result<DlrmCommand> read() {
    model();
    training();
    return in_.finish(std::move(out_));
  }

 private:
  static constexpr std::size_t kTables = 26;  // categorical features of Criteo's data, the only ones that it reads
  static constexpr std::int64_t kDense = 13;

  void model() {
    models::Recommender r;
    r.dense_features = kDense;
    r.embedding_dim = in_.integer("embedding_dim", 64, 1, 1 << 14);
    r.bottom_mlp = in_.sizes("dense_arch_layer_sizes", "512,256,64", ',');
    r.top_mlp = in_.sizes("over_arch_layer_sizes", "512,512,256,1", ',');
    (void)in_.word("dataset_name", "criteo_1t", {"criteo_1t", "criteo_kaggle"}, "criteo_1t or criteo_kaggle");
    const std::string interaction =
        in_.word("interaction_type", "original", {"original", "dcn"}, "original or dcn; projections are not there");
    const std::int64_t layers = in_.integer("dcn_num_layers", 3, 1, 1000);
    const std::int64_t rank = in_.integer("dcn_low_rank_dim", 512, 1, 1 << 20);
    if (interaction == "dcn") {
      r.interaction = models::Interaction::cross;
      r.cross_layers = layers;
      r.cross_rank = rank;
    }
    std::vector<std::int64_t> rows(kTables, in_.integer("num_embeddings", 100'000, 1, std::int64_t{1} << 31));
    if (in_.has("num_embeddings_per_feature")) rows = per_feature("num_embeddings_per_feature");
    std::vector<std::int64_t> hot(kTables, 1);
    if (in_.has("multi_hot_sizes"))
      hot = per_feature("multi_hot_sizes");
    else if (in_.has("synthetic_multi_hot_criteo_path"))
      out_.notes.emplace_back(
          "How many indices a sample has is in the benchmark's multi-hot data; here it is one of each table, unless "
          "--multi_hot_sizes says otherwise (MLPerf's: 3,2,1,2,6,1,1,1,1,7,3,8,1,6,9,5,1,1,1,12,100,27,10,3,1,1).");
    if (in_.failed()) return;
    for (std::size_t t = 0; t < kTables; ++t) r.tables.push_back({rows[t], models::Pooling::sum, hot[t]});
    if (r.bottom_mlp.back() != r.embedding_dim)
      in_.error("E0140", in_.at("dense_arch_layer_sizes"),
                fmt::format("the bottom MLP ends in {}, but tables are {} wide", r.bottom_mlp.back(), r.embedding_dim),
                fmt::format("--embedding_dim={}", r.bottom_mlp.back()));
    if (r.top_mlp.back() != 1)
      in_.error("E0140", in_.at("over_arch_layer_sizes"), fmt::format("the top MLP ends in {}", r.top_mlp.back()),
                "…,256,1");
    if (in_.failed()) return;
    if (auto checked = checked_model(std::move(r)))
      out_.model = std::move(*checked);
    else
      in_.add(checked.error());
  }

  std::vector<std::int64_t> per_feature(const char* name) {
    std::vector<std::int64_t> out = in_.sizes(name, "", ',');
    if (!out.empty() && out.size() != kTables)
      in_.error(
          "E0140", in_.at(name),
          fmt::format("--{} has {} values, but Criteo's data has {} categorical features", name, out.size(), kTables),
          "one for each feature");
    return out;
  }

  void training() {
    Training& t = out_.training;
    const std::int64_t each = in_.integer("batch_size", 32, 1, 1 << 24);
    out_.batch = each * std::max<std::int64_t>(1, processes_);
    if (processes_ == 0)
      out_.notes.emplace_back(
          "--batch_size is of one process, and nothing says how many there are: `batch` must count the samples of "
          "all.");
    t.optimizer = {};
    t.optimizer.kind = in_.has("adagrad") ? OptimizerKind::rowwise_adagrad : OptimizerKind::sgd;
    t.optimizer.learning_rate = in_.number("learning_rate", 15, 0, 1e3);
    t.optimizer.momentum = t.optimizer.weight_decay = 0;
    t.optimizer.epsilon = in_.number("eps", 1e-8, 0, 1);
    if (in_.has("adagrad"))
      out_.notes.emplace_back(
          "The benchmark's Adagrad has a state for each value of a table; here it has one for each row.");
    if (in_.has("allow_tf32"))
      out_.notes.emplace_back("--allow_tf32 is `precision: tf32`, which is predicted; fp32 also runs.");
    t.seed = static_cast<std::uint64_t>(in_.integer("seed", 1, 0, std::int64_t{1} << 32));
    t.schedule.warmup_steps = in_.integer("lr_warmup_steps", 0, 0, std::int64_t{1} << 40);
    const bool shuffled = in_.has("shuffle_batches") || in_.has("shuffle_training_set");
    t.order = shuffled ? DataOrder::shuffled : DataOrder::sequential;
    data();
    t.schedule.warmup_steps = std::min(t.schedule.warmup_steps, t.steps);
  }

  void data() {
    const std::int64_t epochs = in_.integer("epochs", 1, 1, 1 << 20);
    std::int64_t batches = in_.integer("limit_train_batches", 0, 0, std::int64_t{1} << 20);
    const char* const given = in_.has("in_memory_binary_criteo_path")      ? "in_memory_binary_criteo_path"
                              : in_.has("synthetic_multi_hot_criteo_path") ? "synthetic_multi_hot_criteo_path"
                                                                           : nullptr;
    if (given == nullptr && batches == 0) batches = 10;  // as the script does for data that it draws
    if (batches > 0)
      out_.training.steps = batches * epochs;
    else
      out_.notes.emplace_back(kOneEpoch);
    if (given == nullptr) return draw_samples(out_);
    out_.notes.push_back(
        fmt::format("--{}: numpy's arrays cannot be read; `data` takes Criteo's lines, or their .bin.", given));
  }

  DlrmWords in_;
  std::int64_t processes_;
  DlrmCommand out_;
};

}  // namespace

std::span<const DlrmArgument> dlrm_main_arguments() {
  return kMainArguments;
}

base::Result<DlrmCommand> read_dlrm_main(std::string_view text, std::span<const DlrmWord> launcher,
                                         std::span<const DlrmWord> own) {
  return MainReader(text, launcher, own).read();
}

}  // namespace orrery::plan
