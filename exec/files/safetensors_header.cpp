// Reads and checks a safetensors header.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include "base/json.h"
#include "exec/files/safetensors.h"

namespace orrery::exec {
namespace {

using base::JsonReader;

constexpr const char* kCode = "E0601";
constexpr std::size_t kMostTensors = 1'000'000;
constexpr std::size_t kMostDimensions = 8;
constexpr std::size_t kMostNameBytes = 512;

struct Bad {
  std::string what;
};

std::int64_t bytes_of(const std::string& dtype) {
  if (dtype == "BOOL" || dtype == "U8" || dtype == "I8" || dtype == "F8_E4M3" || dtype == "F8_E5M2") return 1;
  if (dtype == "I16" || dtype == "U16" || dtype == "F16" || dtype == "BF16") return 2;
  if (dtype == "I32" || dtype == "U32" || dtype == "F32") return 4;
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  return 0;
}

/// Refuses what JSON itself forbids, and duplicate keys.
[[noreturn]] void refuse(const JsonReader& in) {
  const base::Diagnostic& wrong = in.errors().front();
  if (wrong.code == "E0107") throw Bad{"in its header " + wrong.message};
  throw Bad{fmt::format("its header is not valid JSON: {} (line {}, column {})", wrong.message, wrong.where.line,
                        wrong.where.column)};
}

std::int64_t whole(JsonReader& in, const std::string& what) {
  const std::string_view word = in.kind() == '0' ? in.number_word() : std::string_view("x");
  if (in.failed()) refuse(in);
  if (word.front() == '-') throw Bad{what + " is negative"};
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (failure != std::errc{} || end != word.data() + word.size()) throw Bad{what + " is not a whole number"};
  return number;
}

void read_shape(JsonReader& in, TensorEntry& entry) {
  if (in.kind() != '[') throw Bad{fmt::format("tensor {} has no proper shape", base::quoted(entry.name))};
  for (in.open_array(); in.item();) {
    if (entry.shape.size() == kMostDimensions)
      throw Bad{fmt::format("tensor {} has no proper shape", base::quoted(entry.name))};
    entry.shape.push_back(whole(in, "an extent of " + base::quoted(entry.name)));
  }
}

void read_offsets(JsonReader& in, TensorEntry& entry) {
  const Bad improper{fmt::format("tensor {} has no proper data_offsets", base::quoted(entry.name))};
  std::array<std::int64_t, 2> offsets{};
  std::size_t count = 0;
  if (in.kind() == '[')
    for (in.open_array(); in.item(); ++count) {
      if (count == offsets.size()) throw improper;
      offsets[count] = whole(in, "an offset of " + base::quoted(entry.name));
    }
  if (in.failed()) refuse(in);
  if (count != offsets.size()) throw improper;
  entry.begin = offsets[0];
  entry.end = offsets[1];
}

TensorEntry read_entry(JsonReader& in, const std::string& name) {
  TensorEntry entry;
  entry.name = name;
  entry.dtype.clear();
  if (name.empty() || name.size() > kMostNameBytes) throw Bad{"a tensor's name is empty or longer than 512 bytes"};
  const std::string tensor = "tensor " + base::quoted(name);
  int seen = 0;
  if (in.kind() != '{') throw Bad{tensor + " needs exactly dtype, shape and data_offsets"};
  in.open_object();
  for (std::string key; in.key(key); ++seen) {
    if (key == "dtype" && in.kind() == '"')
      entry.dtype = in.text();
    else if (key == "dtype")
      throw Bad{tensor + " has an unknown dtype"};
    else if (key == "shape")
      read_shape(in, entry);
    else if (key == "data_offsets")
      read_offsets(in, entry);
    else
      throw Bad{tensor + " needs exactly dtype, shape and data_offsets"};
  }
  if (in.failed()) refuse(in);
  if (seen != 3) throw Bad{tensor + " needs exactly dtype, shape and data_offsets"};  // keys are unique
  std::int64_t bytes = bytes_of(entry.dtype);
  if (bytes == 0) throw Bad{tensor + " has an unknown dtype"};
  for (const std::int64_t extent : entry.shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes))
      throw Bad{fmt::format("the shape of {} overflows", base::quoted(name))};
  if (entry.end < entry.begin || entry.end - entry.begin != bytes)
    throw Bad{fmt::format("{} spans {} to {}, but its shape needs {} bytes", tensor, entry.begin, entry.end, bytes)};
  return entry;
}

void read_metadata(JsonReader& in, std::map<std::string, std::string>& metadata) {
  if (in.kind() != '{') throw Bad{"__metadata__ is not an object"};
  in.open_object();
  for (std::string key; in.key(key);) {
    if (in.kind() != '"') throw Bad{"__metadata__ holds something other than strings"};
    metadata[key] = in.text();
  }
}

SafetensorsHeader read_header(std::string_view text, std::int64_t data_bytes, const std::string& file) {
  if (text.empty() || text.front() != '{') throw Bad{"its header does not begin with {"};
  JsonReader in(text, file);
  SafetensorsHeader header;
  in.open_object();
  for (std::string name; in.key(name);) {
    if (header.tensors.size() == kMostTensors) throw Bad{"it names more than 1,000,000 tensors"};
    if (name == "__metadata__")
      read_metadata(in, header.metadata);
    else
      header.tensors.push_back(read_entry(in, name));
  }
  in.finish();
  if (in.failed()) refuse(in);
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::int64_t at = 0;
  for (const TensorEntry& tensor : header.tensors) {
    if (tensor.begin != at)
      throw Bad{fmt::format("tensor {} begins at byte {}, expected {} (no holes, no overlaps)",
                            base::quoted(tensor.name), tensor.begin, at)};
    at = tensor.end;
  }
  if (at != data_bytes) throw Bad{fmt::format("its tensors end at byte {}, its data at {}", at, data_bytes)};
  return header;
}

}  // namespace

std::int64_t TensorEntry::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

const TensorEntry* SafetensorsHeader::find(std::string_view name) const {
  for (const TensorEntry& tensor : tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

base::Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, std::int64_t data_bytes,
                                                         const std::string& file) {
  try {
    return read_header(text, data_bytes, file);
  } catch (const Bad& bad) {
    return base::fail({base::Diagnostic{base::Severity::error,
                                        kCode,
                                        {file, 0, 0, 1},
                                        fmt::format("{}: {}", file, bad.what),
                                        "write it again with a safetensors library",
                                        {}}});
  }
}

}  // namespace orrery::exec
