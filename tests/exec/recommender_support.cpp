// Samples, and a model in plain loops.
#include "tests/exec/recommender.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/random.h"
#include "exec/data/clicks.h"

namespace orrery::exec::testing {
namespace {

using models::Recommender;
using Row = std::vector<double>;

/// One training step after another, a sample at a time.
class Reference {
 public:
  Reference(const Trial& trial, const LogicalTensors& initial)
      : r_(*trial.model.recommender),
        optimizer_(trial.training.optimizer),
        turns_(trial.spec.states.has_server() ? trial.spec.mesh.data : 1),
        staleness_(trial.spec.states.staleness.value_or(0)),
        part_(trial.spec.shape.batch / turns_) {
    for (const auto& [name, tensor] : initial) {
      weights_[name].assign(tensor.values.begin(), tensor.values.end());
      shapes_[name] = tensor.shape;
    }
  }

  // Workers of a parameter server in turn: each one's gradient, of its part of the batch and of the weights that all
  // updates of `staleness` steps ago have left, is an update of its own.
  double step(const ClickFile& file, std::int64_t first) {
    history_.push_back(weights_);
    if (static_cast<int>(history_.size()) > staleness_ + 1) history_.pop_front();
    const std::map<std::string, Row> old = history_.front();
    double loss = 0;
    norm_ = 0;
    for (std::int64_t turn = 0; turn < turns_; ++turn) {
      gradients_.clear();
      for (const auto& [name, values] : weights_) gradients_[name].assign(values.size(), 0);
      const std::map<std::string, Row> newest = std::exchange(weights_, old);
      for (std::int64_t i = 0; i < part_; ++i) loss += sample(file, first + turn * part_ + i);
      weights_ = newest;
      double squares = 0;
      for (const auto& [name, values] : gradients_)
        for (const double g : values) squares += g * g;
      norm_ = std::max(norm_, std::sqrt(squares));
      update();
    }
    return loss / static_cast<double>(turns_ * part_);
  }
  /// A step on the next samples from `*next` on whose values before ReLUs are all `margin` or more from 0, where the
  /// ReLU's slope jumps; returns their numbers. Without a parameter server.
  std::vector<std::int64_t> step_beside_kinks(const ClickFile& file, std::int64_t* next, double margin) {
    gradients_.clear();
    for (const auto& [name, values] : weights_) gradients_[name].assign(values.size(), 0);
    std::vector<std::int64_t> taken;
    for (; std::ssize(taken) < part_; ++*next) {
      if (*next == file.size()) throw std::runtime_error("too few samples beside kinks");
      const auto gradients = gradients_;
      const auto seen = seen_;
      nearest_ = std::numeric_limits<double>::infinity();
      (void)sample(file, *next);
      if (nearest_ >= margin)
        taken.push_back(*next);
      else
        gradients_ = gradients, seen_ = seen;
    }
    update();
    return taken;
  }
  /// Of the last step's gradients; of several workers' the largest.
  [[nodiscard]] double norm() const { return norm_; }

  LogicalTensors weights() const {
    LogicalTensors out;
    for (const auto& [name, values] : weights_)
      out[name] = {shapes_.at(name), std::vector<float>(values.begin(), values.end())};
    return out;
  }

 private:
  struct Layer {
    std::string name;
    Row x, y;
    bool relu = true;
  };

  Row dense(const std::string& name, const Row& x, bool relu) {
    const Row &w = weights_.at(name + ".weight"), &b = weights_.at(name + ".bias");
    Row y(b);
    for (std::size_t o = 0; o < y.size(); ++o) {
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += w[o * x.size() + i] * x[i];
      if (!relu) continue;
      nearest_ = std::min(nearest_, std::abs(y[o]));
      y[o] = std::max(0.0, y[o]);
    }
    layers_.push_back({name, x, y, relu});
    return y;
  }
  Row dense_back(const Layer& layer, Row dy) {
    const Row& w = weights_.at(layer.name + ".weight");
    Row dx(layer.x.size(), 0);
    for (std::size_t o = 0; o < dy.size(); ++o) {
      if (layer.relu && layer.y[o] <= 0) dy[o] = 0;
      gradients_[layer.name + ".bias"][o] += dy[o];
      for (std::size_t i = 0; i < dx.size(); ++i) {
        gradients_[layer.name + ".weight"][o * dx.size() + i] += dy[o] * layer.x[i];
        dx[i] += dy[o] * w[o * dx.size() + i];
      }
    }
    return dx;
  }
  Row multiply(const std::string& name, const Row& x) const {  // without bias
    const Row& w = weights_.at(name);
    Row y(w.size() / x.size(), 0);
    for (std::size_t o = 0; o < y.size(); ++o)
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += w[o * x.size() + i] * x[i];
    return y;
  }
  Row multiply_back(const std::string& name, const Row& x, const Row& dy) {
    const Row& w = weights_.at(name);
    Row dx(x.size(), 0);
    for (std::size_t o = 0; o < dy.size(); ++o)
      for (std::size_t i = 0; i < x.size(); ++i) {
        gradients_[name][o * x.size() + i] += dy[o] * x[i];
        dx[i] += dy[o] * w[o * x.size() + i];
      }
    return dx;
  }

