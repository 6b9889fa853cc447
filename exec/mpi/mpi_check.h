#pragma once
/// MPI's error codes as Failures.

namespace orrery::exec {

/// Throws Failure "WHAT: MPI's message" unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* what);

}  // namespace orrery::exec
