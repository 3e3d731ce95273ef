// SPDX-License-Identifier: Apache-2.0
// The loops behind the fused operators on the CPU, one set per instruction set, chosen when the
// program starts. No libtorch here: pointers, sizes, strides in elements.
//
// Every function works on a range of rows or elements and never starts a thread: callers split the
// work. Buffers do not overlap unless said. Sums over rows ("+=") go to a place of the caller's
// own thread.
#pragma once

#include <cstdint>
#include <vector>

namespace limbeck::kernels {

// Where row `i` of x [batch, tokens, width] finds its row of a tensor [batch, groups, width]:
// tokens / groups neighbouring rows share one. A tensor without rows has strides of zero.
struct Groups {
  int64_t tokens = 1;
  int64_t per_group = 1;
  int64_t batch_stride = 0;
  int64_t group_stride = 0;
};

// The arguments of the fused operators. T is the type of what is as large as x, R that of rows,
// statistics, tables and sums; core/cuda has void for T, whose type it learns with each call.

// z = x + y gate (skipped without y), then u = (z - mean) rstd (base + scale) + shift (skipped
// without u). Mean and variance are those of a row; rstd = 1 / sqrt(variance + eps).
template <class T, class R = T>
struct NormForward {
  int64_t width = 0;
  double eps = 0;
  const T* x = nullptr;     // [rows, width]
  const T* y = nullptr;     // [rows, width] or null
  const R* gate = nullptr;  // by gate_groups; null: 1
  Groups gate_groups;
  T* z = nullptr;  // [rows, width], with y
  R base = 1;
  const R* scale = nullptr;  // by scale_groups
  const R* shift = nullptr;  // by shift_groups
  Groups scale_groups;
  Groups shift_groups;
  T* u = nullptr;     // [rows, width] or null
  R* mean = nullptr;  // [rows], with u
  R* rstd = nullptr;  // [rows], with u
};

// The gradients of NormForward. grad_z (null: none) is that of z from elsewhere.
template <class T, class R = T>
struct NormBackward {
  int64_t width = 0;
  const T* z = nullptr;
  const R* mean = nullptr;
  const R* rstd = nullptr;
  const T* grad_u = nullptr;  // null: only the sum x + y gate is differentiated
  const T* grad_z = nullptr;
  R base = 1;
  const R* scale = nullptr;
  Groups scale_groups;
  T* grad_x = nullptr;      // the whole gradient of z; may be grad_z
  R* grad_scale = nullptr;  // += [batch * groups, width], dense
  R* grad_shift = nullptr;  // += likewise
  int64_t groups = 1;       // of grad_scale and grad_shift, in a batch entry
  bool is_shared = false;   // scale and shift are one row for all: grad_* are [width]
  const T* y = nullptr;     // with gate
  const R* gate = nullptr;
  Groups gate_groups;
  T* grad_y = nullptr;       // with gate
  R* grad_gate = nullptr;    // += [batch * gate groups, width], with gate
  int64_t gates = 1;         // gate groups in a batch entry
  bool gate_shared = false;  // grad_gate is [width]
};

// y = rotate(x rstd weight), rstd = 1 / sqrt(mean square of the row + eps). The rotation turns
// neighbouring channels of each head by a token's angles: table [tokens, head / 2, 2] holds cosine
// and sine. Without table: no rotation.
template <class T, class R = T>
struct RmsForward {
  int64_t width = 0;
  int64_t head = 0;  // even with table
  int64_t tokens = 1;
  int64_t x_stride = 0;  // from row to row of x
  double eps = 0;
  const T* x = nullptr;
  const R* weight = nullptr;  // [width]
  const R* table = nullptr;
  T* y = nullptr;     // [rows, width]
  R* rstd = nullptr;  // [rows]
};

template <class T, class R = T>
struct RmsBackward {
  int64_t width = 0;
  int64_t head = 0;
  int64_t tokens = 1;
  int64_t x_stride = 0;
  const T* x = nullptr;
  const R* weight = nullptr;
  const R* table = nullptr;
  const R* rstd = nullptr;
  const T* grad_y = nullptr;  // [rows, width]
  T* grad_x = nullptr;        // [rows, width]
  R* grad_weight = nullptr;   // += [width]
  R* scratch = nullptr;       // [width], of the thread
};

// AdamW of a stretch with one set of constants, see core/optim/optimizer.hpp; `scale` multiplies
// the gradient. With `average`, average += average_weight (p - average) of the new weights.
template <class T>
struct AdamW {
  T* param = nullptr;
  const T* grad = nullptr;
  T* exp_avg = nullptr;
  T* exp_avg_sq = nullptr;
  T* average = nullptr;
  T scale = 1;
  T beta1 = 0;
  T beta2 = 0;
  T rest1 = 1;  // 1 - beta, rounded once
  T rest2 = 1;
  T keep = 1;          // 1 - lr * weight decay
  T step = 0;          // lr / (1 - beta1^k)
  T inverse_root = 1;  // 1 / sqrt(1 - beta2^k)
  T eps = 0;
  T average_weight = 0;
};

// c [m, n] = alpha a b + bias, or c += alpha a b. For b that fits into a cache. Elements of a [m,
// k] lie at any distance from each other, rows of b [k, n] and of c are dense. The sum over k has
// one order, whatever part of c a call computes.
template <class T>
struct SmallProduct {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  T alpha = 1;
  const T* a = nullptr;
  int64_t a_row = 0;     // from row to row
  int64_t a_column = 1;  // from column to column
  const T* b = nullptr;
  int64_t b_row = 0;
  T* c = nullptr;
  int64_t c_row = 0;
  const T* bias = nullptr;  // [n] or null
  bool adds = false;        // without bias
};

template <class T>
struct Kernels {
  void (*norm_forward)(const NormForward<T>& args, int64_t begin, int64_t end);
  void (*norm_backward)(const NormBackward<T>& args, int64_t begin, int64_t end);
  void (*rms_forward)(const RmsForward<T>& args, int64_t begin, int64_t end);
  void (*rms_backward)(const RmsBackward<T>& args, int64_t begin, int64_t end);
  // y = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3): the tanh form of GELU.
  void (*gelu_forward)(const T* x, T* y, int64_t count);
  void (*gelu_backward)(const T* x, const T* grad_y, T* grad_x, int64_t count);
  // Each of `rows` rows of x becomes its softmax. In place.
  void (*softmax)(T* x, int64_t rows, int64_t width);
  // grad = p (grad - sum of p grad over the row), for p = softmax(x). In place.
  void (*softmax_backward)(const T* p, T* grad, int64_t rows, int64_t width);
  // sums[c] += sum over rows of x[row, c], for c < width; `stride` from row to row.
  void (*column_sums)(const T* x, int64_t rows, int64_t stride, int64_t width, T* sums);
  void (*adamw)(const AdamW<T>& args, int64_t begin, int64_t end);
  void (*small_product)(const SmallProduct<T>& args);
  // to [columns, rows] = from [rows, columns] transposed; `stride` from row to row of `from`.
  void (*transpose)(const T* from, int64_t rows, int64_t columns, int64_t stride, T* to);
};

enum class InstructionSet { kBaseline, kAvx2, kAvx512 };

// "baseline", "avx2", "avx512".
const char* name_of(InstructionSet set);
// Those that this build has and this CPU can run, best last. Never empty. [any]
std::vector<InstructionSet> available();
// `set` must be available. T is float or double. [any]
template <class T>
const Kernels<T>& kernels(InstructionSet set);
// The best available. [any]
template <class T>
const Kernels<T>& kernels();

}  // namespace limbeck::kernels
