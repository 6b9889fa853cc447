#pragma once
/// Which capabilities that Orrery can use this machine has. Only looks: changes nothing and needs no special rights.
#include <filesystem>
#include <string>
#include <vector>

namespace orrery::exec {

enum class Presence { ok, degraded, missing };

struct Capability {
  std::string name;  ///< stable: "cores", "mpi", "worker", "blas", "cuda-driver" …
  Presence presence = Presence::missing;
  std::string detail;  ///< what was found
  std::string remedy;  ///< what to do; empty when ok
};

/// `program_folder` contains the worker beside the command.
[[nodiscard]] std::vector<Capability> probe_capabilities(const std::filesystem::path& program_folder);

/// Cores that this process may run on (affinity), at least 1.
[[nodiscard]] int usable_cores();

/// Whether OpenBLAS chose a kernel without the vector instructions that the processor has (Debian 12's 0.3.21 falls
/// back to "Prescott" on processors newer than itself: OpenBLAS issue 4267).
[[nodiscard]] bool blas_kernel_is_too_old(const std::string& corename, const std::string& cpu_flags);

[[nodiscard]] const char* name_of(Presence presence);

}  // namespace orrery::exec
