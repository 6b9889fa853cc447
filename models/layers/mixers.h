#pragma once
/// The kinds of mixers, one row for each: its words, the sizes that it has, what divides it and what does not, its
/// operators. Readers, checks, rules of plans, reports and the expansion of blocks ask the rows and know no kind by
/// name. Adding one takes its name (models/state_space.h), a source with its row, and a line in mixers.cpp.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/layers/expand.h"
#include "models/model.h"

namespace orrery::models {

class LinearNotes;

/// A mixer's notes: its constructor notes down tensors, forward() and backward() operators.
class MixerNotes {
 public:
  virtual ~MixerNotes() = default;
  /// h (partial over the tensor group) = the mixer of x (all rows), without its bias; `adds`: added to h.
  virtual void forward(TensorId x, TensorId h, bool adds) = 0;
  /// From dh to dx, the gradient of x, which gets the name `name`; dh, x and dx are of this rank's own rows.
  virtual void backward(TensorId dh, TensorId x, TensorId dx, const std::string& name) = 0;
  /// Added with the residual; none: there is no such bias.
  [[nodiscard]] virtual TensorId bias() const { return {}; }
};

/// Reports at `key` of a model's file unless it holds.
using Needs = std::function<void(const char* key, bool holds, const std::string& message, const std::string& help)>;

struct MixerTraits {
  Mixer mixer{};
  const char* word = "";            ///< in patterns
  std::optional<char> letter = {};  ///< in Nemotron-H's
  const char *title = "", *titles = "";
  /// Its sizes in a model's file, if it has some of its own, and whether a model has them.
  const char* key = nullptr;
  const char* example = "";  ///< of that key and a pattern
  bool (*sized)(const Model&) = nullptr;
  bool convolves = false;           ///< of `state_space` it has `taps` and `conv_bias`
  bool has_rank = false;            ///< of `state_space` it has `rank`
  bool in_order = false;            ///< reads the tokens of a sequence one after another
  OpKind core{};                    ///< the operator in which tokens meet: what runs it runs the mixer
  std::vector<Mixer> members = {};  ///< of several that read one norm and are summed; empty: itself
  /// What else has to hold of a model with such blocks.
  void (*check)(const Needs&, const Model&) = nullptr;
  /// What `ways` tensor ranks do not divide ("the short convolutions' 100 columns"); empty: they divide all of it.
  std::string (*undivided)(const Model&, std::int64_t ways) = nullptr;
  const char* divisors = "";                     ///< which degrees divide it
  std::string (*sizes)(const Model&) = nullptr;  ///< in words
  std::unique_ptr<MixerNotes> (*notes)(LinearNotes&) = nullptr;
};

/// All rows, in the order of the kinds.
[[nodiscard]] std::span<const MixerTraits> mixers();
[[nodiscard]] const MixerTraits& traits_of(Mixer mixer);
/// The kinds that some block has, alone or beside another, in the order of the rows.
[[nodiscard]] std::vector<const MixerTraits*> mixers_of(const Model& model);
/// The mixers of one block, one after another.
[[nodiscard]] std::vector<Mixer> members_of(Mixer mixer);
/// "mamba, delta and conv", for messages: the words of all kinds.
[[nodiscard]] std::string known_mixers();

}  // namespace orrery::models
