// Vocabulary files: vocab.json with merges.txt, a tokenizer.json, or a vocab.txt of word pieces.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_tree.h"
#include "exec/data/tokenizer.h"
#include "exec/failure.h"
#include "exec/files/files.h"

namespace orrery::exec {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;

// The largest published vocabularies have 262,144 words, 600,000 merges and 35 MB of tokenizer.json.
constexpr std::size_t kMostBytes = 64U << 20;
constexpr std::size_t kMostValues = 3'000'000;
constexpr std::int64_t kMostIds = 1 << 21;
constexpr std::size_t kMostLines = 1 << 21;  // of merges.txt and vocab.txt
constexpr std::size_t kLongestExpression = 1 << 16;
constexpr const char* kUnreadable = "E0615";
constexpr const char* kMalformed = "E0616";
constexpr const char* kOtherKind = "E0617";  // a tokenizer.json that is not byte-level BPE, or that normalises its text

/// What is wrong with the current file.
struct Bad {
  const char* code;
  std::string message;
  int line = 0;
};

/// GPT-2's encoder.py writes bytes as printable characters: bytes that are printable stand for themselves, the others
/// become U+0100 and on, in order. By code point; -1 if it stands for none.
std::array<int, 512> byte_of_character() {
  std::array<int, 512> out{};
  out.fill(-1);
  std::size_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    out[printable ? static_cast<std::size_t>(byte) : next++] = byte;
  }
  return out;
}

/// The bytes that a vocabulary's word stands for; a word with other characters (a special token) stands for itself.
std::string bytes_of(const std::string& word) {
  static const std::array<int, 512> kBytes = byte_of_character();
  std::string out;
  for (std::size_t i = 0; i < word.size();) {
    const auto first = static_cast<unsigned char>(word[i]);
    std::size_t point = first;
    std::size_t length = 1;
    if (first >= 0xc2 && first < 0xe0 && i + 1 < word.size()) {
      point = (first & 0x1fU) << 6 | (static_cast<unsigned char>(word[i + 1]) & 0x3fU);
      length = 2;
    }
    if ((first >= 0x80 && length == 1) || point >= kBytes.size() || kBytes[point] < 0) return word;
    out += static_cast<char>(kBytes[point]);
    i += length;
  }
  return out;
}

json parse(const std::string& text, const char* what) {
  auto parsed = base::parse_json(text, {}, kMostValues);
  if (!parsed) {
    const base::Diagnostic& wrong = parsed.error().front();
    throw Bad{kMalformed, fmt::format("not {} in JSON: {}", what, wrong.message), wrong.where.line};
  }
  if (!parsed->is_object()) throw Bad{kMalformed, fmt::format("not {} in JSON", what)};
  return std::move(*parsed);
}

/// The lines of a text, without line ends.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (lines.size() == kMostLines) throw Bad{kMalformed, fmt::format("more than {} lines", kMostLines)};
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
    if (!lines.back().empty() && lines.back().back() == '\r') lines.back().pop_back();
  }
  return lines;
}

}  // namespace

class TokenizerReader {
 public:
  explicit TokenizerReader(Pretokeniser pretokeniser) : made_(std::move(pretokeniser)) {}

