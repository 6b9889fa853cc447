#pragma once
/// Output of nccl-tests (all_reduce_perf and its siblings): the text that they print, and the JSON that --output_file
/// writes. Format: nccl-tests 2.0 to 2.19, src/common.cu and src/util.cu.
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace orrery::cost {

struct TestedRank {
  int rank = 0, group = 0;
  std::string host;
  int device = 0;           ///< CUDA's number on that host
  std::string device_name;  ///< "NVIDIA H100 80GB HBM3"
};

/// One line. Out-of-place and in-place are two measurements of it; `seconds` is their mean, or the only one given.
struct TestedSize {
  double bytes = 0;  ///< as nccl-tests define it: for all-gather and reduce-scatter all ranks' parts together
  double seconds = 0;
  base::Location where;
};

/// The operation tested. sendrecv_perf sends to the next rank of a ring: Tested::send.
enum class Tested { all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, send };
[[nodiscard]] const char* name_of(Tested tested);  ///< "all_reduce"

struct NcclTest {
  std::string file;
  Tested operation = Tested::all_reduce;
  std::vector<TestedRank> ranks;
  std::vector<TestedSize> sizes;
  base::Diagnostics warnings;  ///< a log that ends early
};

/// Whether a text looks like output of nccl-tests.
[[nodiscard]] bool is_nccl_test(std::string_view text);

/// E0313 if a result was wrong; E0314 if it is unclear what was measured, or where.
[[nodiscard]] base::Result<NcclTest> parse_nccl_test(std::string_view text, std::string file);

}  // namespace orrery::cost
