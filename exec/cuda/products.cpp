// cuBLASLt: descriptors, the choice of a kernel, launches.
#include "exec/cuda/products.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/ensure.h"
#include "exec/cuda/cold_timer.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kProposals = 64;                   // for each workspace size
constexpr std::uint64_t kSmallerWorkspace = 16;  // the smaller workspace is this part of the whole
constexpr std::size_t kFinalists = 4;            // proposals timed more than once
constexpr int kRounds = 6;

void check(cublasStatus_t status, const char* doing) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Failure(fmt::format("cuBLASLt: {}: {}", doing, cublasLtGetStatusString(status)));
}

cudaDataType_t type_of(models::DType type, bool gradient = false) {
  switch (type) {
    case models::DType::fp8: return gradient ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
    case models::DType::fp32: return CUDA_R_32F;
    case models::DType::bf16: return CUDA_R_16BF;
    case models::DType::fp16: return CUDA_R_16F;
    case models::DType::fp4:
    case models::DType::tf32:
    case models::DType::int32:
    case models::DType::int64:
    case models::DType::uint8: break;
  }
  throw Failure(fmt::format("CUDA: no matrix products in {}", models::name_of(type)));
}

cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none: return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::bias: return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::gelu_aux: return CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::bias_gelu: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::gelu_grad: return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::bias_grad: return CUBLASLT_EPILOGUE_BGRADB;  // our A is cuBLAS's second operand: see prepare
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

bool has_bias(Epilogue e) {
  return e == Epilogue::bias || e == Epilogue::bias_gelu;
}
bool has_aux(Epilogue e) {
  return e == Epilogue::gelu_aux || e == Epilogue::bias_gelu || e == Epilogue::gelu_grad;
}

}  // namespace

struct Products::Prepared {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool possible = false;

  Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  ~Prepared() {
    for (const cublasLtMatrixLayout_t layout : {a, b, c})
      if (layout) cublasLtMatrixLayoutDestroy(layout);
    if (operation) cublasLtMatmulDescDestroy(operation);
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)), "describing a product");
  }
};

Products::Products(std::string device, std::size_t workspace_bytes, Options options)
    : workspace_(workspace_bytes, "allocating the workspace of matrix products"),
      options_(std::move(options)),
      plans_(options_.plan_file, std::move(device), cublasLtGetVersion()) {
  check(cublasLtCreate(&handle_), "starting");
}

Products::~Products() {
  prepared_.clear();
  if (handle_) cublasLtDestroy(handle_);
}

// Row-major C (m,n) = op(A) op(B) is column-major C^T (n,m) = op(B)^T op(A)^T. A row-major matrix read column-major is
// its transpose, so B comes first, and each operand is transposed for cuBLAS exactly if it is for us. A bias along n
// then runs along the rows of C^T, as cuBLASLt's epilogues expect.
Products::Prepared& Products::prepare(const Product& product, cudaStream_t stream) {
  const ProductShape& s = product.shape;
  if (const auto found = prepared_.find(s); found != prepared_.end()) return *found->second;
  auto made = std::make_unique<Prepared>();
  Prepared& p = *made;
  check(cublasLtMatmulDescCreate(&p.operation, s.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describing a product");
  const cublasOperation_t first = s.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = s.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  p.set(CUBLASLT_MATMUL_DESC_TRANSA, first);
  p.set(CUBLASLT_MATMUL_DESC_TRANSB, second);
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(s.epilogue));
  if (has_bias(s.epilogue))
    p.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(s.in == models::DType::fp8 ? s.out : s.in));
  if (s.epilogue == Epilogue::bias_grad) p.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(s.out));
  if (has_aux(s.epilogue)) {
    p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.n);
    p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type_of(s.in));
  }
  const auto layout = [](cublasLtMatrixLayout_t& to, cudaDataType_t type, std::int64_t rows, std::int64_t columns) {
    check(cublasLtMatrixLayoutCreate(&to, type, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns),
                                     rows),
          "describing a matrix");
  };
  layout(p.a, type_of(s.in), s.trans_b ? s.k : s.n, s.trans_b ? s.n : s.k);
  layout(p.b, type_of(s.in, s.gradient), s.trans_a ? s.m : s.k, s.trans_a ? s.k : s.m);
  layout(p.c, type_of(s.out), s.n, s.m);
  choose(p, product, stream);
  return *prepared_.emplace(s, std::move(made)).first->second;
}

