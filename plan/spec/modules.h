#pragma once
/// The parts of a block that selective recomputation repeats one by one, as Megatron-core's `recompute_modules`.
#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace orrery::plan {

/// What backward makes again from what these read. `core`: unfused attention's probabilities. `norms`: what every norm
/// makes. `up_projections`: queries, keys and values that latent attention makes from its narrow vectors.
/// `activations`: what activation functions make, gates included, of MLPs and of experts. `mlp`: also what the first
/// product of a layer without experts makes. `experts`: a mixture from its router on.
enum class Module : std::uint8_t { core, norms, up_projections, activations, mlp, experts };
inline constexpr std::array<const char*, 6> kModuleWords = {"core",        "norms", "up_projections",
                                                            "activations", "mlp",   "experts"};

/// A set of modules.
class Modules {
 public:
  struct Cell {
    std::string text;
    base::Location where;
  };
  Modules() = default;
  /// Words as in files; Megatron-core's names of modules are understood. Diagnostics have code E0129.
  [[nodiscard]] static base::Result<Modules> parse_rows(const std::vector<Cell>& rows);
  [[nodiscard]] std::vector<std::string> rows() const;
  [[nodiscard]] bool empty() const { return bits_ == 0; }
  [[nodiscard]] bool has(Module one) const { return (bits_ & bit(one)) != 0; }
  [[nodiscard]] Modules with(Module one) const { return Modules(bits_ | bit(one)); }
  [[nodiscard]] Modules without(Module one) const { return Modules(bits_ & ~bit(one)); }
  auto operator<=>(const Modules&) const = default;

 private:
  explicit Modules(unsigned bits) : bits_(static_cast<std::uint8_t>(bits)) {}
  [[nodiscard]] static unsigned bit(Module one) { return 1U << static_cast<unsigned>(one); }
  std::uint8_t bits_ = 0;
};

}  // namespace orrery::plan
