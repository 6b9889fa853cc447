#pragma once
/// The graphs that a backend has made ready, kept together so that all can be destroyed at once: a communicator does
/// not end while a graph holds one of its operations (NCCL 2.26 and later, src/init.cc: commDestroySync).
#include <cuda_runtime.h>

#include <memory>
#include <mutex>
#include <set>

#include "exec/engine/backend.h"

namespace orrery::exec::cuda {

/// Both the rank's thread and the thread that ends the rank may call it.
class KeptGraphs : public std::enable_shared_from_this<KeptGraphs> {
 public:
  /// Makes `graph` ready. Throws Failure if that fails, and after `drop`.
  [[nodiscard]] std::unique_ptr<Backend::Graph> made_of(cudaGraph_t graph);
  /// `graph` must be one of these. Throws Failure if it cannot be queued, and after `drop`.
  void launch(Backend::Graph& graph, cudaStream_t stream);
  /// Destroys all graphs, even running ones: these finish normally, and are freed then (cuGraphExecDestroy).
  void drop() noexcept;

 private:
  class One;
  std::mutex lock_;
  std::set<One*> all_;
  bool dropped_ = false;
};

}  // namespace orrery::exec::cuda