  void vocabulary(const json& words) {
    if (!words.is_object() || words.empty())
      throw Bad{kMalformed, "not a vocabulary: an object of words and their ids"};
    for (const auto& [word, id] : words.items()) token(word, id, bytes_of(word));
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = made_.ids_.find(std::string(1, static_cast<char>(byte)));
      if (found == made_.ids_.end())
        throw Bad{kMalformed, fmt::format("the vocabulary has no token for byte 0x{:02x}: it is not byte-level", byte)};
      made_.of_byte_[static_cast<std::size_t>(byte)] = found->second;
    }
  }

  void token(const std::string& word, const json& id, std::string bytes) {
    const auto number = base::whole_number(id, 0, kMostIds - 1);
    if (!number) throw Bad{kMalformed, fmt::format("the id of {} is {}", base::quoted(word), base::quoted(id.dump()))};
    const auto at = static_cast<std::size_t>(*number);
    if (made_.pieces_.size() <= at) made_.pieces_.resize(at + 1);
    if (!made_.pieces_[at].empty() && made_.pieces_[at] != bytes)
      throw Bad{kMalformed, fmt::format("two words have the id {}", at)};
    made_.ids_[bytes] = static_cast<std::int32_t>(at);
    made_.pieces_[at] = std::move(bytes);
  }

  void merge(const std::string& left, const std::string& right, int line) {
    const auto id_of = [&](const std::string& bytes) {
      const auto found = made_.ids_.find(bytes);
      if (found == made_.ids_.end())
        throw Bad{kMalformed,
                  fmt::format("merge of {} and {}: the vocabulary has no {}", base::quoted(left), base::quoted(right),
                              base::quoted(bytes)),
                  line};
      return found->second;
    };
    const std::string a = bytes_of(left), b = bytes_of(right);
    const auto key =
        static_cast<std::uint64_t>(static_cast<std::uint32_t>(id_of(a))) << 32 | static_cast<std::uint32_t>(id_of(b));
    made_.merges_.try_emplace(key, Tokenizer::Merge{static_cast<std::int32_t>(made_.merges_.size()), id_of(a + b)});
  }

  /// merges.txt: one pair per line, the first merged first; a line "#version" at the top is not a pair.
  void merges_text(const std::string& text) {
    int line = 0;
    for (const std::string& pair : lines_of(text)) {
      ++line;
      if (pair.empty() || (line == 1 && pair.rfind("#version", 0) == 0)) continue;
      const std::size_t space = pair.find(' ');
      if (space == std::string::npos || space == 0 || pair.find(' ', space + 1) != std::string::npos ||
          space + 1 == pair.size())
        throw Bad{kMalformed, fmt::format("{} is not a pair of words", base::quoted(pair)), line};
      merge(pair.substr(0, space), pair.substr(space + 1), line);
    }
  }

  Tokenizer finish() {
    for (const char* word : {"<|endoftext|>", "<|end_of_text|>"})
      if (const auto found = made_.ids_.find(word); found != made_.ids_.end() && !made_.end_of_text_) {
        made_.end_of_text_ = found->second;
        made_.end_of_text_word_ = word;
      }
    return std::move(made_);
  }

  /// vocab.txt: one word per line; its number is the id.
  static Tokenizer word_pieces(const std::string& text, bool lower) { return word_pieces(lines_of(text), lower); }
  static Tokenizer word_pieces(std::vector<std::string> words, bool lower) {
    TokenizerReader reader(Pretokeniser::gpt2());
    Tokenizer& made = reader.made_;
    for (std::size_t i = 0; i < words.size(); ++i) made.ids_.try_emplace(words[i], static_cast<std::int32_t>(i));
    const auto unknown = made.ids_.find("[UNK]");
    if (unknown == made.ids_.end())
      throw Bad{kMalformed, "the vocabulary has no [UNK], so it is not one of word pieces"};
    made.word_pieces_ = std::make_shared<const WordPiece>(words, unknown->second, lower);
    // For decoding: pieces that continue a word lose their mark, the others follow a space.
    for (std::string& word : words) made.pieces_.push_back(word.rfind("##", 0) == 0 ? word.substr(2) : " " + word);
    // Stands between documents, as in RoBERTa's full sentences (Liu et al. 2019, section 4.2). No text encodes to it.
    if (const auto separator = made.ids_.find("[SEP]"); separator != made.ids_.end())
      made.end_of_text_ = separator->second;
    return std::move(made);
  }

  /// The same from a tokenizer.json, whose normaliser must be BERT's.
  static Tokenizer word_pieces(const json& file, const json& model) {
    const json normaliser = file.value("normalizer", json());
    if (!normaliser.is_object() || normaliser.value("type", "") != "BertNormalizer")
      throw Bad{kOtherKind, "word pieces need text prepared by BertNormalizer"};
    const bool lower = normaliser.value("lowercase", true);
    const auto strips = normaliser.find("strip_accents");
    if (strips != normaliser.end() && strips->is_boolean() && strips->get<bool>() != lower)
      throw Bad{kOtherKind, "lower case and accents must be treated alike"};
    const json vocabulary = model.value("vocab", json::object());
    std::vector<std::string> words(vocabulary.size());
    for (const auto& [word, id] : vocabulary.items()) {
      const auto number = base::whole_number(id, 0, static_cast<std::int64_t>(words.size()) - 1);
      if (!number)
        throw Bad{kMalformed, fmt::format("the id of {} is {}", base::quoted(word), base::quoted(id.dump()))};
      words[static_cast<std::size_t>(*number)] = word;
    }
    return word_pieces(std::move(words), lower);
  }

  /// The parts of a tokenizer.json that decide ids; anything that would change the text is refused by name.
  static Tokenizer whole(const json& file) {
    const auto kind = [](const json& at) { return at.is_object() ? at.value("type", std::string()) : std::string(); };
    const json model = file.value("model", json());
    if (kind(model) == "WordPiece") return word_pieces(file, model);
    if (const std::string type = kind(model); type != "BPE")
      throw Bad{kOtherKind, fmt::format("the model of the tokenizer is {}, but only BPE and WordPiece are supported",
                                        base::quoted(type))};
    if (file.contains("normalizer") && !file["normalizer"].is_null())
      throw Bad{kOtherKind, fmt::format("the tokenizer normalises text ({})", base::quoted(kind(file["normalizer"])))};
    if (model.value("byte_fallback", false)) throw Bad{kOtherKind, "the tokenizer is not byte-level (byte_fallback)"};
    TokenizerReader reader(splitter(file.value("pre_tokenizer", json())));
    reader.made_.whole_pieces_ = model.value("ignore_merges", false);
    reader.vocabulary(model.value("vocab", json()));
    for (const json& pair : model.value("merges", json::array())) {
      if (pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string())
        reader.merge(pair[0].get<std::string>(), pair[1].get<std::string>(), 0);
      else if (pair.is_string())
        reader.merge_words(pair.get<std::string>());
      else
        throw Bad{kMalformed, fmt::format("{} is not a pair of words", base::quoted(pair.dump()))};
    }
    for (const json& added : file.value("added_tokens", json::array())) {
      if (!added.is_object() || !added.contains("id") || !added.contains("content") || !added["content"].is_string())
        throw Bad{kMalformed, "an added token without id and content"};
      const auto word = added["content"].get<std::string>();
      reader.token(word, added["id"], word);
    }
    return reader.finish();
  }

 private:
  void merge_words(const std::string& pair) {
    const std::size_t space = pair.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == pair.size())
      throw Bad{kMalformed, fmt::format("{} is not a pair of words", base::quoted(pair))};
    merge(pair.substr(0, space), pair.substr(space + 1), 0);
  }

  /// ByteLevel alone splits like GPT-2; a Split by an expression before it replaces that (Llama 3).
  static Pretokeniser splitter(const json& at) {
    json parts = json::array();
    if (at.is_object() && at.value("type", "") == "Sequence")
      parts = at.value("pretokenizers", json::array());
    else
      parts.push_back(at);
    std::string expression;
    bool bytes = false;
    for (const json& part : parts) {
      const std::string type = part.is_object() ? part.value("type", std::string()) : std::string();
      if (type == "ByteLevel") {
        if (part.value("add_prefix_space", true))
          throw Bad{kOtherKind, "the tokenizer puts a space before the text (add_prefix_space)"};
        if (part.value("use_regex", true) && !expression.empty())
          throw Bad{kOtherKind, "the tokenizer splits text twice"};
        if (!part.value("use_regex", true) && expression.empty())
          throw Bad{kOtherKind, "the tokenizer does not split text"};
        bytes = true;
      } else if (type == "Split" && expression.empty() && !bytes && part.value("behavior", "") == "Isolated" &&
                 !part.value("invert", false) && part.contains("pattern") && part["pattern"].contains("Regex")) {
        expression = part["pattern"]["Regex"].get<std::string>();
      } else {
        throw Bad{kOtherKind, fmt::format("pre-tokeniser {} is not supported", base::quoted(type))};
      }
    }
    if (!bytes) throw Bad{kOtherKind, "the tokenizer is not byte-level"};
    if (expression.empty()) return Pretokeniser::gpt2();
    if (expression.size() > kLongestExpression)
      throw Bad{kMalformed, "the expression that splits text is longer than 64 KiB"};
    auto made = Pretokeniser::of(expression);
    if (!made) throw Bad{kMalformed, made.error().front().message};
    return std::move(*made);
  }

  Tokenizer made_;
};

