// SPDX-License-Identifier: Apache-2.0
#include "core/ops/kernels/kernels.hpp"

namespace limbeck::kernels {

#define LIMBECK_DECLARE_LOOPS(set)  \
  namespace set {                   \
  extern const Kernels<float> f32;  \
  extern const Kernels<double> f64; \
  }
LIMBECK_DECLARE_LOOPS(baseline)
#ifdef LIMBECK_X86_LOOPS
LIMBECK_DECLARE_LOOPS(avx2)
LIMBECK_DECLARE_LOOPS(avx512)
#endif
#undef LIMBECK_DECLARE_LOOPS

const char* name_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
    case InstructionSet::kBaseline:
      break;
  }
  return "baseline";
}

std::vector<InstructionSet> available() {
  std::vector<InstructionSet> sets = {InstructionSet::kBaseline};
#ifdef LIMBECK_X86_LOOPS
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    sets.push_back(InstructionSet::kAvx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
      sets.push_back(InstructionSet::kAvx512);
    }
  }
#endif
  return sets;
}

template <>
const Kernels<float>& kernels<float>(InstructionSet set) {
#ifdef LIMBECK_X86_LOOPS
  if (set == InstructionSet::kAvx512) {
    return avx512::f32;
  }
  if (set == InstructionSet::kAvx2) {
    return avx2::f32;
  }
#endif
  return baseline::f32;
}

template <>
const Kernels<double>& kernels<double>(InstructionSet set) {
#ifdef LIMBECK_X86_LOOPS
  if (set == InstructionSet::kAvx512) {
    return avx512::f64;
  }
  if (set == InstructionSet::kAvx2) {
    return avx2::f64;
  }
#endif
  return baseline::f64;
}

template <class T>
const Kernels<T>& kernels() {
  static const Kernels<T>& best = kernels<T>(available().back());
  return best;
}
template const Kernels<float>& kernels<float>();
template const Kernels<double>& kernels<double>();

}  // namespace limbeck::kernels