// What a product has besides matrices. Sums are in fp32 throughout: CUBLASLT_MATMUL_DESC_FAST_ACCUM stays off, because
// it would keep fewer bits in the sums of 8-bit operands.
void Products::point(Prepared& p, const Product& product) {
  const ProductShape& s = product.shape;
  if (has_bias(s.epilogue)) p.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias);
  if (has_aux(s.epilogue)) p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product.aux);
  if (s.epilogue == Epilogue::bias_grad) p.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias_grad);
  if (s.in != models::DType::fp8) return;
  const float *const of_a = product.descales, *const of_b = product.descales + 1;
  p.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, of_b);  // B comes first: see prepare
  p.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, of_a);
}

void Products::choose(Prepared& p, const Product& product, cudaStream_t stream) {
  const ProductShape& s = product.shape;
  if (const auto kept = plans_.find(s); kept && kept->workspace_bytes <= workspace_.bytes()) {
    static_assert(sizeof(p.algorithm) == sizeof(kept->algorithm));
    std::memcpy(&p.algorithm, kept->algorithm.data(), sizeof(p.algorithm));
    p.possible = true;
    return;
  }
  point(p, product);
  const std::vector<Proposal> proposals = propose(p, s);
  if (proposals.empty()) return;  // not possible
  Proposal best = proposals.front();
  double seconds = 0;
  if (proposals.size() > 1 && worth_timing(s)) {
    may_be_timed(stream);
    // Times the real operands. Anything that is added to must not change, so the sums go elsewhere.
    DeviceMemory elsewhere;
    void* target = product.c;
    if (s.accumulate || s.epilogue == Epilogue::gelu_grad) {
      elsewhere = DeviceMemory(static_cast<std::size_t>(s.m * s.n * models::size_of(s.out)), "tuning a matrix product");
      target = elsewhere.data();
    }
    const auto [fastest, its_seconds] = fastest_of(
        proposals,
        [&](const Proposal& one) { return launch(p, product, target, one.algorithm, stream) == CUBLAS_STATUS_SUCCESS; },
        stream);
    if (its_seconds < ColdTimer::kNever) best = proposals[fastest], seconds = its_seconds;
    ++tuned_;
  }
  p.algorithm = best.algorithm;
  p.possible = true;
  StoredPlan plan;
  std::memcpy(plan.algorithm.data(), &best.algorithm, sizeof(best.algorithm));
  plan.workspace_bytes = best.workspace_bytes;
  plan.seconds = seconds;
  if (seconds > 0) plans_.keep(s, plan);
}

// cuBLASLt's proposals, best first by its own estimate. With less workspace it proposes others, which need not be
// worse: kernels that split the inner dimension come first in the long list and may crowd out the rest.
std::vector<Products::Proposal> Products::propose(const Prepared& p, const ProductShape& s) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "asking for kernels");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)), "asking for kernels");
  };
  const auto alignment = static_cast<std::uint32_t>(s.alignment);
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(attribute, alignment);
  std::vector<Proposal> out;
  const auto known = [&](const cublasLtMatmulAlgo_t& algorithm) {
    return std::any_of(out.begin(), out.end(), [&](const Proposal& one) {
      return std::memcmp(&one.algorithm, &algorithm, sizeof(algorithm)) == 0;
    });
  };
  const std::uint64_t all = workspace_.bytes();
  for (const std::uint64_t workspace : {all, all / kSmallerWorkspace, std::uint64_t{0}}) {
    if (!out.empty() && !worth_timing(s)) break;  // the first one is used
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    std::vector<cublasLtMatmulHeuristicResult_t> results(kProposals);
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, p.operation, p.a, p.b, p.c, p.c, preference,
                                                                 kProposals, results.data(), &found);
    if (status != CUBLAS_STATUS_SUCCESS) continue;
    results.resize(static_cast<std::size_t>(found));
    for (const cublasLtMatmulHeuristicResult_t& one : results)
      if (one.state == CUBLAS_STATUS_SUCCESS && !known(one.algo)) out.push_back({one.algo, one.workspaceSize});
  }
  cublasLtMatmulPreferenceDestroy(preference);
  return out;
}

