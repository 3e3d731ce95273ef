// SPDX-License-Identifier: Apache-2.0
// How the fused operators split their loops over libtorch's threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace limbeck {

// Elements below which another thread costs more than it brings.
constexpr int64_t kGrain = 16384;

// Calls body(begin, end) on parts of [0, rows), rows of `width` elements each.
template <class Body>
void over_rows(int64_t rows, int64_t width, const Body& body) {
  at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(width, 1)), body);
}

// Sums that several threads add to: each has its own copy, joined in the order of threads, so that
// results depend on the number of threads only.
template <class T>
class ThreadSums {
 public:
  // `size` zeros for each thread; inside a parallel region for its own alone, since loops there run
  // on that thread.
  ThreadSums(int64_t size, const at::TensorOptions& options)
      : is_nested_(at::in_parallel_region()),
        size_(size),
        all_(at::zeros({is_nested_ ? 1 : at::get_num_threads(), size}, options)) {}

  // Of the calling thread.
  T* mine() const {
    return all_.mutable_data_ptr<T>() +
           (!is_nested_ && at::in_parallel_region() ? at::get_thread_num() : 0) * size_;
  }

  // The sums of all threads, [size].
  at::Tensor join() const {
    T* total = all_.mutable_data_ptr<T>();
    for (int64_t slot = 1; slot < all_.size(0); ++slot) {
      const T* other = total + slot * size_;
      for (int64_t i = 0; i < size_; ++i) {
        total[i] += other[i];
      }
    }
    return all_[0];
  }

 private:
  bool is_nested_;
  int64_t size_;
  at::Tensor all_;
};

}  // namespace limbeck