  double sample(const ClickFile& file, std::int64_t index) {
    const auto d = static_cast<std::size_t>(r_.embedding_dim), f = r_.tables.size() + 1;
    std::vector<float> features(static_cast<std::size_t>(r_.dense_features)), label(1);
    std::vector<std::int32_t> indices(static_cast<std::size_t>(words_of_sample(r_)));
    file.read(index, {features, label, indices});
    layers_.clear();
    Row x(features.begin(), features.end());
    for (std::size_t i = 0; i < r_.bottom_mlp.size(); ++i) x = dense("bot_l." + std::to_string(2 * i), x, true);
    Row vectors(f * d, 0);
    std::copy(x.begin(), x.end(), vectors.begin());
    const auto each_lookup = [&](const auto& see) {
      const auto words = static_cast<std::size_t>(r_.lookup_words());
      std::size_t at = 0;
      for (std::size_t t = 0; t + 1 < f; ++t)
        for (std::int64_t j = 0; j < r_.tables[t].multi_hot; ++j, at += words) {
          if (indices[at] < 0) continue;
          const double given = words == 2 ? static_cast<double>(std::bit_cast<float>(indices[at + 1])) : 1;
          see(t, static_cast<std::size_t>(indices[at]), given * weight(r_.tables[t]));
        }
    };
    each_lookup([&](std::size_t t, std::size_t row, double weight) {
      seen_[name_of(t)].insert(row);
      for (std::size_t c = 0; c < d; ++c) vectors[(t + 1) * d + c] += weight * weights_.at(name_of(t))[row * d + c];
    });
    const std::size_t bottom_layers = layers_.size();
    std::vector<Row> xs = {vectors}, vs, us;
    Row top = r_.interaction == models::Interaction::dot ? dot(vectors) : cross(xs, vs, us);
    for (std::size_t i = 0; i < r_.top_mlp.size(); ++i)
      top = dense("top_l." + std::to_string(2 * i), top, i + 1 < r_.top_mlp.size());
    const double l = top[0], y = static_cast<double>(label[0]);
    const double loss = std::max(l, 0.0) + std::log1p(std::exp(-std::abs(l))) - y * l;
    Row dy = {(1 / (1 + std::exp(-l)) - y) / static_cast<double>(part_)};
    for (std::size_t i = layers_.size(); i-- > bottom_layers;) dy = dense_back(layers_[i], dy);
    Row dvectors = r_.interaction == models::Interaction::dot ? dot_back(vectors, dy) : cross_back(xs, vs, us, dy);
    each_lookup([&](std::size_t t, std::size_t row, double weight) {
      for (std::size_t c = 0; c < d; ++c) gradients_[name_of(t)][row * d + c] += weight * dvectors[(t + 1) * d + c];
    });
    dvectors.resize(d);
    for (std::size_t i = bottom_layers; i-- > 0;) dvectors = dense_back(layers_[i], dvectors);
    return loss;
  }

