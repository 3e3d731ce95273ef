// SPDX-License-Identifier: Apache-2.0
// The loops, compiled once per instruction set. The including file defines LIMBECK_LOOPS, the
// namespace of its copy, and LIMBECK_VECTOR_BYTES, the width of its registers. Nothing of the
// standard library is called: an inline function compiled here with wide registers could be the
// copy that the linker keeps for everybody.
#include "core/ops/kernels/kernels.hpp"

namespace limbeck::kernels::LIMBECK_LOOPS {
namespace {

inline float root(float x) { return __builtin_sqrtf(x); }
inline double root(double x) { return __builtin_sqrt(x); }

// exp in single precision: 2^n times a polynomial in what is left, relative error below 2e-7
// (coefficients of the Cephes library). Vectorises, unlike a call. Beyond +-80 it stays constant,
// so that neither it nor its inverse is a denormal number, which are slow; NaN comes through.
inline float exponential(float x) {
  x = -80.0F > x ? -80.0F : x;
  x = 80.0F < x ? 80.0F : x;
  constexpr float kRounder = 12582912.0F;  // adding 1.5 * 2^23 rounds to an integer
  const float n = (x * 1.44269504F + kRounder) - kRounder;
  float r = x - n * 0.693359375F;
  r = r + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const auto bits = (static_cast<int32_t>(n) + 127) << 23;
  return p * __builtin_bit_cast(float, bits);
}
inline double exponential(double x) { return __builtin_exp(x); }

template <class T>
constexpr T kSqrt2OverPi = static_cast<T>(0.79788456080286535588);
template <class T>
constexpr T kCubic = static_cast<T>(0.044715);

template <class T>
inline T sigmoid_2u(T x) {
  const T u = kSqrt2OverPi<T> * x * (1 + kCubic<T> * x * x);
  return 1 / (1 + exponential(-2 * u));
}

inline int64_t offset_of(const Groups& groups, int64_t row) {
  const int64_t batch = row / groups.tokens;
  return batch * groups.batch_stride +
         (row - batch * groups.tokens) / groups.per_group * groups.group_stride;
}

// The row of a dense [batch * groups, ...] that belongs to `row`.
inline int64_t index_of(const Groups& groups, int64_t in_batch, int64_t row) {
  const int64_t batch = row / groups.tokens;
  return batch * in_batch + (row - batch * groups.tokens) / groups.per_group;
}

template <class T>
void norm_forward(const NormForward<T>& args, int64_t begin, int64_t end) {
  const int64_t width = args.width;
  for (int64_t row = begin; row < end; ++row) {
    const T* __restrict x = args.x + row * width;
    if (args.y != nullptr) {
      const T* __restrict y = args.y + row * width;
      T* __restrict z = args.z + row * width;
      if (args.gate != nullptr) {
        const T* __restrict gate = args.gate + offset_of(args.gate_groups, row);
#pragma omp simd
        for (int64_t c = 0; c < width; ++c) {
          z[c] = x[c] + y[c] * gate[c];
        }
      } else {
#pragma omp simd
        for (int64_t c = 0; c < width; ++c) {
          z[c] = x[c] + y[c];
        }
      }
      x = z;
    }
    if (args.u == nullptr) {
      continue;
    }
    T mean = 0;
#pragma omp simd reduction(+ : mean)
    for (int64_t c = 0; c < width; ++c) {
      mean += x[c];
    }
    mean /= static_cast<T>(width);
    T variance = 0;
#pragma omp simd reduction(+ : variance)
    for (int64_t c = 0; c < width; ++c) {
      const T away = x[c] - mean;
      variance += away * away;
    }
    const T rstd = 1 / root(variance / static_cast<T>(width) + static_cast<T>(args.eps));
    args.mean[row] = mean;
    args.rstd[row] = rstd;
    const T* __restrict scale = args.scale + offset_of(args.scale_groups, row);
    const T* __restrict shift = args.shift + offset_of(args.shift_groups, row);
    T* __restrict u = args.u + row * width;
    const T base = args.base;
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) {
      u[c] = (x[c] - mean) * rstd * (base + scale[c]) + shift[c];
    }
  }
}

template <class T>
void norm_backward(const NormBackward<T>& args, int64_t begin, int64_t end) {
  const int64_t width = args.width;
  for (int64_t row = begin; row < end; ++row) {
    const T* grad_z = args.grad_z != nullptr ? args.grad_z + row * width : nullptr;
    if (args.grad_u != nullptr) {
      T* grad_x = args.grad_x + row * width;
      const T* __restrict z = args.z + row * width;
      const T* __restrict grad_u = args.grad_u + row * width;
      const T* __restrict scale = args.scale + offset_of(args.scale_groups, row);
      const int64_t group = args.is_shared ? 0 : index_of(args.scale_groups, args.groups, row);
      T* __restrict grad_scale = args.grad_scale + group * width;
      T* __restrict grad_shift = args.grad_shift + group * width;
      const T mean = args.mean[row];
      const T rstd = args.rstd[row];
      const T base = args.base;
      T sum = 0;
      T dot = 0;
#pragma omp simd reduction(+ : sum, dot)
      for (int64_t c = 0; c < width; ++c) {
        const T normed = (z[c] - mean) * rstd;
        const T weighted = grad_u[c] * (base + scale[c]);
        grad_scale[c] += grad_u[c] * normed;
        grad_shift[c] += grad_u[c];
        sum += weighted;
        dot += weighted * normed;
      }
      sum /= static_cast<T>(width);
      dot /= static_cast<T>(width);
      if (grad_z != nullptr) {
#pragma omp simd
        for (int64_t c = 0; c < width; ++c) {
          const T normed = (z[c] - mean) * rstd;
          grad_x[c] = grad_z[c] + rstd * (grad_u[c] * (base + scale[c]) - sum - normed * dot);
        }
      } else {
#pragma omp simd
        for (int64_t c = 0; c < width; ++c) {
          const T normed = (z[c] - mean) * rstd;
          grad_x[c] = rstd * (grad_u[c] * (base + scale[c]) - sum - normed * dot);
        }
      }
      grad_z = grad_x;
    }
    if (args.gate != nullptr) {
      const T* __restrict y = args.y + row * width;
      const T* __restrict gate = args.gate + offset_of(args.gate_groups, row);
      T* __restrict grad_y = args.grad_y + row * width;
      T* __restrict grad_gate =
          args.grad_gate +
          (args.gate_shared ? 0 : index_of(args.gate_groups, args.gates, row)) * width;
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) {
        grad_gate[c] += grad_z[c] * y[c];
        grad_y[c] = grad_z[c] * gate[c];
      }
    }
  }
}

