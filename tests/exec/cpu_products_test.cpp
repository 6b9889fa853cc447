// The kernels' own matrix product, against plain sums in double precision: factors as they are and transposed, shapes
// that fill no tile, panel or block, and what must not be touched.
#include <algorithm>
#include <limits>

#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_products_test {

struct Shape {
  std::int64_t m, n, k;
};
// Single values, whole tiles, what is left over of each, and several blocks of rows and of k.
const Shape kShapes[] = {{1, 1, 1},    {14, 32, 16},  {6, 16, 32},   {13, 31, 15},   {15, 33, 17},  {3, 100, 40},
                         {29, 7, 321}, {97, 65, 640}, {513, 40, 23}, {530, 34, 330}, {40, 200, 96}, {2, 48, 1000}};

constexpr float kUntouched = 12345;
constexpr std::int64_t kBeside = 3, kBehind = 16;  // columns beside each matrix, values behind the room

/// A product with its memory. Rows are longer than the matrices.
struct Case {
  Shape shape;
  bool trans_a, trans_b, adds;
  Numbers a, b, before, c;

  Case(const Shape& s, int kind) : shape(s), trans_a((kind & 1) != 0), trans_b((kind & 2) != 0), adds((kind & 4) != 0) {
    a = random_numbers((trans_a ? s.k : s.m) * lda(), "a");
    b = random_numbers((trans_b ? s.n : s.k) * ldb(), "b");
    before = adds ? random_numbers(s.m * ldc(), "c")
                  : Numbers(static_cast<std::size_t>(s.m * ldc()), std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = s.n; j < ldc(); ++j) before[static_cast<std::size_t>(i * ldc() + j)] = kUntouched;
  }
  [[nodiscard]] std::int64_t lda() const { return (trans_a ? shape.m : shape.k) + kBeside; }
  [[nodiscard]] std::int64_t ldb() const { return (trans_b ? shape.k : shape.n) + kBeside; }
  [[nodiscard]] std::int64_t ldc() const { return shape.n + kBeside; }
  [[nodiscard]] double left(std::int64_t i, std::int64_t k) const {
    return static_cast<double>(a[static_cast<std::size_t>(trans_a ? k * lda() + i : i * lda() + k)]);
  }
  [[nodiscard]] double right(std::int64_t k, std::int64_t j) const {
    return static_cast<double>(b[static_cast<std::size_t>(trans_b ? j * ldb() + k : k * ldb() + j)]);
  }
  Product product() {
    c = before;
    return {trans_a, trans_b, adds, shape.m, shape.n, shape.k, a.data(), lda(), b.data(), ldb(), c.data(), ldc()};
  }
  /// The largest error of an element, relative to the size of what it adds up.
  [[nodiscard]] double error() const {
    double worst = 0;
    for (std::int64_t i = 0; i < shape.m; ++i)
      for (std::int64_t j = 0; j < shape.n; ++j) {
        const auto at = static_cast<std::size_t>(i * ldc() + j);
        double sum = adds ? static_cast<double>(before[at]) : 0, size = 1;
        for (std::int64_t k = 0; k < shape.k; ++k) {
          const double term = left(i, k) * right(k, j);
          sum += term, size += std::abs(term);
        }
        const double error = std::abs(static_cast<double>(c[at]) - sum) / size;
        if (!(error <= worst)) worst = error;  // also when it is no number
      }
    return worst;
  }
  [[nodiscard]] bool leaves_the_rest() const {
    for (std::int64_t i = 0; i < shape.m; ++i)
      for (std::int64_t j = shape.n; j < ldc(); ++j)
        if (c[static_cast<std::size_t>(i * ldc() + j)] != kUntouched) return false;
    return true;
  }
};

void on_every_product(const std::function<void(const Kernels&)>& body) {
  for (const Kernels* kernels : runnable_kernels()) {
    SCOPED_TRACE(kernels->name);
    if (kernels->product != nullptr) body(*kernels);
  }
}

/// Computes it in a room of the stated size; false if what lies behind was written.
bool keeps_to_its_room(const Kernels& kernels, const Product& p) {
  const auto size = static_cast<std::size_t>(kernels.product_room(p));
  Numbers room(size + kBehind, kUntouched);
  kernels.product(p, room.data());
  return std::all_of(room.begin() + static_cast<std::ptrdiff_t>(size), room.end(),
                     [](float x) { return x == kUntouched; });
}

TEST(CpuProduct, IsThatOfPlainSumsInAnyOrientation) {
  on_every_product([](const Kernels& kernels) {
    for (const Shape& shape : kShapes)
      for (int kind = 0; kind < 8; ++kind) {
        SCOPED_TRACE(::testing::Message() << shape.m << " x " << shape.n << " x " << shape.k << ", kind " << kind);
        Case one(shape, kind);
        EXPECT_TRUE(keeps_to_its_room(kernels, one.product()));
        EXPECT_LT(one.error(), 1e-6);
        EXPECT_TRUE(one.leaves_the_rest());
      }
  });
}

TEST(CpuProduct, OfARowDoesNotDependOnTheRowsAndColumnsBesideIt) {
  on_every_product([](const Kernels& kernels) {
    for (int kind = 0; kind < 4; ++kind) {
      Case whole({530, 70, 700}, kind);
      const Product all = whole.product();
      ASSERT_TRUE(keeps_to_its_room(kernels, all));
      for (const std::int64_t row : {0, 13, 300, 529})
        for (const std::int64_t column : {0, 31, 69}) {
          float alone = 0;
          Product one = all;
          one.m = one.n = 1;
          one.a += whole.trans_a ? row : row * all.lda;
          one.b += whole.trans_b ? column * all.ldb : column;
          one.c = &alone;
          ASSERT_TRUE(keeps_to_its_room(kernels, one));
          EXPECT_EQ(alone, all.c[row * all.ldc + column]) << "row " << row << ", column " << column;
        }
    }
  });
}

TEST(CpuProduct, OfInfinityAndNoNumberShows) {
  on_every_product([](const Kernels& kernels) {
    Case one({20, 40, 33}, 0);
    one.a[static_cast<std::size_t>(2 * one.lda() + 5)] = std::numeric_limits<float>::infinity();
    one.a[static_cast<std::size_t>(7 * one.lda() + 32)] = std::numeric_limits<float>::quiet_NaN();
    const Product p = one.product();
    ASSERT_TRUE(keeps_to_its_room(kernels, p));
    for (std::int64_t i = 0; i < 20; ++i)
      for (std::int64_t j = 0; j < 40; ++j) {
        const float value = p.c[i * p.ldc + j];
        EXPECT_EQ(std::isfinite(value), i != 2 && i != 7) << i << ", " << j << ": " << value;
      }
  });
}

}  // namespace cpu_products_test
}  // namespace orrery::exec::testing