  Row dot(const Row& v) const {
    const auto d = static_cast<std::size_t>(r_.embedding_dim);
    Row out(v.begin(), v.begin() + r_.embedding_dim);
    for (std::size_t i = 1; i < v.size() / d; ++i)
      for (std::size_t j = 0; j < i; ++j) {
        double sum = 0;
        for (std::size_t c = 0; c < d; ++c) sum += v[i * d + c] * v[j * d + c];
        out.push_back(sum);
      }
    return out;
  }
  Row dot_back(const Row& v, const Row& dy) const {
    const auto d = static_cast<std::size_t>(r_.embedding_dim);
    Row dv(v.size(), 0);
    std::copy(dy.begin(), dy.begin() + r_.embedding_dim, dv.begin());
    std::size_t at = d;
    for (std::size_t i = 1; i < v.size() / d; ++i)
      for (std::size_t j = 0; j < i; ++j, ++at)
        for (std::size_t c = 0; c < d; ++c)
          dv[i * d + c] += dy[at] * v[j * d + c], dv[j * d + c] += dy[at] * v[i * d + c];
    return dv;
  }
  Row cross(std::vector<Row>& xs, std::vector<Row>& vs, std::vector<Row>& us) const {
    for (std::int64_t layer = 0; layer < r_.cross_layers; ++layer) {
      const std::string name = "cross_l." + std::to_string(layer);
      vs.push_back(multiply(name + ".v.weight", xs.back()));
      us.push_back(multiply(name + ".w.weight", vs.back()));
      Row next = xs.back();
      for (std::size_t i = 0; i < next.size(); ++i) {
        us.back()[i] += weights_.at(name + ".w.bias")[i];
        next[i] += xs[0][i] * us.back()[i];
      }
      xs.push_back(next);
    }
    return xs.back();
  }
  Row cross_back(const std::vector<Row>& xs, const std::vector<Row>& vs, const std::vector<Row>& us, Row dy) {
    Row first(dy.size(), 0);
    for (std::size_t layer = vs.size(); layer-- > 0;) {
      const std::string name = "cross_l." + std::to_string(layer);
      Row du(dy.size());
      for (std::size_t i = 0; i < dy.size(); ++i) {
        first[i] += dy[i] * us[layer][i];
        du[i] = dy[i] * xs[0][i];
        gradients_[name + ".w.bias"][i] += du[i];
      }
      const Row dx = multiply_back(name + ".v.weight", xs[layer], multiply_back(name + ".w.weight", vs[layer], du));
      for (std::size_t i = 0; i < dy.size(); ++i) dy[i] += dx[i];
    }
    for (std::size_t i = 0; i < dy.size(); ++i) dy[i] += first[i];
    return dy;
  }

  void update() {
    if (optimizer_.kind == plan::OptimizerKind::adam) return update_by_adam();
    const double rate = optimizer_.learning_rate, epsilon = optimizer_.epsilon;
    const bool adagrad = optimizer_.kind == plan::OptimizerKind::rowwise_adagrad;
    for (auto& [name, w] : weights_) {
      const Row& g = gradients_[name];
      Row& state = states_[name];
      state.resize(w.size(), 0);
      const std::size_t row = name.rfind("emb_l", 0) == 0 ? static_cast<std::size_t>(r_.embedding_dim) : 1;
      for (std::size_t i = 0; i < w.size(); i += row) {
        double step = rate, squares = 0;
        for (std::size_t c = 0; c < row; ++c) squares += g[i + c] * g[i + c];
        if (adagrad) {
          state[i] += squares / static_cast<double>(row);
          step = squares > 0 ? rate / (std::sqrt(state[i]) + epsilon) : 0;
        }
        for (std::size_t c = 0; c < row; ++c) w[i + c] -= step * g[i + c];
      }
    }
  }

  // Rows that the step has looked up; of MLPs all.
  void update_by_adam() {
    ++steps_;
    const plan::Optimizer& o = optimizer_;
    const double first = 1 - std::pow(o.beta1, steps_), second = 1 - std::pow(o.beta2, steps_);
    for (auto& [name, w] : weights_) {
      const Row& g = gradients_[name];
      std::vector<Row>& moments = moments_[name];
      moments.resize(2, Row(w.size(), 0));
      const bool table = name.rfind("emb_l", 0) == 0;
      const std::size_t row = table ? static_cast<std::size_t>(r_.embedding_dim) : 1;
      for (std::size_t i = 0; i < w.size(); ++i) {
        if (table && seen_[name].count(i / row) == 0) continue;
        moments[0][i] = o.beta1 * moments[0][i] + (1 - o.beta1) * g[i];
        moments[1][i] = o.beta2 * moments[1][i] + (1 - o.beta2) * g[i] * g[i];
        w[i] -= o.learning_rate * (moments[0][i] / first) / (std::sqrt(moments[1][i] / second) + o.epsilon);
      }
    }
    seen_.clear();
  }

  static std::string name_of(std::size_t table) { return models::table_name(static_cast<std::int64_t>(table)); }
  static double weight(const models::Table& table) {
    return table.pooling == models::Pooling::mean && !table.varies() ? 1.0 / static_cast<double>(table.multi_hot) : 1.0;
  }

