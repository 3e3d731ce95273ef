// SPDX-License-Identifier: Apache-2.0
// Small reads of many files at once: on a shared file system latency is what they cost.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace parquet_data {

// Calls work(i) for i in [0, count) on a few threads, and throws what the first faulty i threw.
template <class Work>
void for_each_parallel(size_t count, const Work& work) {
  constexpr size_t kMostThreads = 8;
  constexpr size_t kPerThread = 4;
  std::vector<std::exception_ptr> faults(count);
  std::atomic<size_t> next = 0;
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        faults[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(kMostThreads, count / kPerThread); ++i) {
    threads.emplace_back(run);
  }
  run();
  for (auto& thread : threads) {
    thread.join();
  }
  for (const auto& fault : faults) {
    if (fault) {
      std::rethrow_exception(fault);
    }
  }
}

}  // namespace parquet_data
