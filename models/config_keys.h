#pragma once
/// A family's config.json, described once for both ways: each call reads a key into its place in the Model, or writes
/// it from there. Of several names the first is written and the first that is there is read; `a.b` is b of the map a.
#include <initializer_list>
#include <string>

#include "models/model.h"

namespace orrery::models {

class ConfigKeys {
 public:
  using Names = std::initializer_list<const char*>;
  /// What a word of the file stands for.
  struct Word {
    const char* word;
    Activation activation;
    Gelu gelu = Gelu::tanh;
  };

  virtual ~ConfigKeys() = default;
  [[nodiscard]] virtual bool reads() const = 0;
  /// From `least` to `most`; an error where there is none and no fallback.
  virtual void count(Names names, std::int64_t& value, std::int64_t least, std::int64_t most) = 0;
  virtual void count(Names names, std::int64_t& value, std::int64_t least, std::int64_t most,
                     std::int64_t fallback) = 0;
  virtual void real(Names names, double& value, double least, double most, double fallback) = 0;
  /// The same where null is 0 and says that there is none, and silence the fallback.
  virtual void real_or_none(const char* name, double& value, double most, double fallback) = 0;
  virtual void flag(Names names, bool& value, bool fallback) = 0;
  virtual void text(Names names, std::string& value, const char* fallback) = 0;
  /// One of `words`, the first of which is meant by silence. E0111 for another, of what `title` names.
  virtual void activation(Names names, Model& model, std::initializer_list<Word> words, const char* title) = 0;
  /// E0111 unless the switch has the one value that a Model can express, which silence means. It is written.
  virtual void only(const char* key, bool wanted, const char* why) = 0;
  /// E0111 unless the list is empty, which silence means. It is written.
  virtual void no_list(const char* key, const char* why) = 0;
  /// transformers 4.53's list of a layer's attention, where there is one: sets window and window_period.
  virtual void layer_types(Model& model) = 0;
  /// Reading: E0111 at a key, or beside all numbers a remark.
  virtual void refuse(const char* key, const std::string& message, const std::string& help) = 0;
  virtual void remark(const std::string& text) = 0;
  [[nodiscard]] virtual bool given(const char* key) const = 0;  ///< reading: and not null
};

}  // namespace orrery::models
