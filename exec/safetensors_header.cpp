// The checked reading of a safetensors header.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "exec/safetensors.h"

namespace orrery::exec {
namespace {

using nlohmann::json;

constexpr const char* kCode = "E0601";
constexpr std::size_t kMostTensors = 1'000'000;
constexpr std::size_t kMostDimensions = 8;
constexpr std::size_t kMostNameBytes = 512;
constexpr int kMostDepth = 3;  // object, tensor, list

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

/// Parses, and refuses what nlohmann accepts silently: duplicate keys and deep nesting.
json parse_strictly(std::string_view text) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kMostDepth) throw Bad{"nested too deep"};
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      throw Bad{fmt::format("tensor or key \"{}\" appears twice", value.get<std::string>())};
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception&) {
    throw Bad{"its header is not valid JSON"};
  }
}

std::int64_t whole(const json& value, const std::string& what) {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() &&
       value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())))
    throw Bad{what + " is not a whole number"};
  const auto number = value.get<std::int64_t>();
  if (number < 0) throw Bad{what + " is negative"};
  return number;
}

TensorEntry read_entry(const std::string& name, const json& value) {
  TensorEntry entry;
  entry.name = name;
  if (name.empty() || name.size() > kMostNameBytes) throw Bad{"a tensor's name is empty or longer than 512 bytes"};
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets"))
    throw Bad{fmt::format("tensor \"{}\" needs exactly dtype, shape and data_offsets", name)};
  const json& dtype = value["dtype"];
  if (!dtype.is_string() || bytes_of(dtype.get<std::string>()) == 0)
    throw Bad{fmt::format("tensor \"{}\" has an unknown dtype", name)};
  entry.dtype = dtype.get<std::string>();
  const json& shape = value["shape"];
  if (!shape.is_array() || shape.size() > kMostDimensions)
    throw Bad{fmt::format("tensor \"{}\" has no proper shape", name)};
  std::int64_t bytes = bytes_of(entry.dtype);
  for (const json& extent : shape) {
    entry.shape.push_back(whole(extent, fmt::format("an extent of \"{}\"", name)));
    if (__builtin_mul_overflow(bytes, entry.shape.back(), &bytes))
      throw Bad{fmt::format("the shape of \"{}\" overflows", name)};
  }
  const json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2)
    throw Bad{fmt::format("tensor \"{}\" has no proper data_offsets", name)};
  entry.begin = whole(offsets[0], fmt::format("an offset of \"{}\"", name));
  entry.end = whole(offsets[1], fmt::format("an offset of \"{}\"", name));
  if (entry.end < entry.begin || entry.end - entry.begin != bytes)
    throw Bad{
        fmt::format("tensor \"{}\" spans {} to {}, but its shape needs {} bytes", name, entry.begin, entry.end, bytes)};
  return entry;
}

SafetensorsHeader read_header(std::string_view text, std::int64_t data_bytes) {
  if (text.empty() || text.front() != '{') throw Bad{"its header does not begin with {"};
  const json root = parse_strictly(text);
  if (!root.is_object()) throw Bad{"its header is not an object"};
  if (root.size() > kMostTensors) throw Bad{"it names more than 1,000,000 tensors"};
  SafetensorsHeader header;
  for (const auto& [name, value] : root.items()) {
    if (name != "__metadata__") {
      header.tensors.push_back(read_entry(name, value));
      continue;
    }
    if (!value.is_object()) throw Bad{"__metadata__ is not an object"};
    for (const auto& [key, text_value] : value.items()) {
      if (!text_value.is_string()) throw Bad{"__metadata__ holds something other than strings"};
      header.metadata[key] = text_value.get<std::string>();
    }
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::int64_t at = 0;
  for (const TensorEntry& tensor : header.tensors) {
    if (tensor.begin != at)
      throw Bad{fmt::format("tensor \"{}\" begins at byte {}, expected {} (no holes, no overlaps)", tensor.name,
                            tensor.begin, at)};
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
    return read_header(text, data_bytes);
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
