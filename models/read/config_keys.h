#pragma once
/// A family's config.json, described once for both directions: each call reads a key into its place in the Model, or
/// writes it from there. Where a key has several names, the first is written, and the first one present is read.
/// `a.b.c` is key c of the map b in the map a.
#include <initializer_list>
#include <string>
#include <vector>

#include "models/model.h"

namespace orrery::models {

/// Which layers have the model's window, those of `sliding`, in the one form that says it: every n-th sees all, counted
/// from the first layer or to the n-th; or a list of those that see all. Without a window in any layer, or of any
/// length, there is none.
void place_windows(const std::vector<bool>& sliding, Model& model);
/// Layers with a window differ from the others in more than the mask, so that no window is too long to count.
[[nodiscard]] inline bool window_is_more(const Model& m) {
  return m.window_kv_heads > 0 || m.window_heads > 0 || m.window_head_dim > 0 || m.keys_as_values ||
         m.window_theta > 0 || m.window_rotary_share > 0 || m.sinks_in_windows;
}

class ConfigKeys {
 public:
  using Names = std::initializer_list<const char*>;
  /// A word in the file, and what it stands for.
  struct Word {
    const char* word;
    Activation activation;
    Gelu gelu = Gelu::tanh;
  };

  virtual ~ConfigKeys() = default;
  [[nodiscard]] virtual bool reads() const = 0;
  /// From `least` to `most`. A missing key without a fallback is an error.
  virtual void count(Names names, std::int64_t& value, std::int64_t least, std::int64_t most) = 0;
  virtual void count(Names names, std::int64_t& value, std::int64_t least, std::int64_t most,
                     std::int64_t fallback) = 0;
  virtual void real(Names names, double& value, double least, double most, double fallback) = 0;
  /// The same, but null means 0 (there is none), and a missing key means the fallback.
  virtual void real_or_none(const char* name, double& value, double most, double fallback) = 0;
  /// A list of as many numbers as `values` has; a missing one leaves them. E0111 for another number of them.
  virtual void reals(const char* key, std::vector<double>& values, double most) = 0;
  virtual void flag(Names names, bool& value, bool fallback) = 0;
  virtual void text(Names names, std::string& value, const char* fallback) = 0;
  /// One of `words`; a missing key means the first. E0111 for any other word; `title`: the family, for the message.
  virtual void activation(Names names, Model& model, std::initializer_list<Word> words, const char* title) = 0;
  /// For a switch with only one value that a Model can express; a missing key means that value. E0111 for the other
  /// one. Writing writes it.
  virtual void only(const char* key, bool wanted, const char* why) = 0;
  /// What a family's files say and its class has one value of: text, a number, true or false, or a list of the same.
  /// E0111 for another one. Reading only, as the next.
  virtual void fixed(const char* key, const char* value, const char* why) = 0;
  /// Keys that files of this family have and that change nothing: its class asks for none of them, other keys say the
  /// same, or what they are for is switched off. Of other keys for which nothing asks, reading warns (E0113).
  virtual void unused(Names names) = 0;
  /// Which layers have experts: as model.experts says already, but of those that `key` lists none (`only` false), or
  /// only those (`only` true), if the list is there and not empty. E0111 if no first_dense and period say the same.
  virtual void expert_layers(const char* key, bool only, Model& model) = 0;
  /// E0111 at `key` unless experts are in the layers of `with`; sets first_dense and period.
  virtual void expert_layers(const char* key, const std::vector<bool>& with, Model& model) = 0;
  /// The same, where a list says of each layer whether it has experts: "sparse", true or 1.
  virtual void sparse_layers(const char* key, Model& model) = 0;
  /// transformers 4.53's list of each layer's attention, if present: sets the window and which layers have it. E0111
  /// for any other word than full_attention and sliding_attention. `more`: entries that it may have behind the layers.
  virtual void layer_types(Model& model, std::int64_t more = 0) = 0;
  /// The same of a list of 0 and 1, where 1 is a window.
  virtual void window_flags(const char* key, Model& model) = 0;
  /// GPT-Neo's list of runs, each with its layers' attention (global, local) and how often they repeat; or, under
  /// `flat`, of every layer's. Sets window and its period as layer_types.
  virtual void attention_types(const char* runs, const char* flat, Model& model) = 0;
  /// The layers without rotation: every n-th, unless a list says each layer's. E0111 if the list has no period.
  virtual void unrotated_layers(const char* list, const char* period, Model& model, std::int64_t fallback) = 0;
  /// Each block's parts: under `letters` a string of Nemotron-H's, or under `words` a list of mixers and MLPs, each
  /// mixer with `feed` after it; null: a file has no such key. E0111 unless there are as many as layers, which
  /// they set if it is 0.
  virtual void pattern(const char* letters, const char* words, Feed feed, Model& model) = 0;
  /// A list with one of `known` for each layer: reading replaces `which` by the file's, or by none if it has no such
  /// list; E0111 for another word.
  virtual void layer_words(const char* key, Names known, std::vector<std::size_t>& which) = 0;
  /// A list of layers by number, or a text with commas between them; reading replaces `layers` by the file's, and says
  /// whether it has one.
  virtual bool layer_numbers(const char* key, std::vector<std::int64_t>& layers, const Model& model) = 0;
  /// Reading: makes these blocks the model's pattern. E0111 at `key` unless there are as many as layers, which they set
  /// if it is 0.
  virtual void blocks(const char* key, std::vector<BlockParts> blocks, Model& model) = 0;
  /// `rope_scaling`, or its keys within `rope_parameters` as transformers 5 has them, there perhaps of one kind of
  /// layer alone. Kinds that a Model cannot express are left out, with a remark. Writing writes it as the map `at`.
  virtual void rope_scaling_at(const std::string& at, Model& model) = 0;
  void rope_scaling(Model& model) { rope_scaling_at("rope_scaling", model); }
  /// Whether the model is of this class of its family; if not, of the one that the table of families names.
  virtual void of_class(const char* architecture, bool& is) = 0;
  /// E0111 unless a list of two bounds, if present, is from 0 or less to infinity.
  virtual void unlimited(const char* key, const char* why) = 0;
  /// A number for each layer: a list's, without what it has behind the layers for `more` modules, or one number for
  /// all; empty: there is no such key.
  [[nodiscard]] virtual std::vector<double> each_layers(const char* key, const Model& model, std::int64_t more,
                                                        double low = 0, double high = 1e12) = 0;
  /// Of a list, if present, which entries are `yes`; E0111 if one is neither that nor `no`.
  [[nodiscard]] virtual std::vector<bool> which_are(const char* key, const char* yes, const char* no) = 0;
  /// The class has no longest sequence, and its files say none. Reading takes `usual` tokens, with a remark on `whose`
  /// they are.
  virtual void any_length(Model& model, std::int64_t usual, const std::string& whose) = 0;
  /// Reading only. refuse: E0111 at the key; remark: a note among the model's sources; differs: such a note on what
  /// the original computes and a Model does not (models/read/original.h).
  virtual void refuse(const char* key, const std::string& message, const std::string& help) = 0;
  virtual void remark(const std::string& text) = 0;
  void differs(const std::string& text);
  [[nodiscard]] virtual bool given(const char* key) const = 0;    ///< reading: present, and not null
  [[nodiscard]] virtual bool written(const char* key) const = 0;  ///< reading: present, be it null
};

}  // namespace orrery::models
