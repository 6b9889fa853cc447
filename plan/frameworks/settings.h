#pragma once
/// What frameworks' files have in common: a setting is a key with values at a place, whether it was written as a flag
/// of a script, a key of TOML or a path in JSON. A framework is a table with a row for each setting that it knows: how
/// a plan is written in its words, and how such words are read, side by side.
#include <cstdint>
#include <initializer_list>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "plan/spec/plan.h"
#include "plan/spec/plan_file.h"

namespace orrery::plan {

struct GivenValue {
  std::string text;
  base::Location where;
  std::string missing = {};  ///< what would have to be known to evaluate it ("$NODES"); empty: nothing
};
/// A setting as a file has it.
struct Given {
  std::string key;  ///< "num-layers", "parallelism.tensor_parallel_degree", "zero_optimization.stage"
  base::Location where;
  std::vector<GivenValue> values;  ///< none: a flag alone
  std::string said = {};           ///< the file's own name of it, where `key` is another framework's
};

/// What is read of a run, before it is a plan.
struct Draft {
  models::Model model;
  PlanSpec spec;
  Training training;
  std::string stack;         ///< the software's name among cost/stacks
  Software software;         ///< how it is set up
  std::string catalogue;     ///< a model of the catalogue's that the file names; empty: `model` is read from the file
  int ranks = 0;             ///< 0: the file does not say
  int per_node = 0;          ///< likewise
  std::int64_t samples = 0;  ///< length of the run, where it is given so
  std::map<std::string, double> open;        ///< numbers that mean something only beside others
  std::map<std::string, std::string> words;  ///< likewise
};

/// Reads settings and remembers what is wrong, what was assumed, and what has no counterpart.
class Reading {
 public:
  explicit Reading(std::string framework) : framework_(std::move(framework)) {}

  [[nodiscard]] std::int64_t integer(const Given& at, std::int64_t low, std::int64_t high);
  [[nodiscard]] double number(const Given& at, double low, double high);
  [[nodiscard]] bool boolean(const Given& at);  ///< a flag alone holds
  [[nodiscard]] std::string text(const Given& at);
  /// The values as one text with spaces.
  [[nodiscard]] std::string all(const Given& at);
  /// E0653 unless the text is one of these; then the first.
  [[nodiscard]] std::string word(const Given& at, const std::vector<std::string>& known);
  void error(const char* code, const base::Location& where, std::string message, std::string help);
  /// E0655, a warning: "not carried over: --x, because …".
  void leave(const Given& at, const std::string& because);
  /// The same of settings that move neither time nor memory: all of one reason become one note.
  void pass_over(const Given& at, const std::string& because);
  /// E0656, a warning: nobody knows the setting. The first so many are named, others counted.
  static constexpr std::size_t kMostUnknown = 20;
  void unknown(const Given& at);
  /// What another file's reading found, beside this one's.
  void take(const Reading& other);
  void assume(std::string what) { assumed.push_back(std::move(what)); }
  [[nodiscard]] std::string shown(const Given& at) const;  ///< "--num-layers", or "`training.steps`"
  [[nodiscard]] bool failed() const { return !errors.empty(); }
  /// The notes of pass_over, as sentences.
  [[nodiscard]] std::vector<std::string> passed_over() const;

  base::Diagnostics errors, warnings;
  std::vector<std::string> assumed;
  bool flags = false;  ///< settings are flags of a script

 private:
  [[nodiscard]] const GivenValue* value(const Given& at);
  std::string framework_;
  std::size_t unknown_ = 0, counted_ = 0;  ///< settings; and where the warning is that counts them
  std::vector<std::pair<std::string, std::vector<std::string>>> passed_;
};

/// What is written: a plan with all that it was made from.
struct Writing {
  const PlanFile& file;
  const Plan& plan;
  [[nodiscard]] const PlanSpec& s() const { return plan.spec(); }
  [[nodiscard]] const models::Model& m() const { return file.model; }
  [[nodiscard]] const Training& t() const { return file.job.training; }
  [[nodiscard]] models::Dropout dropout() const { return t().dropout.value_or(m().dropout); }
};

/// A row of a framework's table.
struct Setting {
  const char* group = "";  ///< of the written file
  const char* key = "";
  /// A value as JSON: true is a flag alone, null leaves the setting out. None: it is never written.
  nlohmann::json (*write)(const Writing& from) = nullptr;
  void (*read)(Reading& reading, const Given& given, Draft& into) = nullptr;
  const char* why = "";  ///< if it is not read: because …
  bool matters = false;  ///< if it is not read: it may move time or memory
};

/// What the job says of its software that these settings do not: keys with their values, where without the key the same
/// would be written, and with some other value, too.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> unwritten_words(std::span<const Setting> table,
                                                                               const PlanFile& file, const Plan& plan);

/// Reads each setting by its row; the last of a key wins. Unknown ones are warnings.
void read_settings(std::span<const Setting> table, const std::vector<Given>& given, Reading& reading, Draft& into);

/// The text of a number as these files write it.
[[nodiscard]] bool read_number(std::string_view text, double& out);

/// The product of positive numbers; nothing where it is more than `most`.
[[nodiscard]] std::optional<std::int64_t> product_up_to(std::int64_t most, std::initializer_list<std::int64_t> factors);

/// Whether optimizer states are partitioned at all, and whether gradients are.
[[nodiscard]] inline bool partitions(const PlanSpec& s) {
  return s.states.zero_stage >= 1 && s.mesh.replicas() > 1;
}
[[nodiscard]] inline bool partitions_gradients(const PlanSpec& s) {
  return s.states.zero_stage >= 2 && s.mesh.replicas() > 1;
}

/// One source of each file, in the form of base::Location's.
[[nodiscard]] std::span<const Setting> megatron_settings_table();
[[nodiscard]] std::span<const Setting> deepspeed_settings_table();
[[nodiscard]] std::span<const Setting> torchtitan_settings_table();
/// After the settings are read: what follows from several of them, and from defaults.
void finish_megatron(Reading& reading, Draft& draft, const base::Location& where);
void finish_deepspeed(Reading& reading, Draft& draft, const base::Location& where);
void finish_torchtitan(Reading& reading, Draft& draft, const base::Location& where);
/// Defaults of the framework, where a file is silent.
[[nodiscard]] Draft megatron_defaults();
[[nodiscard]] Draft deepspeed_defaults();
[[nodiscard]] Draft torchtitan_defaults();

/// Models that torchtitan v0.2.2 has, by name and flavor, and their names in Orrery's catalogue.
struct TorchtitanModel {
  const char *name, *flavor, *catalogue;
  std::int64_t layers, hidden, heads, kv_heads, ffn, experts, vocab;
};
[[nodiscard]] std::span<const TorchtitanModel> torchtitan_models();
/// The row of a model with these shapes; nothing: torchtitan has none.
[[nodiscard]] const TorchtitanModel* torchtitan_model(const models::Model& model);

}  // namespace orrery::plan
