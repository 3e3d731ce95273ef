// SPDX-License-Identifier: Apache-2.0
// The same assertions in C++. The C++ header differs from the C one in `noexcept` only, which this
// file has (it is compiled without LB_HOST_BUILD).
#undef LB_HOST_BUILD
#include "abi_layout_test.c"

#include <type_traits>

#include <doctest/doctest.h>

TEST_CASE(
    "abi: function types are noexcept in plugins, so that an unguarded function does not fit") {
  using Loss = decltype(lb_method_vtable::loss);
  using Throwing = lb_status* (*)(void*, const lb_step*, lb_tensor**);
  using Guarded = lb_status* (*)(void*, const lb_step*, lb_tensor**) noexcept;

  CHECK_FALSE(std::is_convertible_v<Throwing, Loss>);
  CHECK(std::is_convertible_v<Guarded, Loss>);
}