// Runs each once to load it and warm up, times each once, then times the best few in turns.
std::pair<std::size_t, double> Products::fastest_of(const std::vector<Proposal>& proposals,
                                                    const std::function<bool(const Proposal&)>& run,
                                                    cudaStream_t stream) {
  const ColdTimer timer;
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < proposals.size(); ++i) {
    if (!run(proposals[i])) continue;
    order.emplace_back(timer.seconds(stream, [&] { return run(proposals[i]); }), i);
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min<std::size_t>(order.size(), kFinalists));
  for (int round = 0; round < kRounds; ++round)
    for (auto& [best, i] : order)
      best = std::min(best, timer.seconds(stream, [&, at = i] { return run(proposals[at]); }));
  if (order.empty()) return {0, ColdTimer::kNever};
  const auto fastest = *std::min_element(order.begin(), order.end());
  return {fastest.second, fastest.first};
}

cublasStatus_t Products::launch(Prepared& p, const Product& product, void* c, const cublasLtMatmulAlgo_t& algorithm,
                                cudaStream_t stream) {
  const ProductShape& s = product.shape;
  const float keep = s.accumulate ? 1 : 0;
  point(p, product);
  return cublasLtMatmul(handle_, p.operation, &product.scale, product.b, p.a, product.a, p.b, &keep, c, p.c, c, p.c,
                        &algorithm, workspace_.data(), workspace_.bytes(), stream);
}

ProductShape key_of(const Product& product) {
  ProductShape shape = product.shape;
  shape.alignment = common_alignment({product.a, product.b, product.c, product.bias, product.aux, product.bias_grad});
  return shape;
}

EpilogueUse epilogues_wanted() {
  const char* value = std::getenv("ORRERY_EPILOGUES");
  const std::string_view wish = value ? value : "";
  return wish == "on" ? EpilogueUse::always : wish == "off" ? EpilogueUse::never : EpilogueUse::timed;
}

bool Products::worth_timing(const ProductShape& s) const {
  return 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) >=
         options_.tune_above_flops;
}

void Products::may_be_timed(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda::check(cudaStreamIsCapturing(stream, &status), "asking whether a stream is captured");
  if (status != cudaStreamCaptureStatusNone) throw Failure("CUDA: a matrix product cannot be timed within a graph");
}

bool Products::run(Product product, cudaStream_t stream) {
  ProductShape& s = product.shape;
  ENSURE(s.m > 0 && s.n > 0 && s.k > 0, "a matrix product of {} x {} x {}", s.m, s.n, s.k);
  s = key_of(product);
  Prepared& p = prepare(product, stream);
  if (!p.possible) {
    if (s.epilogue != Epilogue::none) return false;
    throw Failure(
        fmt::format("cuBLASLt: no kernel for a product of {} x {} x {} in {}", s.m, s.n, s.k, models::name_of(s.in)));
  }
  const cublasStatus_t status = launch(p, product, product.c, p.algorithm, stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED && s.epilogue != Epilogue::none) {
    p.possible = false;
    return false;
  }
  check(status, "a matrix product");
  return true;
}

}  // namespace orrery::exec::cuda
