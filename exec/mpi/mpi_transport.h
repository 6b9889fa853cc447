#pragma once
/// Transport over MPI: nonblocking collectives and messages, and a communicator for each group. Only mpi_transport.cpp
/// includes MPI's headers.
#include <memory>
#include <string>

#include "exec/engine/transport.h"
#include "exec/engine/waiter.h"

namespace orrery::exec {

/// MPI_Init_thread (serialized: a progress thread may call MPI) and MPI_Finalize. Create first in main, destroy last.
class MpiSession {
 public:
  MpiSession(int* argc, char*** argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] int ranks_on_node() const { return on_node_; }
  [[nodiscard]] int rank_on_node() const { return rank_on_node_; }
  [[nodiscard]] static std::string library_version();
  /// Ends every rank with `code`: the only way in which MPICH 4.0 reports our codes reliably.
  [[noreturn]] static void abort(int code);

 private:
  int rank_ = 0, size_ = 1, on_node_ = 1, rank_on_node_ = 0;
};

/// Uses MPI_COMM_WORLD's ranks. The session must outlive it; `waiter` serves the host-side exchanges.
[[nodiscard]] std::unique_ptr<Transport> make_mpi_transport(const MpiSession& session, const Waiter& waiter);

}  // namespace orrery::exec
