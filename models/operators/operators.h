#pragma once
/// The operators, one row for each kind (models/operators/operators.cpp): its name, its operands and what it does to
/// them, what it counts, how it is priced, and what lowering and backends need to know about it. What is true of some
/// kinds and not of others is a column here, and nowhere a list of kinds. A kind without a row does not compile.
/// models/operators/op.h says what each kind computes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "models/operators/op.h"
#include "models/operators/price_family.h"

namespace orrery::models {

/// What an operator does with an operand.
enum class Use : std::uint8_t {
  reads,    ///< every input
  writes,   ///< every element, and reads none
  adds,     ///< adds to what is there
  adds_if,  ///< adds where Op::accumulate says so, else writes
  sums,     ///< as adds_if, the gradient of a weight: the first to add in a step may write instead
  changes,  ///< reads what is there, or writes a part of it
};

struct OperandTraits {
  std::string_view name;
  Use use = Use::reads;
  bool optional = false;   ///< may be -1, or missing at the end of the list
  bool statistic = false;  ///< few values on which whole rows depend: a mean, a deviation, a sum of exponentials
};

/// Operands by name, in their order. Marks after a name: ? optional, # a statistic of rows; for outputs, which are
/// written unless marked: + adds, ~ adds if so said, ^ sums, * changes.
class Operands {
 public:
  constexpr Operands() = default;
  consteval Operands(Use usual, std::string_view text) {
    while (!text.empty()) {
      const std::string_view word = text.substr(0, text.find(' '));
      text.remove_prefix(std::min(text.size(), word.size() + 1));
      const std::size_t end = std::min(word.find_first_of("?#+~^*"), word.size());
      if (end == 0 || count_ == kMost) throw "an operand without a name, or too many";
      OperandTraits& one = all_[count_++];
      one = {word.substr(0, end), usual};
      for (const char mark : word.substr(end)) take(one, mark);
    }
  }
  [[nodiscard]] constexpr std::size_t size() const { return count_; }
  [[nodiscard]] constexpr const OperandTraits& operator[](std::size_t i) const { return all_[i]; }
  [[nodiscard]] constexpr const OperandTraits* begin() const { return all_.data(); }
  [[nodiscard]] constexpr const OperandTraits* end() const { return all_.data() + count_; }