base::Result<Tokenizer> Tokenizer::open(const fs::path& path) {
  fs::path at = path;  // the current file
  const auto read = [&](const fs::path& file) {
    at = file;
    return read_file(file, kMostBytes);
  };
  const auto first_of = [](const fs::path& folder,
                           std::initializer_list<const char*> names) -> std::optional<fs::path> {
    std::error_code error;
    for (const char* name : names)
      if (fs::exists(folder / name, error)) return folder / name;
    return std::nullopt;
  };
  constexpr const char* kHelp =
      "give a tokenizer.json, a vocab.json or encoder.json with merges.txt or vocab.bpe beside it, BERT's vocab.txt, "
      "or "
      "their folder";
  const auto fault = [&](const char* code, const std::string& message, int line) {
    return base::fail({base::Diagnostic{base::Severity::error, code, {at.string(), line, 0, 1}, message, kHelp, {}}});
  };
  try {
    std::error_code error;
    fs::path words = path;
    if (fs::is_directory(path, error)) {
      const auto found = first_of(path, {"tokenizer.json", "vocab.json", "encoder.json", "vocab.txt"});
      if (!found) return fault(kUnreadable, fmt::format("{} contains no vocabulary", path.string()), 0);
      words = *found;
    }
    if (words.extension() == ".txt") {
      const fs::path config = words.parent_path() / "tokenizer_config.json";
      const bool lower =
          !fs::exists(config, error) || parse(read(config), "a configuration").value("do_lower_case", true);
      return TokenizerReader::word_pieces(read(words), lower);
    }
    const json parsed = parse(read(words), "a vocabulary");
    if (parsed.contains("model") && parsed["model"].is_object()) return TokenizerReader::whole(parsed);
    TokenizerReader reader(Pretokeniser::gpt2());
    reader.vocabulary(parsed);
    const auto merges = first_of(words.parent_path(), {"merges.txt", "vocab.bpe"});
    if (!merges) return fault(kUnreadable, fmt::format("no merges.txt or vocab.bpe beside {}", words.string()), 0);
    reader.merges_text(read(*merges));
    return reader.finish();
  } catch (const Bad& bad) {
    return fault(bad.code, fmt::format("{}: {}", at.string(), bad.message), bad.line);
  } catch (const json::exception&) {
    return fault(kMalformed, fmt::format("{}: a value of the wrong type", at.string()), 0);
  } catch (const Failure& failure) {
    return fault(kUnreadable, failure.what(), 0);
  }
}

}  // namespace orrery::exec