template <class T>
void rms_forward(const RmsForward<T>& args, int64_t begin, int64_t end) {
  const int64_t width = args.width;
  const int64_t head = args.head;
  const T* __restrict weight = args.weight;
  for (int64_t row = begin; row < end; ++row) {
    const T* __restrict x = args.x + row * args.x_stride;
    T* __restrict y = args.y + row * width;
    T square = 0;
#pragma omp simd reduction(+ : square)
    for (int64_t c = 0; c < width; ++c) {
      square += x[c] * x[c];
    }
    const T rstd = 1 / root(square / static_cast<T>(width) + static_cast<T>(args.eps));
    args.rstd[row] = rstd;
    if (args.table == nullptr) {
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) {
        y[c] = x[c] * rstd * weight[c];
      }
      continue;
    }
    const T* __restrict turn = args.table + row % args.tokens * head;
    for (int64_t first = 0; first < width; first += head) {
#pragma omp simd
      for (int64_t c = 0; c < head; c += 2) {
        const T even = x[first + c] * rstd * weight[first + c];
        const T odd = x[first + c + 1] * rstd * weight[first + c + 1];
        y[first + c] = even * turn[c] - odd * turn[c + 1];
        y[first + c + 1] = even * turn[c + 1] + odd * turn[c];
      }
    }
  }
}

