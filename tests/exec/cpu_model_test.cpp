// A whole model at once: forward and backward of the tiny GPT of tests/golden/pytorch, operator by operator as models
// expands it, against the gradient that PyTorch computed in float64.
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "models/layers/expand.h"
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_model_test {

using models::LayerKind;
using models::LayerProgram;
using models::TensorRole;
using nlohmann::json;

const std::string folder = std::string(ORRERY_SOURCE_DIR) + "/tests/golden/pytorch/";

std::string file_text(const std::string& name) {
  std::ifstream file(folder + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

using Weights = std::map<std::string, Numbers>;

Weights read_safetensors(const std::string& name) {
  const std::string text = file_text(name);
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  Weights weights;
  const json header = json::parse(text.substr(8, length));
  for (const auto& [key, entry] : header.items()) {
    const std::size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    Numbers& values = weights[key];
    values.resize((end - begin) / sizeof(float));
    std::memcpy(values.data(), text.data() + 8 + length + begin, end - begin);
  }
  return weights;
}

/// Our names are Hugging Face's but for these; our matrices are (out, in), Conv1D's are (in, out).
struct Place {
  std::string name;
  bool transposed = false;
};
Place place_of(const std::string& ours) {
  std::string name = ours;
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{"attn.qkv", "attn.c_attn"},
                                                                                 {"attn.proj", "attn.c_proj"},
                                                                                 {"mlp.fc", "mlp.c_fc"},
                                                                                 {"mlp.proj", "mlp.c_proj"}})
    if (const std::size_t at = name.find(from); at != std::string::npos)
      return {"transformer." + name.replace(at, from.size(), to), name.find(".weight") != std::string::npos};
  return {"transformer." + name, false};
}

Numbers transpose(const Numbers& x, std::size_t rows, std::size_t columns) {
  Numbers y(x.size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) y[c * rows + r] = x[r * columns + c];
  return y;
}

/// Memory of all layers: what is shared between them (x, y, the tied table, tokens, loss) by name, the rest per layer.
class TinyGpt {
 public:
  TinyGpt(const json& golden, Weights weights, Backend& backend) : weights_(std::move(weights)), backend_(backend) {
    models::Model m;
    const json& sizes = golden["model"];
    m.layers = sizes["layers"];
    m.hidden = sizes["hidden"];
    m.heads = m.kv_heads = sizes["heads"];
    m.head_dim = m.hidden / m.heads;
    m.ffn_hidden = sizes["ffn_hidden"];
    m.vocab = sizes["vocab"];
    m.max_sequence = sizes["max_sequence"];
    m.norm_epsilon = sizes["norm_epsilon"];
    models::ExpandOptions options;
    options.batch = golden["batch"];
    options.sequence = golden["sequence"];
    options.global_tokens = options.batch * options.sequence;
    layers_.push_back(expand(m, LayerKind::embedding, -1, options));
    for (std::int64_t i = 0; i < m.layers; ++i) layers_.push_back(expand(m, LayerKind::block, i, options));
    layers_.push_back(expand(m, LayerKind::head, -1, options));
    for (std::size_t i = 0; i < layers_.size(); ++i) prepare(i);
    const std::int64_t count = options.batch * options.sequence;
    read_tokens(count);
  }

  float step() {
    for (std::size_t i = 0; i < layers_.size(); ++i) run_parts(i, layers_[i].forward);
    for (std::size_t i = layers_.size(); i-- > 0;) run_parts(i, layers_[i].backward);
    return memory_["loss"][0];
  }
  [[nodiscard]] const Numbers& gradient(const std::string& name) { return memory_[name + ".gradient"]; }
  [[nodiscard]] const std::map<std::string, const models::Tensor*>& parameters() const { return parameters_; }

 private:
  std::string key(std::size_t layer, models::TensorId id) const {
    const LayerProgram& program = layers_[layer];
    const models::Tensor& tensor = program.tensors[id];
    if (id == program.x) return "boundary " + std::to_string(layer);
    if (id == program.y) return "boundary " + std::to_string(layer + 1);
    if (id == program.dx) return "gradient boundary " + std::to_string(layer);
    if (id == program.dy) return "gradient boundary " + std::to_string(layer + 1);
    if (tensor.role == TensorRole::activation) return std::to_string(layer) + " " + tensor.name;
    return tensor.name;
  }

  void prepare(std::size_t layer) {
    const auto& tensors = layers_[layer].tensors;
    for (const models::TensorId i : tensors.keys()) {
      const models::Tensor& tensor = tensors[i];
      Numbers& values = memory_[key(layer, i)];
      values.resize(static_cast<std::size_t>(tensor.elements()));
      if (tensor.role != TensorRole::parameter) continue;
      parameters_[tensor.name] = &tensor;
      const Place place = place_of(tensor.name);
      ASSERT_TRUE(weights_.count(place.name)) << place.name;
      Numbers given = weights_[place.name];
      if (place.transposed)
        given = transpose(given, static_cast<std::size_t>(tensor.shape[1]), static_cast<std::size_t>(tensor.shape[0]));
      std::copy(given.begin(), given.end(), values.begin());
    }
  }

  void read_tokens(std::int64_t count) {
    const std::string text = file_text("tokens.bin");
    for (std::size_t i = 0; i <= static_cast<std::size_t>(count); ++i) {
      std::uint16_t id = 0;
      std::memcpy(&id, text.data() + 1024 + 2 * i, 2);
      const std::int32_t wide = id;
      if (i < static_cast<std::size_t>(count)) std::memcpy(&memory_["tokens"][i], &wide, sizeof wide);
      if (i > 0) std::memcpy(&memory_["targets"][i - 1], &wide, sizeof wide);
    }
  }

  void run_parts(std::size_t layer, const std::vector<models::Part>& parts) {
    const auto operands = [&](const std::vector<int>& indices) {
      std::vector<Operand> result;
      for (const int index : indices)
        result.push_back(index < 0 ? absent() : of(memory_.at(key(layer, models::tensor_of(index)))));
      return result;
    };
    for (const models::Part& part : parts)
      for (const Op& op : part.ops) run(backend_, op, operands(op.in), operands(op.out));
  }

  Weights weights_;
  Backend& backend_;
  std::vector<LayerProgram> layers_;
  std::map<std::string, Numbers> memory_;
  std::map<std::string, const models::Tensor*> parameters_;
};

TEST(TinyGpt, LossAndWholeGradientEqualThoseOfPyTorch) {
  const json golden = json::parse(file_text("golden.json"));
  const json& first = golden["runs"]["cosine_clipped"]["float64"]["steps"][0];
  Weights expected = read_safetensors("gradient_step_1.safetensors");
  on_every_backend([&](Backend& backend) {
    TinyGpt gpt(golden, read_safetensors("initial.safetensors"), backend);
    const float loss = gpt.step();
    EXPECT_NEAR(1, static_cast<double>(loss) / first["loss"].get<double>(), 1e-6);
    double difference = 0, norm = 0;
    std::vector<Numbers> results = {{loss}};
    for (const auto& [name, tensor] : gpt.parameters()) {
      const Place place = place_of(name);
      Numbers found = gpt.gradient(name);
      results.push_back(found);
      if (place.transposed)
        found =
            transpose(found, static_cast<std::size_t>(tensor->shape[0]), static_cast<std::size_t>(tensor->shape[1]));
      const Numbers& wanted = expected.at(place.name);
      for (std::size_t i = 0; i < found.size(); ++i) {  // beyond `wanted`: padding, without gradient
        const double g = i < wanted.size() ? static_cast<double>(wanted[i]) : 0;
        difference += std::pow(static_cast<double>(found[i]) - g, 2);
        norm += g * g;
      }
    }
    EXPECT_EQ(28u, gpt.parameters().size());
    EXPECT_NEAR(first["gradient_norm"].get<double>(), std::sqrt(norm), 1e-6);
    EXPECT_LT(std::sqrt(difference / norm), 1e-6);
    return results;
  });
}

}  // namespace cpu_model_test
}  // namespace orrery::exec::testing