 private:
  static constexpr std::size_t kMost = 8;
  static constexpr void take(OperandTraits& one, char mark) {
    switch (mark) {
      case '?': one.optional = true; return;
      case '#': one.statistic = true; return;
      case '+': one.use = Use::adds; return;
      case '~': one.use = Use::adds_if; return;
      case '^': one.use = Use::sums; return;
      default: one.use = Use::changes; return;
    }
  }
  std::array<OperandTraits, kMost> all_{};
  std::size_t count_ = 0;
};

/// The formula that prices an operator (cost/prices/operators.cpp).
enum class PriceForm : std::uint8_t {
  streamed,     ///< its bytes move once
  drawn,        ///< the same, and masks are drawn for them
  product,      ///< a matrix product
  grouped,      ///< a product for each expert
  attention,    ///< both products of attention, and the operators between them
  permuted,     ///< tokens to the places of their experts, and back
  lookup,       ///< rows anywhere in a table
  indexed,      ///< indices, of which some stacks make several passes
  interaction,  ///< products of a sample's vectors with each other
  orthogonal,   ///< the steps of Newton-Schulz
  scanned,      ///< the products of a state space's chunks
};

/// How a framework's host issues an operator.
enum class Issued : std::uint8_t {
  forward,   ///< a call
  autograd,  ///< a call from autograd. Gradients of mixtures, tables and latent attention count as calls of forward,
             ///< because their stacks were fitted that way
  batched,   ///< one of a few calls for many tensors, or ahead of time
};

/// How finely an operator distinguishes the elements of a bucket by the parameter that they belong to.
enum class Ranges : std::uint8_t { none, treatment, parameter };

/// Whether operands are in slots (models/operators/op.h, mixtures of experts), where data decides how many rows there
/// are.
enum class InSlots : std::uint8_t {
  never,
  may,  ///< an operator on rows; in slots its last input says how many there are
  always,
};

/// How an operator treats the types of its operands.
enum class Types : std::uint8_t {
  computes,  ///< in fp32: operands of 16 bits are widened, results rounded
  converts,  ///< it changes types, and reads and writes each operand in its own type
  moves,     ///< it moves bytes
};

/// What runs it. A test compares this with what each backend does.
enum class RunBy : std::uint8_t {
  backends,  ///< every backend
  cpu,       ///< CPU ranks alone so far
  executor,  ///< it reads data, and computes nothing
  nothing,   ///< it is predicted, and not executed
};

/// What a count is for: an operator, and its sizes as numbers.
struct CountedOp {
  explicit CountedOp(const Op& of, bool full_attention_matrix = false);
  const Op& op;
  bool full;              ///< attention: count the whole matrix, whatever the mask
  double m, n, k, bytes;  ///< sizes of the operator, and of an element
};

struct OperatorTraits {
  OpKind kind{};
  const char* name = "";
  Operands in{}, out{};
  double (*flops)(const CountedOp&) = nullptr;
  double (*bytes)(const CountedOp&) = nullptr;
  PriceFamily family = PriceFamily::copy;
  PriceForm form = PriceForm::streamed;
  Issued issued = Issued::forward;
  std::optional<OpKind> gradient{};    ///< the operator that takes gradients back through it
  bool activation = false;             ///< the activation of an MLP, or its gradient
  Function function = Function::none;  ///< that it computes; none: Op::function, if any
  bool loss_gradient = false;          ///< backward begins with it
  bool updates = false;                ///< changes parameters
  Ranges ranges = Ranges::none;
  InSlots in_slots = InSlots::never;
  Types types = Types::computes;
  RunBy run_by = RunBy::backends;
};

inline constexpr std::size_t kOpKinds = static_cast<std::size_t>(kLastOpKind) + 1;

/// All rows, in the order of the kinds.
extern const std::array<OperatorTraits, kOpKinds> kOperators;

[[nodiscard]] inline const OperatorTraits& traits_of(OpKind kind) {
  return kOperators[static_cast<std::size_t>(kind)];
}
[[nodiscard]] inline const OperatorTraits& traits_of(const Op& op) {
  return traits_of(op.kind);
}
/// The kind of this name, if there is one.
[[nodiscard]] std::optional<OpKind> op_kind(std::string_view name);
/// The kind that takes gradients back through this one, which has one.
[[nodiscard]] OpKind gradient_of(OpKind kind);
/// Attention, whole or block by block, or its gradient.
[[nodiscard]] inline bool attends(OpKind kind) {
  return traits_of(kind).form == PriceForm::attention;
}
[[nodiscard]] inline bool attends(const Op& op) {
  return attends(op.kind);
}
[[nodiscard]] inline bool reads_data(const Op& op) {
  return traits_of(op).run_by == RunBy::executor;
}
/// Whether it writes all of its i-th output and reads nothing of it.
[[nodiscard]] bool only_writes(const Op& op, std::size_t output);
/// Whether its i-th output is a statistic of rows. Attention that is not flash keeps its whole matrix instead.
[[nodiscard]] bool is_statistic(const Op& op, std::size_t output);
/// Which input is the factor by which training in fp16 scales every loss. None: the operator begins no loss's gradient.
/// A router's gradient begins those of the losses that balance its experts, if it has any.
[[nodiscard]] std::optional<std::size_t> loss_scale_operand(const Op& op);
/// How its operands differ from those in its row; empty: they do not.
[[nodiscard]] std::string operand_fault(const Op& op);

}  // namespace orrery::models