template <class T>
void rms_backward(const RmsBackward<T>& args, int64_t begin, int64_t end) {
  const int64_t width = args.width;
  const int64_t head = args.head;
  const T* __restrict weight = args.weight;
  T* __restrict grad_weight = args.grad_weight;
  for (int64_t row = begin; row < end; ++row) {
    const T* __restrict x = args.x + row * args.x_stride;
    const T* __restrict grad_y = args.grad_y + row * width;
    if (args.table != nullptr) {
      // The transposed rotation.
      const T* __restrict turn = args.table + row % args.tokens * head;
      T* __restrict back = args.scratch;
      for (int64_t first = 0; first < width; first += head) {
#pragma omp simd
        for (int64_t c = 0; c < head; c += 2) {
          const T even = grad_y[first + c];
          const T odd = grad_y[first + c + 1];
          back[first + c] = even * turn[c] + odd * turn[c + 1];
          back[first + c + 1] = odd * turn[c] - even * turn[c + 1];
        }
      }
      grad_y = back;
    }
    const T rstd = args.rstd[row];
    T dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t c = 0; c < width; ++c) {
      const T normed = x[c] * rstd;
      grad_weight[c] += grad_y[c] * normed;
      dot += grad_y[c] * weight[c] * normed;
    }
    dot /= static_cast<T>(width);
    T* __restrict grad_x = args.grad_x + row * width;
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) {
      grad_x[c] = rstd * (grad_y[c] * weight[c] - x[c] * rstd * dot);
    }
  }
}

template <class T>
void gelu_forward(const T* __restrict x, T* __restrict y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    y[i] = x[i] * sigmoid_2u(x[i]);
  }
}

template <class T>
void gelu_backward(const T* __restrict x,
                   const T* __restrict grad_y,
                   T* __restrict grad_x,
                   int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const T s = sigmoid_2u(x[i]);
    const T slope = 2 * kSqrt2OverPi<T> * (1 + 3 * kCubic<T> * x[i] * x[i]);
    grad_x[i] = grad_y[i] * (s + x[i] * slope * (s - s * s));
  }
}

template <class T>
void softmax(T* all, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    T* __restrict x = all + row * width;
    T top = x[0];
#pragma omp simd reduction(max : top)
    for (int64_t c = 0; c < width; ++c) {
      top = x[c] > top ? x[c] : top;
    }
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < width; ++c) {
      x[c] = exponential(x[c] - top);
      sum += x[c];
    }
    const T inverse = 1 / sum;
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) {
      x[c] *= inverse;
    }
  }
}

template <class T>
void softmax_backward(const T* all, T* grads, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* __restrict p = all + row * width;
    T* __restrict grad = grads + row * width;
    T dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t c = 0; c < width; ++c) {
      dot += p[c] * grad[c];
    }
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) {
      grad[c] = p[c] * (grad[c] - dot);
    }
  }
}

template <class T>
void column_sums(const T* x, int64_t rows, int64_t stride, int64_t width, T* __restrict sums) {
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const T* __restrict a = x + row * stride;
    const T* __restrict b = a + stride;
    const T* __restrict c = b + stride;
    const T* __restrict d = c + stride;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      sums[i] += (a[i] + b[i]) + (c[i] + d[i]);
    }
  }
  for (; row < rows; ++row) {
    const T* __restrict a = x + row * stride;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      sums[i] += a[i];
    }
  }
}

template <class T, bool has_average>
void adamw_range(const AdamW<T>& args, int64_t begin, int64_t end) {
  T* __restrict param = args.param;
  const T* __restrict grad = args.grad;
  T* __restrict exp_avg = args.exp_avg;
  T* __restrict exp_avg_sq = args.exp_avg_sq;
  T* __restrict average = args.average;
  const AdamW<T> a = args;
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const T g = grad[i] * a.scale;
    const T m = exp_avg[i] + a.rest1 * (g - exp_avg[i]);
    const T v = a.beta2 * exp_avg_sq[i] + a.rest2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    const T p = param[i] * a.keep - a.step * m / (root(v) * a.inverse_root + a.eps);
    param[i] = p;
    if constexpr (has_average) {
      average[i] += a.average_weight * (p - average[i]);
    }
  }
}

template <class T>
void adamw(const AdamW<T>& args, int64_t begin, int64_t end) {
  if (args.average != nullptr) {
    adamw_range<T, true>(args, begin, end);
  } else {
    adamw_range<T, false>(args, begin, end);
  }
}

// ---- Small products, in tiles whose sums stay in registers.

template <class T, int bytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(bytes), aligned(alignof(T)), may_alias));
};

