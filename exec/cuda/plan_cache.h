#pragma once
/// Which of cuBLASLt's kernels computes a matrix product of some shape, and whether its epilogue is worth using, kept
/// on disk: tuned once per shape, device and library version. Nothing here needs a GPU.
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "models/dtype.h"

namespace orrery::exec::cuda {

/// What a product does with its result besides writing it.
enum class Epilogue : std::uint8_t {
  none,
  bias,       ///< + bias
  gelu_aux,   ///< writes the result to `aux`, and its GELU to the output
  bias_gelu,  ///< both
  gelu_grad,  ///< times the derivative of GELU at `aux`
  bias_grad   ///< also writes sums of A over the inner dimension
};
[[nodiscard]] const char* name_of(Epilogue epilogue);

/// Everything on which the choice of a kernel may depend, row-major as in models/operators/op.h.
struct ProductShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  bool accumulate = false;
  bool tf32 = false;  ///< fp32 operands, rounded on the way in
  models::DType in = models::DType::fp32, out = models::DType::fp32;
  Epilogue epilogue = Epilogue::none;
  int alignment = 256;    ///< all addresses are multiples of this many bytes, at most 256
  bool gradient = false;  ///< fp8: A is a gradient, in e5m2; B is in e4m3
  auto operator<=>(const ProductShape&) const = default;
};

/// The largest power of two up to 256 that divides all of these addresses.
[[nodiscard]] int common_alignment(std::initializer_list<const void*> addresses);

/// A chosen kernel: cuBLASLt's description of it, which by its documentation may be stored and restored under the same
/// version.
struct StoredPlan {
  std::array<std::uint64_t, 8> algorithm{};
  std::uint64_t workspace_bytes = 0;
  double seconds = 0;  ///< as timed; 0: the first proposal, not timed
  bool operator==(const StoredPlan&) const = default;
};

/// A product with its epilogue in one kernel, timed against the plain product and the kernels that do the rest.
struct StoredChoice {
  bool as_one = false;
  double one_seconds = 0, apart_seconds = 0;
  bool operator==(const StoredChoice&) const = default;
};

class PlanCache {
 public:
  /// `path` empty: in memory only. Skips lines that it does not understand or that are for another device or version. A
  /// file that cannot be read or written is no error: tuning is repeated then.
  PlanCache(std::string path, std::string device, std::uint64_t library_version);
  [[nodiscard]] std::optional<StoredPlan> find(const ProductShape& shape) const;
  /// Keeps the plan and appends it to the file in one write, so that a machine's ranks may share it.
  void keep(const ProductShape& shape, const StoredPlan& plan);
  /// The same for the choice about the shape's epilogue, on its own line beside the plan's.
  [[nodiscard]] std::optional<StoredChoice> find_choice(const ProductShape& shape) const;
  void keep(const ProductShape& shape, const StoredChoice& choice);
  [[nodiscard]] std::size_t size() const { return plans_.size(); }
  [[nodiscard]] const std::string& path() const { return path_; }

  /// One line of the file, and back; empty if it is not one.
  [[nodiscard]] std::string line_of(const ProductShape& shape, const StoredPlan& plan) const;
  [[nodiscard]] std::optional<std::pair<ProductShape, StoredPlan>> parse(const std::string& line) const;
  [[nodiscard]] std::string line_of(const ProductShape& shape, const StoredChoice& choice) const;
  [[nodiscard]] std::optional<std::pair<ProductShape, StoredChoice>> parse_choice(const std::string& line) const;

 private:
  [[nodiscard]] std::string head(const char* format) const;
  void append(const std::string& line) const;
  std::string path_, device_;
  std::uint64_t version_;
  std::map<ProductShape, StoredPlan> plans_;
  std::map<ProductShape, StoredChoice> choices_;
};

/// cublaslt-plans.txt in $ORRERY_CACHE_DIR, else in orrery/ under $XDG_CACHE_HOME or ~/.cache; empty if none is set.
[[nodiscard]] std::string default_plan_file();

}  // namespace orrery::exec::cuda
