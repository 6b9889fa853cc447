// Whatever the file, it is refused, or its tensors fill its data and every one can be read or refused. The header's
// length goes before what stands in front of the mark; a file that begins with a byte 0xff is taken as it is behind
// that.
#include <algorithm>
#include <vector>

#include "exec/failure.h"
#include "exec/files/safetensors.h"
#include "tests/fuzz/target.h"

namespace {

namespace exec = orrery::exec;

std::string whole_file(std::string_view text) {
  if (!text.empty() && text.front() == '\xff') return std::string(text.substr(1));
  const std::string_view header = orrery::fuzz::take_part(text);
  std::string file;
  for (int byte = 0; byte < 8; ++byte) file += static_cast<char>((header.size() >> (8 * byte)) & 0xff);
  return file.append(header).append(text);
}

}  // namespace

FUZZ_TARGET(safetensors) {
  static const orrery::fuzz::Scratch scratch;
  const std::string bytes = whole_file(text);
  const auto file = exec::SafetensorsFile::open(scratch.write("fuzz.safetensors", bytes));
  if (!file) {
    orrery::fuzz::must(!file.error().empty(), "a refusal says why");
    (void)orrery::base::render(file.error(), true);
    return;
  }
  std::int64_t end = 0;
  for (const exec::TensorEntry& tensor : file->header().tensors) {
    orrery::fuzz::must(tensor.begin == end && tensor.end >= tensor.begin, "tensors follow each other");
    end = tensor.end;
    orrery::fuzz::must(file->header().find(tensor.name) == &tensor, "a tensor is found by its name");
    orrery::fuzz::must(tensor.elements() >= 0 && tensor.elements() <= tensor.end - tensor.begin, "elements have bytes");
    std::vector<float> values(static_cast<std::size_t>(std::min<std::int64_t>(tensor.elements(), 1024)));
    try {
      file->read(tensor, tensor.elements() - static_cast<std::int64_t>(values.size()), values);
    } catch (const exec::Failure&) {  // a dtype that has no fp32
    }
  }
  orrery::fuzz::must(file->header().data_start + end == static_cast<std::int64_t>(bytes.size()),
                     "tensors fill the file");
}
