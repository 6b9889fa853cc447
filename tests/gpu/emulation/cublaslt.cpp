// cuBLASLt, plainly.
#include <cublasLt.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "models/operators/fp8.h"

namespace emulation {
namespace {

constexpr std::uint64_t kMagic = 0x1dea;  // what an algorithm of this library begins with

double value_at(const void* data, cudaDataType_t type, std::int64_t i) {
  switch (type) {
    case CUDA_R_32F: return static_cast<double>(static_cast<const float*>(data)[i]);
    case CUDA_R_16F: return static_cast<double>(__half2float(static_cast<const __half*>(data)[i]));
    case CUDA_R_16BF: return static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]));
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
      return static_cast<double>(
          orrery::models::fp8_value(static_cast<const std::uint8_t*>(data)[i],
                                    type == CUDA_R_8F_E4M3 ? orrery::models::Fp8::e4m3 : orrery::models::Fp8::e5m2));
  }
  return 0;
}

void put_at(void* data, cudaDataType_t type, std::int64_t i, double value) {
  const float v = static_cast<float>(value);
  switch (type) {
    case CUDA_R_32F: static_cast<float*>(data)[i] = v; return;
    case CUDA_R_16F: static_cast<__half*>(data)[i] = __float2half_rn(v); return;
    case CUDA_R_16BF: static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(v); return;
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2: return;  // not written here
  }
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double t = std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

bool of_8_bits(cudaDataType_t type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

int size_of(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : of_8_bits(type) ? 1 : 2;
}

bool bias_gradient(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

bool aligned(const void* address, std::uint64_t to) {
  return reinterpret_cast<std::uintptr_t>(address) % to == 0;
}

}  // namespace

LtRecord& lt_record() {
  static thread_local LtRecord record;
  return record;
}

}  // namespace emulation

using namespace emulation;

const char* cublasLtGetStatusString(cublasStatus_t) {
  return "emulated status";
}
std::size_t cublasLtGetVersion() {
  return 130100;
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return *handle = new int(0), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return delete handle, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* to, cublasComputeType_t compute, cudaDataType_t scale) {
  *to = new LtOperation;
  (*to)->tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  return scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  return delete operation, CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t o, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  const auto take = [&](auto& to) {
    if (bytes != sizeof(to)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(o->trans_a);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(o->trans_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(o->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(o->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return take(o->bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return take(o->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return take(o->aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: return take(o->aux_type);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return take(o->scale_a);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return take(o->scale_b);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* to, cudaDataType_t type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t ld) {
  *to = new LtLayout{type, rows, columns, ld};
  return ld >= static_cast<std::int64_t>(rows) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return delete layout, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* to) {
  return *to = new LtPreference, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return delete preference, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return bytes == sizeof(std::uint64_t) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != sizeof(std::uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&preference->alignment, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

/// Two proposals, each good for addresses of the alignment that was asked for. Epilogues with a second matrix want rows
/// of a multiple of 16 bytes and such addresses, as the library's do.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  ++lt_record().asked;
  *found = 0;
  const bool plain = o->epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  if (of_8_bits(a->type) || of_8_bits(b->type)) {
    // The library's table of 8-bit types, for sm_90: not both e5m2; A transposed, B not; whole 16 bytes everywhere.
    const bool types = of_8_bits(a->type) && of_8_bits(b->type) &&
                       (a->type == CUDA_R_8F_E4M3 || b->type == CUDA_R_8F_E4M3) && c->type == d->type &&
                       (d->type == CUDA_R_16BF || d->type == CUDA_R_32F);
    const bool sizes = a->rows % 16 == 0 && a->columns % 16 == 0 && b->columns % 16 == 0 && preference->alignment >= 16;
    const bool epilogue = plain || (o->epilogue == CUBLASLT_EPILOGUE_BIAS && o->bias_type == CUDA_R_16BF);
    if (!types || !sizes || !epilogue || o->trans_a != CUBLAS_OP_T || o->trans_b != CUBLAS_OP_N || o->tf32)
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!plain && lt_record().no_epilogues) return CUBLAS_STATUS_NOT_SUPPORTED;
  } else {
    const bool same = a->type == b->type && c->type == d->type && (d->type == a->type || d->type == CUDA_R_32F);
    if (!same || o->scale_a != nullptr || o->scale_b != nullptr) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!plain && lt_record().no_epilogues) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (bias_gradient(o->epilogue)) {
      // Documented: its elements are of the output's type. Rows and addresses of whole 16 bytes, as for the others, are
      // more than is documented: kernels without them are not to be relied on.
      const auto whole = [](cublasLtMatrixLayout_t of) { return of->ld * size_of(of->type) % 16 == 0; };
      const bool fits = o->bias_type == d->type && whole(a) && whole(b) && whole(d) && preference->alignment >= 16;
      if (!fits || o->bias == nullptr) return CUBLAS_STATUS_NOT_SUPPORTED;
    } else if (!plain && d->type != a->type) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  }
  if ((o->epilogue & 128) != 0) {
    if (o->aux_ld * size_of(o->aux_type) % 16 != 0 || preference->alignment < 16) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  for (int i = 0; i < 2 && i < most; ++i, ++*found) {
    results[i] = {};
    results[i].algo.data[0] = kMagic;
    results[i].algo.data[1] = preference->alignment;
    results[i].algo.data[2] = static_cast<std::uint64_t>(i);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t o, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t of_a, const void* b, cublasLtMatrixLayout_t of_b, const void* beta,
                              const void* c, cublasLtMatrixLayout_t of_c, void* d, cublasLtMatrixLayout_t of_d,
                              const cublasLtMatmulAlgo_t* algorithm, void*, std::size_t, cudaStream_t stream) {
  ++lt_record().launches;
  ++lt_record().with[o->epilogue];
  const bool ta = o->trans_a == CUBLAS_OP_T, tb = o->trans_b == CUBLAS_OP_T;
  const std::uint64_t m = of_d->rows, n = of_d->columns, k = ta ? of_a->rows : of_a->columns;
  const bool fits = (ta ? of_a->columns : of_a->rows) == m && (tb ? of_b->rows : of_b->columns) == n &&
                    (tb ? of_b->columns : of_b->rows) == k && of_c->rows == m && of_c->columns == n && c == d;
  if (!fits || algorithm->data[0] != kMagic) return CUBLAS_STATUS_INVALID_VALUE;
  for (const void* address : {a, b, c, static_cast<const void*>(d)})
    if (!aligned(address, algorithm->data[1])) return CUBLAS_STATUS_INVALID_VALUE;
  enqueue(stream, [=, op = *o, la = *of_a, lb = *of_b, ld = *of_d, scale = *static_cast<const float*>(alpha),
                   keep = *static_cast<const float*>(beta)] {
    // Scales are read when the work is done, where the kernels before it have put them.
    const double scales = (op.scale_a != nullptr ? static_cast<double>(*op.scale_a) : 1.0) *
                          (op.scale_b != nullptr ? static_cast<double>(*op.scale_b) : 1.0);
    const auto factor = [&](const void* data, cudaDataType_t type, std::int64_t i) {
      const double value = value_at(data, type, i);
      return op.tf32 ? static_cast<double>(orrery::models::tf32_value(static_cast<float>(value))) : value;
    };
    made_up_times().clock += lt_record().seconds[op.epilogue];
    // Sums over the inner dimension of what stands before the product, whatever becomes of that; written, not added.
    if (op.epilogue == CUBLASLT_EPILOGUE_BGRADA)
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(m); ++i) {
        double sum = 0;
        for (std::int64_t l = 0; l < static_cast<std::int64_t>(k); ++l)
          sum += factor(a, la.type, ta ? l + i * la.ld : i + l * la.ld);
        put_at(op.bias, op.bias_type, i, sum);
      }
    if (op.epilogue == CUBLASLT_EPILOGUE_BGRADB)
      for (std::int64_t j = 0; j < static_cast<std::int64_t>(n); ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < static_cast<std::int64_t>(k); ++l)
          sum += factor(b, lb.type, tb ? j + l * lb.ld : l + j * lb.ld);
        put_at(op.bias, op.bias_type, j, sum);
      }
    // By inner number, then row: so the sums of a column run side by side, each in its order.
    std::vector<double> left(m * k), sums(m);
    for (std::uint64_t l = 0; l < k; ++l)
      for (std::uint64_t row = 0; row < m; ++row) {
        const auto i = static_cast<std::int64_t>(row), inner = static_cast<std::int64_t>(l);
        left[l * m + row] = factor(a, la.type, ta ? inner + i * la.ld : i + inner * la.ld);
      }
    for (std::uint64_t column = 0; column < n; ++column) {
      const auto j = static_cast<std::int64_t>(column);
      sums.assign(m, 0);
      for (std::uint64_t l = 0; l < k; ++l) {
        const auto inner = static_cast<std::int64_t>(l);
        const double right = factor(b, lb.type, tb ? j + inner * lb.ld : inner + j * lb.ld);
        for (std::uint64_t row = 0; row < m; ++row) sums[row] += left[l * m + row] * right;
      }
      for (std::uint64_t row = 0; row < m; ++row) {
        const auto i = static_cast<std::int64_t>(row);
        const std::int64_t at = i + j * ld.ld;
        double value = static_cast<double>(scale) * scales * sums[row];
        if (keep != 0) value += static_cast<double>(keep) * value_at(d, ld.type, at);
        if ((op.epilogue & 4) != 0) value += value_at(op.bias, op.bias_type, i);
        const std::int64_t aux_at = i + j * op.aux_ld;
        if (op.epilogue == CUBLASLT_EPILOGUE_DGELU) {
          value *= gelu_slope(value_at(op.aux, op.aux_type, aux_at));
        } else if ((op.epilogue & 128) != 0) {
          put_at(op.aux, op.aux_type, aux_at, value);
          value = gelu(value);
        }
        put_at(d, ld.type, at, value);
      }
    }
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}