  const Recommender& r_;
  plan::Optimizer optimizer_;
  std::int64_t turns_;
  int staleness_;
  std::int64_t part_;  ///< samples of a turn
  double norm_ = 0;
  double nearest_ = 0;                              ///< to 0 of the values before ReLUs
  std::deque<std::map<std::string, Row>> history_;  ///< weights before each of the last steps
  std::map<std::string, Row> weights_, gradients_, states_;
  std::map<std::string, std::vector<Row>> moments_;
  std::map<std::string, std::set<std::size_t>> seen_;  ///< rows that the step has looked up
  double steps_ = 0;
  std::map<std::string, std::vector<std::int64_t>> shapes_;
  std::vector<Layer> layers_;
};

}  // namespace

models::Model small_recommender(bool cross) {
  models::Model model;
  model.name = "small-dlrm";
  model.family = models::Family::dlrm;
  Recommender r;
  r.dense_features = 3;
  r.embedding_dim = 8;
  r.tables = {{50, models::Pooling::sum, 1},
              {7, models::Pooling::mean, 3},
              {200, models::Pooling::sum, 4},
              {13, models::Pooling::sum, 2}};
  r.bottom_mlp = {16, 8};
  r.top_mlp = {16, 8, 1};
  if (cross) {
    r.interaction = models::Interaction::cross;
    r.cross_layers = 2;
    r.cross_rank = 5;
  }
  model.layers = 5 + r.cross_layers;
  model.hidden = 8;
  model.heads = model.kv_heads = model.head_dim = model.ffn_hidden = model.vocab = model.max_sequence = 1;
  model.recommender = r;
  return model;
}

models::Model recommender_of_bags(bool cross) {
  models::Model model = small_recommender(cross);
  model.recommender->tables = {{50, models::Pooling::sum, 3, 0},
                               {7, models::Pooling::mean, 3, 1},
                               {200, models::Pooling::weighted, 4, 0},
                               {13, models::Pooling::weighted, 2}};
  return model;
}

std::string click_file(const models::Model& model, std::int64_t count, const std::string& name) {
  const Recommender& r = *model.recommender;
  const std::string path = ::testing::TempDir() + "clicks-" + std::to_string(::getpid()) + "-" + name + ".tsv";
  std::ofstream out(path);
  std::uint64_t draw = 0;
  const auto uniform = [&](std::uint64_t below) {
    const double z = base::normal(7, 1, draw++);
    return static_cast<std::uint64_t>(0.5 * std::erfc(-z / std::sqrt(2.0)) * static_cast<double>(below)) % below;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    std::string line;
    std::uint64_t sum = 0;
    for (std::int64_t f = 0; f < r.dense_features; ++f) {
      const std::uint64_t value = uniform(100);
      sum += value / 20;
      line += uniform(10) == 0 ? "\t" : "\t" + std::to_string(value);
    }
    for (const models::Table& table : r.tables) {
      std::int64_t length = table.multi_hot;
      if (table.varies())
        length = *table.fewest +
                 static_cast<std::int64_t>(uniform(static_cast<std::uint64_t>(table.multi_hot - *table.fewest + 1)));
      if (length == 0) line += "\t";
      for (std::int64_t j = 0; j < length; ++j) {
        // Small values are frequent, as in clicks.
        const std::uint64_t value = uniform(uniform(2) == 0 ? 5 : static_cast<std::uint64_t>(3 * table.rows));
        sum += value % 3;
        char text[20];
        std::snprintf(text, sizeof text, "%c%llx", table.varies() && j > 0 ? ',' : '\t',
                      static_cast<unsigned long long>(value));
        line += text;
        if (table.pooling == models::Pooling::weighted && value % 4 > 0) line += ":0." + std::to_string(value % 9 + 1);
      }
    }
    out << (sum % 5 < 2 ? "1" : "0") << line << "\n";
  }
  return path;
}

namespace {

constexpr std::int64_t kSamples = 200;  // fewer than 20 steps read: rows come again

Trial trial_of(models::Model model, const std::string& name, plan::OptimizerKind kind) {
  Trial trial;
  trial.model = std::move(model);
  trial.spec.shape.batch = trial.spec.shape.micro_batch = 16;
  trial.spec.shape.sequence = 1;
  trial.training.steps = 20;
  trial.training.data = click_file(trial.model, kSamples, name);
  trial.training.seed = 3;
  plan::Optimizer& o = trial.training.optimizer;
  o.kind = kind;
  o.learning_rate = kind == plan::OptimizerKind::sgd ? 0.1 : kind == plan::OptimizerKind::adam ? 0.01 : 0.02;
  o.beta2 = 0.999;
  o.momentum = 0;
  o.weight_decay = 0;
  o.epsilon = 1e-8;
  return trial;
}

}  // namespace

Trial click_trial(bool cross, plan::OptimizerKind kind) {
  return trial_of(small_recommender(cross), cross ? "cross" : "dot", kind);
}

Trial click_trial(bool cross, bool adagrad) {
  return click_trial(cross, adagrad ? plan::OptimizerKind::rowwise_adagrad : plan::OptimizerKind::sgd);
}

Trial bag_trial(bool cross, plan::OptimizerKind kind) {
  return trial_of(recommender_of_bags(cross), cross ? "bags-cross" : "bags", kind);
}

Trial golden_clicks(plan::OptimizerKind kind) {
  Trial trial = click_trial(false, kind);
  const std::string folder = std::string(ORRERY_SOURCE_DIR) + "/tests/golden/pytorch/";
  trial.training.data = folder + "dlrm_clicks.tsv";
  trial.training.initial_weights = folder + "dlrm_initial.safetensors";
  return trial;
}

void split(Trial& trial, int ranks, plan::TableSharding sharding) {
  trial.spec.mesh.data = ranks;
  trial.spec.shape.micro_batch = trial.spec.shape.batch / ranks;
  trial.spec.embedding.sharding = sharding;
}

void place(Trial& trial, int ranks, const std::vector<std::string>& places) {
  split(trial, ranks, plan::TableSharding::automatic);
  std::vector<plan::TablePlacement::Cell> cells;
  for (const std::string& place : places) cells.push_back({place, {}});
  trial.spec.embedding.placement = *plan::TablePlacement::parse_rows(cells);
}

plan::Plan plan_on_nodes(const Trial& trial, int per_node) {
  const plan::Plan plan = plan_of(trial);
  auto cluster = std::make_shared<clusters::Cluster>(plan.cluster());
  cluster->devices_per_node = per_node;
  cluster->nodes = trial.spec.mesh.data / per_node;
  plan::PlanSpec spec = plan.spec();
  spec.embedding = trial.spec.embedding;
  auto made = plan::make_plan(std::make_shared<const models::Model>(trial.model), cluster, spec);
  if (!made) throw std::runtime_error(base::render(made.error(), false));
  return std::move(*made);
}

ReferenceRun reference_run(const Trial& trial, const LogicalTensors& initial) {
  const auto file = ClickFile::open(trial.training.data, *trial.model.recommender);
  EXPECT_TRUE(file) << base::render(file.error(), false);
  Reference reference(trial, initial);
  ReferenceRun out;
  for (std::int64_t step = 0; step < trial.steps; ++step) {
    out.losses.push_back(reference.step(**file, step * trial.spec.shape.batch));
    out.norms.push_back(reference.norm());
  }
  out.weights = reference.weights();
  return out;
}

Trial beside_kinks(Trial trial, const LogicalTensors& initial, std::int64_t* dropped) {
  constexpr double kMargin = 1e-4;  // rounding moves values by some 1e-6 in 20 steps
  const std::int64_t needed = trial.steps * trial.spec.shape.batch;
  const std::string all = click_file(trial.model, 2 * needed, "beside-kinks-all");
  const auto file = ClickFile::open(all, *trial.model.recommender);
  EXPECT_TRUE(file) << base::render(file.error(), false);
  Reference reference(trial, initial);
  std::vector<std::int64_t> taken;
  std::int64_t next = 0;
  for (std::int64_t step = 0; step < trial.steps; ++step)
    for (const std::int64_t sample : reference.step_beside_kinks(**file, &next, kMargin)) taken.push_back(sample);
  *dropped = next - needed;
  trial.training.data = all.substr(0, all.size() - 4) + "-taken.tsv";
  std::ifstream in(all);
  std::ofstream out(trial.training.data);
  auto at = taken.begin();
  std::int64_t number = 0;
  for (std::string line; at != taken.end() && std::getline(in, line); ++number)
    if (number == *at) out << line << "\n", ++at;
  return trial;
}

}  // namespace orrery::exec::testing
