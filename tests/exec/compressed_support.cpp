// Replicas one after the other. The rounding and PowerSGD are written once more here, the latter with Eigen in double
// precision after the paper's algorithms 1 and 2; nothing of how the ranks divide their work is used.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <stdexcept>

#include "base/random.h"
#include "exec/engine/half.h"
#include "exec/engine/thread_transport.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "tests/exec/compressed.h"

namespace orrery::exec::testing {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Trial alone(Trial trial, int parts) {
  plan::PlanSpec& spec = trial.spec;
  spec.mesh.data = spec.mesh.tensor = spec.mesh.pipeline = 1;
  spec.states.zero_stage = 0;
  spec.states.overlap_gradients = false;
  spec.compression = {};
  spec.shape.batch /= parts;
  return trial;
}

/// A trainer of one rank whose weights and gradients can be read and written.
class Rank {
 public:
  explicit Rank(const Trial& trial)
      : trial_(trial),
        plan_(plan_of(trial)),
        schedule_(plan::lower(plan_)),
        world_(1),
        transport_(world_.transport(0)),
        waiter_(wait_policy(1, available_cores(), std::chrono::seconds(60))),
        backend_(make_cpu_backend(1)) {
    auto stream = TokenStream::open(trial.training.data);
    if (!stream) throw std::runtime_error(base::render(stream.error(), false));
    // Of its own copy: a trainer keeps the training that it is given.
    trainer_.emplace(plan_, trial_.training, schedule_, *backend_, *transport_, waiter_,
                     Batches(std::move(*stream), plan::DataOrder::sequential, trial.training.seed,
                             plan_.spec().shape.batch, plan_.spec().shape.sequence, trial.model.vocab),
                     Executor::Options{});
    const auto file = SafetensorsFile::open(trial.training.initial_weights);
    initialise(schedule_, 0, arena(), *backend_, *file_source(*file, schedule_));
  }
  Arena& arena() { return trainer_->executor().arena(); }
  LogicalTensors gathered(Gathered what) { return gather_logical(schedule_, what, arena(), *backend_, *transport_); }
  StepResult step(std::int64_t index, const std::function<void()>& before_update) {
    return trainer_->step(index, before_update);
  }
  void write(const LogicalTensors& tensors, Gathered what) {
    const plan::RankClass& c = schedule_.classes.front();
    for (const plan::Bucket& bucket : c.buckets) {
      const plan::BufferId buffer = what == Gathered::weights ? bucket.parameters : bucket.gradients;
      transfer(arena().data(buffer, -1), models::DType::fp32, holdings(c, bucket, buffer, 0), 0, *backend_,
               StateTransfer::to_device, [&](const Holding& holding, const Run& run, std::span<float> values) {
                 const std::vector<float>& from = tensors.at(holding.range->name).values;
                 std::copy_n(from.begin() + run.logical, values.size(), values.begin());
               });
    }
  }

 private:
  Trial trial_;
  plan::Plan plan_;
  plan::Schedule schedule_;
  ThreadWorld world_;
  std::unique_ptr<Transport> transport_;
  Waiter waiter_;
  std::unique_ptr<Backend> backend_;
  std::optional<Trainer> trainer_;
};

float rounded(float value, plan::GradientCompression how) {
  return how == plan::GradientCompression::bf16 ? from_bf16(to_bf16(value)) : from_fp16(to_fp16(value));
}

/// The sum of 2, 4, 8 ... replicas' values as a binary tree of them, as a node's ranks add.
float tree(const std::vector<LogicalTensors>& replicas, const std::string& name, std::size_t i, std::size_t first,
           std::size_t count) {
  if (count == 1) return replicas[first].at(name).values[i];
  return tree(replicas, name, i, first, count / 2) + tree(replicas, name, i, first + count / 2, count - count / 2);
}

/// The sum of the replicas' gradients in fp32, of what they have rounded, or, by node, of what the sums of nodes are
/// rounded to; rounded again where everybody gets it.
LogicalTensors in_halves(const std::vector<LogicalTensors>& replicas, const plan::PlanSpec& spec) {
  const plan::GradientCompression how = spec.compression.gradients;
  const auto node = static_cast<std::size_t>(std::max(1, spec.compression.group));
  LogicalTensors sum = replicas.front();
  for (auto& [name, tensor] : sum)
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      const auto of_node = [&, &key = name](std::size_t first) {  // clang 14 captures no bindings by itself
        return rounded(tree(replicas, key, i, first, node), how);
      };
      float value = of_node(0);
      for (std::size_t r = node; r < replicas.size(); r += node) value += of_node(r);
      tensor.values[i] = spec.states.zero_stage == 0 ? rounded(value, how) : value;
    }
  return sum;
}

class PowerSgd {
 public:
  PowerSgd(const plan::Compression& compression, std::size_t replicas) : compression_(compression), errors_(replicas) {}