// The tile of `rows` x (`count` vectors) at row i and column j.
template <class T, int bytes, int rows, int count>
inline void tile(const SmallProduct<T>& args, int64_t i, int64_t j) {
  using Vector = typename VectorOf<T, bytes>::Type;
  constexpr int kLanes = bytes / static_cast<int>(sizeof(T));
  Vector sums[rows][count] = {};
  const T* a = args.a + i * args.a_row;
  const T* b = args.b + j;
  for (int64_t k = 0; k < args.k; ++k, a += args.a_column, b += args.b_row) {
    Vector right[count];
#pragma GCC unroll 4
    for (int v = 0; v < count; ++v) {
      right[v] = *reinterpret_cast<const Vector*>(b + v * kLanes);
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const T left = a[r * args.a_row];
#pragma GCC unroll 4
      for (int v = 0; v < count; ++v) {
        sums[r][v] += left * right[v];
      }
    }
  }
  Vector start[count] = {};
  if (args.bias != nullptr) {
#pragma GCC unroll 4
    for (int v = 0; v < count; ++v) {
      start[v] = *reinterpret_cast<const Vector*>(args.bias + j + v * kLanes);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < count; ++v) {
      auto* c = reinterpret_cast<Vector*>(args.c + (i + r) * args.c_row + j + v * kLanes);
      *c = (args.adds ? *c : start[v]) + args.alpha * sums[r][v];
    }
  }
}

template <class T, int bytes, int rows, int count>
inline void tile_column(const SmallProduct<T>& args, int64_t j) {
  int64_t i = 0;
  for (; i + rows <= args.m; i += rows) {
    tile<T, bytes, rows, count>(args, i, j);
  }
  for (; i + 4 <= args.m; i += 4) {
    tile<T, bytes, 4, count>(args, i, j);
  }
  for (; i < args.m; ++i) {
    tile<T, bytes, 1, count>(args, i, j);
  }
}

template <class T>
void small_product(const SmallProduct<T>& args) {
  constexpr int64_t kLanes = LIMBECK_VECTOR_BYTES / sizeof(T);
  constexpr int kRows = LIMBECK_VECTOR_BYTES == 64 ? 12 : 6;  // 2 kRows of the 32 or 16 registers
  int64_t j = 0;
  for (; j + 2 * kLanes <= args.n; j += 2 * kLanes) {
    tile_column<T, LIMBECK_VECTOR_BYTES, kRows, 2>(args, j);
  }
  for (; j + kLanes <= args.n; j += kLanes) {
    tile_column<T, LIMBECK_VECTOR_BYTES, 12, 1>(args, j);
  }
  if constexpr (LIMBECK_VECTOR_BYTES == 64) {
    for (; j + kLanes / 2 <= args.n; j += kLanes / 2) {
      tile_column<T, 32, 12, 1>(args, j);
    }
  }
  constexpr int64_t kFew = 16 / sizeof(T);
  for (; j + kFew <= args.n; j += kFew) {
    tile_column<T, 16, 12, 1>(args, j);
  }
  for (; j < args.n; ++j) {
    tile_column<T, sizeof(T), 4, 1>(args, j);
  }
}

template <class T>
void transpose(
    const T* __restrict from, int64_t rows, int64_t columns, int64_t stride, T* __restrict to) {
  // Squares of whole cache lines on both sides.
  constexpr int64_t kSquare = 16;
  for (int64_t row = 0; row < rows; row += kSquare) {
    const int64_t last_row = row + kSquare < rows ? row + kSquare : rows;
    for (int64_t column = 0; column < columns; column += kSquare) {
      const int64_t last_column = column + kSquare < columns ? column + kSquare : columns;
      for (int64_t c = column; c < last_column; ++c) {
        for (int64_t r = row; r < last_row; ++r) {
          to[c * rows + r] = from[r * stride + c];
        }
      }
    }
  }
}

template <class T>
constexpr Kernels<T> kTable = {norm_forward<T>, norm_backward<T>,    rms_forward<T>,
                               rms_backward<T>, gelu_forward<T>,     gelu_backward<T>,
                               softmax<T>,      softmax_backward<T>, column_sums<T>,
                               adamw<T>,        small_product<T>,    transpose<T>};

}  // namespace

extern const Kernels<float> f32;
extern const Kernels<double> f64;
const Kernels<float> f32 = kTable<float>;
const Kernels<double> f64 = kTable<double>;

}  // namespace limbeck::kernels::LIMBECK_LOOPS
