// oneDNN's products stand for CBLAS's: same result for every orientation, with strides, and added to what is there.
#include "exec/cpu/onednn.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace orrery::exec {
namespace onednn_test {

struct Size {
  std::int64_t m, n, k;
};

std::vector<float> drawn(std::int64_t count, std::uint64_t stream) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    values[static_cast<std::size_t>(i)] =
        static_cast<float>((i * 7919 + static_cast<std::int64_t>(stream)) % 201 - 100) / 64.0F;
  return values;
}

class OneDnnProduct : public ::testing::TestWithParam<Size> {};

TEST_P(OneDnnProduct, EqualsTheSumOfProductsInDoublePrecision) {
  if (onednn_version().empty()) GTEST_SKIP() << "no oneDNN here, or ORRERY_PRODUCTS=cblas";
  const auto [m, n, k] = GetParam();
  const std::int64_t pad = 5;
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true})
      for (const float beta : {0.0F, 1.0F}) {
        const std::int64_t lda = (trans_a ? m : k) + pad, ldb = (trans_b ? k : n) + pad, ldc = n + pad;
        const std::vector<float> a = drawn((trans_a ? k : m) * lda, 1), b = drawn((trans_b ? n : k) * ldb, 2);
        const std::vector<float> before = drawn(m * ldc, 3);
        std::vector<float> c = before;
        ASSERT_TRUE(onednn_gemm(trans_a, trans_b, m, n, k, 0.5F, a.data(), lda, b.data(), ldb, beta, c.data(), ldc));
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < ldc; ++j) {
            const std::size_t at = static_cast<std::size_t>(i * ldc + j);
            if (j >= n) {
              ASSERT_EQ(c[at], before[at]) << "beyond the row's end";
              continue;
            }
            double sum = 0;
            for (std::int64_t l = 0; l < k; ++l)
              sum += static_cast<double>(a[static_cast<std::size_t>(trans_a ? l * lda + i : i * lda + l)]) *
                     static_cast<double>(b[static_cast<std::size_t>(trans_b ? j * ldb + l : l * ldb + j)]);
            ASSERT_NEAR(c[at], 0.5 * sum + static_cast<double>(beta) * static_cast<double>(before[at]),
                        1e-5 * static_cast<double>(k))
                << "row " << i << " column " << j << (trans_a ? " A transposed" : "")
                << (trans_b ? " B transposed" : "");
          }
      }
}

INSTANTIATE_TEST_SUITE_P(Sizes, OneDnnProduct,
                         ::testing::Values(Size{1, 1, 1}, Size{17, 33, 65}, Size{64, 48, 16}, Size{3, 130, 257}));

}  // namespace onednn_test
}  // namespace orrery::exec
