#pragma once
/// Strict YAML reading. A Document is parsed once, with duplicate keys, depth, size and alias expansion checked before
/// anything is built (yaml-cpp accepts all of them silently). A Cursor walks it, converts scalars with their units,
/// collects every error instead of stopping at the first, and remembers which keys were read, so that finish() can
/// name the unknown ones with a suggestion. JSON is a subset: config.json goes the same way. No file is opened here.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace orrery::base {

/// Collects findings about one text; all cursors of that text share it. Keeps at most 20 errors and says so.
class Findings {
 public:
  Findings(std::string file, std::string_view text);
  void error(std::string code, Location where, std::string message, std::string help = {});
  void warning(std::string code, Location where, std::string message, std::string help = {});
  [[nodiscard]] bool failed() const;
  [[nodiscard]] const Diagnostics& all() const { return all_; }
  [[nodiscard]] const std::string& file() const { return file_; }
  /// By line and column; findings about the file as a whole come last.
  void sort();
  /// `line` from 1, `byte` from 0 within it, as a Location whose column counts characters.
  [[nodiscard]] Location location(int line, int byte, int length) const;
  /// Length in characters of the quoted text that begins at `where`, quotes included; at most to the end of the line.
  [[nodiscard]] int quoted_length(const Location& where) const;
  /// Appends a line that is not in the file, such as one from `--set`, and returns its number. Findings there name
  /// `--set`, and count lines from the first one added.
  int add_line(std::string_view line);

 private:
  void add(Severity severity, std::string code, Location where, std::string message, std::string help);
  std::string file_;
  std::vector<std::string> lines_;  ///< cut to what a message shows
  std::vector<bool> cut_;
  Diagnostics all_;
  std::size_t errors_ = 0;
  std::size_t warnings_ = 0;
  std::size_t own_ = 0;  ///< lines of the text itself
};

/// A place in a document. Copyable and cheap. A cursor may stand on nothing (a missing optional key): then
/// `exists()` is false and every reader returns its fallback. A key with an empty value or `null` counts as not given.
class Cursor {
 public:
  struct Node;  // private to yaml*.cpp

  [[nodiscard]] bool exists() const;
  [[nodiscard]] bool is_map() const;
  [[nodiscard]] bool is_sequence() const;
  [[nodiscard]] bool is_scalar() const;
  [[nodiscard]] Location where() const;
  [[nodiscard]] Location where_key() const;       ///< of its key; of the value itself if it stands in no map
  [[nodiscard]] const std::string& path() const;  ///< "cluster.nodes[2].device", for messages

  /// A key of a map. `required` reports E0102 when missing. Marks the key as read.
  [[nodiscard]] Cursor at(const std::string& key) const;        ///< required
  [[nodiscard]] Cursor optional(const std::string& key) const;  ///< may be missing
  [[nodiscard]] bool has(const std::string& key) const;         ///< does not mark
  [[nodiscard]] std::vector<std::string> keys() const;          ///< in file order; does not mark
  [[nodiscard]] std::vector<Cursor> items() const;              ///< elements of a sequence (E0104 when it is none)
  /// The elements of a sequence; a scalar counts as a list of one.
  [[nodiscard]] std::vector<Cursor> one_or_many() const;