  LogicalTensors reduce(const std::vector<LogicalTensors>& replicas) {
    LogicalTensors sum = replicas.front();
    for (auto& [name, tensor] : sum) {
      const std::int64_t rank = rank_of(tensor.shape);
      if (rank == 0) {
        for (std::size_t i = 0; i < tensor.values.size(); ++i)
          for (std::size_t r = 1; r < replicas.size(); ++r) tensor.values[i] += replicas[r].at(name).values[i];
        continue;
      }
      const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
      std::vector<Matrix> updates;
      for (std::size_t r = 0; r < replicas.size(); ++r) {
        Matrix& error = errors_[r].try_emplace(name, Matrix::Zero(rows, columns)).first->second;
        updates.push_back(matrix(replicas[r].at(name)) + error);
      }
      Matrix& q = q_.try_emplace(name, first_q(name, columns, rank)).first->second;
      Matrix p = Matrix::Zero(rows, rank), next = Matrix::Zero(columns, rank);
      for (const Matrix& m : updates) p += m * q;
      orthogonalise(p);
      for (const Matrix& m : updates) next += m.transpose() * p;
      q = next;
      const Matrix all = p * q.transpose();
      for (std::size_t r = 0; r < replicas.size(); ++r)
        errors_[r][name] = updates[r] - all / static_cast<double>(replicas.size());
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j)
          tensor.values[static_cast<std::size_t>(i * columns + j)] = static_cast<float>(all(i, j));
    }
    return sum;
  }

  [[nodiscard]] std::vector<LogicalTensors> errors() const {
    std::vector<LogicalTensors> out;
    for (const std::map<std::string, Matrix>& one : errors_) {
      LogicalTensors& tensors = out.emplace_back();
      for (const auto& [name, m] : one) {
        LogicalTensor& tensor = tensors[name];
        tensor.shape = {m.rows(), m.cols()};
        for (std::int64_t i = 0; i < m.size(); ++i) tensor.values.push_back(static_cast<float>(m.data()[i]));
      }
    }
    return out;
  }

 private:
  [[nodiscard]] std::int64_t rank_of(const std::vector<std::int64_t>& shape) const {
    if (shape.size() != 2 || shape[1] == 1) return 0;
    const std::int64_t rank = std::min<std::int64_t>({compression_.rank, shape[0], shape[1]});
    return static_cast<double>((shape[0] + shape[1]) * rank) * compression_.minimum_rate <
                   static_cast<double>(shape[0] * shape[1])
               ? rank
               : 0;
  }
  static Matrix matrix(const LogicalTensor& tensor) {
    Matrix m(tensor.shape[0], tensor.shape[1]);
    for (std::int64_t i = 0; i < m.size(); ++i)
      m.data()[i] = static_cast<double>(tensor.values[static_cast<std::size_t>(i)]);
    return m;
  }
  static Matrix first_q(const std::string& name, std::int64_t columns, std::int64_t rank) {
    Matrix q(columns, rank);
    for (std::int64_t i = 0; i < q.size(); ++i)
      q.data()[i] = base::normal(0, base::stream_of(name + ".low_rank_q"), static_cast<std::uint64_t>(i));
    return q;
  }
  static void orthogonalise(Matrix& p) {
    for (std::int64_t c = 0; c < p.cols(); ++c) {
      for (std::int64_t other = 0; other < c; ++other) p.col(c) -= p.col(c).dot(p.col(other)) * p.col(other);
      p.col(c).normalize();
    }
  }

  plan::Compression compression_;
  std::vector<std::map<std::string, Matrix>> errors_;
  std::map<std::string, Matrix> q_;
};

}  // namespace

Compressed train_compressed(const Trial& trial) {
  const auto replicas = static_cast<std::size_t>(trial.spec.mesh.data);
  Rank all(alone(trial, 1));
  Trial part = alone(trial, trial.spec.mesh.data);
  part.training.clip_norm.reset();
  Rank replica(part);
  PowerSgd power(trial.spec.compression, replicas);
  Compressed out;
  for (std::int64_t step = 0; step < trial.steps; ++step) {
    const LogicalTensors weights = all.gathered(Gathered::weights);
    std::vector<LogicalTensors> gradients;
    for (std::size_t r = 0; r < replicas; ++r) {
      replica.write(weights, Gathered::weights);
      (void)replica.step(step * trial.spec.mesh.data + static_cast<std::int64_t>(r),
                         [&] { gradients.push_back(replica.gathered(Gathered::gradients)); });
      // Its loss is a mean over its own tokens.
      for (auto& [name, tensor] : gradients.back())
        for (float& g : tensor.values) g /= static_cast<float>(replicas);
    }
    out.outcome.steps.push_back(all.step(step, [&] {
      const LogicalTensors reduced = trial.spec.compression.gradients == plan::GradientCompression::powersgd
                                         ? power.reduce(gradients)
                                         : in_halves(gradients, trial.spec);
      if (trial.gradients_at.count(step)) out.outcome.gradients[step] = reduced;
      all.write(reduced, Gathered::gradients);
    }));
  }
  out.outcome.weights = all.gathered(Gathered::weights);
  out.errors = power.errors();
  return out;
}

}  // namespace orrery::exec::testing
