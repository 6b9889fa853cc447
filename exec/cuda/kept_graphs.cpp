// Graphs that are ready. Each has one owner; graphs are destroyed by their owner, or all together.
#include "exec/cuda/kept_graphs.h"

#include <utility>

#include "exec/cuda/check.h"

namespace orrery::exec::cuda {

class KeptGraphs::One final : public Backend::Graph {
 public:
  One(std::shared_ptr<KeptGraphs> book, cudaGraphExec_t ready) : book_(std::move(book)), ready_(ready) {}
  ~One() override {
    const std::lock_guard guard(book_->lock_);
    book_->all_.erase(this);
    destroy();
  }
  One(const One&) = delete;
  One& operator=(const One&) = delete;

 private:
  friend class KeptGraphs;
  void destroy() {  // needs the lock
    if (ready_) cudaGraphExecDestroy(std::exchange(ready_, nullptr));
  }
  std::shared_ptr<KeptGraphs> book_;
  cudaGraphExec_t ready_;
};

namespace {

[[noreturn]] void refuse() {
  throw Failure("CUDA: graphs are gone: the communicators have been aborted");
}

}  // namespace

std::unique_ptr<Backend::Graph> KeptGraphs::made_of(cudaGraph_t graph) {
  const std::lock_guard guard(lock_);
  if (dropped_) refuse();
  cudaGraphExec_t ready = nullptr;
  check(cudaGraphInstantiate(&ready, graph, 0), "making a graph ready");
  auto made = std::make_unique<One>(shared_from_this(), ready);
  all_.insert(made.get());
  return made;
}

void KeptGraphs::launch(Backend::Graph& graph, cudaStream_t stream) {
  One& one = dynamic_cast<One&>(graph);
  const std::lock_guard guard(lock_);
  if (!one.ready_) refuse();
  check(cudaGraphLaunch(one.ready_, stream), "launching a graph");
}

void KeptGraphs::drop() noexcept {
  const std::lock_guard guard(lock_);
  dropped_ = true;
  for (One* const one : all_) one->destroy();
}

}  // namespace orrery::exec::cuda