  // Scalars. Each reports E0105 (wrong type, out of range, missing unit …) and returns `fallback` on failure.
  [[nodiscard]] std::string text(std::string fallback = {}) const;
  /// A scalar as written, even if empty; empty when there is none. Reports nothing.
  [[nodiscard]] std::string scalar_text() const;
  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high, std::int64_t fallback = 0) const;
  [[nodiscard]] double number(double low, double high, double fallback = 0) const;  ///< finite, no unit
  [[nodiscard]] bool boolean(bool fallback = false) const;
  /// A number with its unit in the text; a bare number is an error with a hint. Range is in SI units.
  [[nodiscard]] double quantity(UnitKind kind, double low, double high, double fallback = 0) const;
  /// One of `choices`; returns its index, or `fallback` after E0106 with a suggestion.
  [[nodiscard]] int choice(const std::vector<std::string>& choices, int fallback = 0) const;

  /// The keys of a map for which no reader has asked, in file order.
  [[nodiscard]] std::vector<std::string> unread() const;
  /// Reports E0103 for each key that has not been read, in this map and in every visited map below it.
  void finish() const;
  /// Reports E0103 at a key of this map, if there, and ignores its value. The key does not count as a known one.
  void refuse(const std::string& key, const std::string& help) const;
  /// Marks this whole subtree as read (for parts that another room reads).
  void ignore() const;
  /// The subtree as YAML text with the original values (for a part that is kept and read later).
  [[nodiscard]] std::string dump() const;

  void error(std::string code, std::string message, std::string help = {}) const;
  void warning(std::string code, std::string message, std::string help = {}) const;
  [[nodiscard]] Findings& findings() const;

 private:
  friend class Document;
  [[nodiscard]] std::string misspelt(const std::string& key) const;
  [[nodiscard]] const std::string* scalar(const std::string& expected) const;
  std::shared_ptr<Node> node_;
};

/// Replaces the value that a text has at `key` ("plan.tensor"), or adds it where there is none.
struct Override {
  std::string key, value;  ///< the value as YAML, on one line
};

/// A parsed text together with what was found wrong in it so far.
class Document {
 public:
  /// Never fails: syntax errors (E0101) go to findings(), and root() then stands on nothing. A repeated key (E0107)
  /// keeps its first value.
  /// Limits (E0108): 4 MiB of text, depth 64; 200,000 values and 16 MiB of text after alias expansion.
  [[nodiscard]] static Document parse(std::string_view text, std::string file);
  /// With values from the command line; later ones win. Findings in them name the file "--set".
  [[nodiscard]] static Document parse(std::string_view text, std::string file, const std::vector<Override>& overrides);
  [[nodiscard]] Cursor root() const { return root_; }
  [[nodiscard]] Findings& findings() const { return *findings_; }
  /// A document that records which keys readers ask for, even where it has no value. Readers collect errors and go on,
  /// so an empty map reveals most of the keys that they know.
  [[nodiscard]] static Document recording(std::string_view text, std::string file);
  /// What readers have asked for so far, as JSON Schema (draft 7). Call it before close().
  [[nodiscard]] std::string schema() const;
  /// The paths of the maps in which readers have asked for `key`, by depth; of a recording document.
  [[nodiscard]] std::vector<std::string> maps_with(std::string_view key) const;
  /// Calls finish() on the root, then returns all findings if any of them is an error.
  [[nodiscard]] Diagnostics close() const;

 private:
  void put(const Override& one);
  std::shared_ptr<Findings> findings_;
  Cursor root_;
};

/// Reads a text with `read(root)`; returns its value, or every error in the text. Warnings go to `warnings` if given.
template <class T>
[[nodiscard]] Result<T> read_document(std::string_view text, std::string file,
                                      const std::function<T(const Cursor&)>& read, Diagnostics* warnings = nullptr) {
  Document document = Document::parse(text, std::move(file));
  if (!document.root().exists()) return fail(document.findings().all());  // a repeated key does not end the reading
  T value = read(document.root());
  Diagnostics found = document.close();
  if (document.findings().failed()) return fail(std::move(found));
  if (warnings) warnings->insert(warnings->end(), found.begin(), found.end());
  return value;
}

/// Text as a YAML scalar in double quotes; yaml_text omits the quotes where they are not needed.
[[nodiscard]] std::string yaml_quoted(const std::string& text);
[[nodiscard]] std::string yaml_text(const std::string& text);
/// A row in flow style on lines of at most 120 columns, where it has places to break: behind commas, and at single
/// spaces of a text in double quotes, which YAML reads as one space. Lines behind the first begin with `indent` spaces,
/// which are more than the row's own.
[[nodiscard]] std::string yaml_row(std::string_view row, std::size_t indent);

}  // namespace orrery::base
