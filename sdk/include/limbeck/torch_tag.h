/* SPDX-License-Identifier: Apache-2.0 */
/* LB_TORCH_TAG: what a plugin that shares C++ objects with libtorch must have in common with the
 * host's libtorch: "torch=2.11.0;cxx11abi=1;debugstl=0;san=none". Plugins load only where the tags
 * are equal. Includes a header of libtorch. */
#ifndef LIMBECK_TORCH_TAG_H
#define LIMBECK_TORCH_TAG_H

#ifdef __cplusplus
#include <cstddef> /* defines the standard library's macros that are looked at below */
#endif

#include <torch/version.h>

#define LB_TAG_TEXT_(x) #x
#define LB_TAG_TEXT(x) LB_TAG_TEXT_(x)

#if defined(_GLIBCXX_USE_CXX11_ABI) && !_GLIBCXX_USE_CXX11_ABI
#define LB_TAG_CXX11 "0"
#else
#define LB_TAG_CXX11 "1"
#endif

#ifdef _GLIBCXX_DEBUG
#define LB_TAG_DEBUG "1"
#else
#define LB_TAG_DEBUG "0"
#endif

#if defined(__SANITIZE_ADDRESS__)
#define LB_TAG_SANITIZER "address"
#elif defined(__SANITIZE_THREAD__)
#define LB_TAG_SANITIZER "thread"
#else
#define LB_TAG_SANITIZER "none"
#endif

#define LB_TORCH_TAG                                                                              \
  "torch=" LB_TAG_TEXT(TORCH_VERSION_MAJOR) "." LB_TAG_TEXT(TORCH_VERSION_MINOR) "." LB_TAG_TEXT( \
      TORCH_VERSION_PATCH) ";cxx11abi=" LB_TAG_CXX11 ";debugstl=" LB_TAG_DEBUG                    \
                           ";san=" LB_TAG_SANITIZER

#endif /* LIMBECK_TORCH_TAG_H */
