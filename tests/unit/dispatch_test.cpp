// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "core/base/error.hpp"
#include "core/plugin/status.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/tensor_api.hpp"

#include <doctest/doctest.h>

using namespace limbeck;

namespace {

lb_arg tensor_arg(const at::Tensor& tensor) {
  lb_arg arg = {};
  arg.kind = LB_ARG_TENSOR;
  arg.u.tensor = lend(tensor);
  return arg;
}

lb_arg int_arg(int64_t value) {
  lb_arg arg = {};
  arg.kind = LB_ARG_INT;
  arg.u.i = value;
  return arg;
}

lb_arg ints_arg(const std::vector<int64_t>& values) {
  lb_arg arg = {};
  arg.kind = LB_ARG_INTS;
  arg.count = static_cast<uint32_t>(values.size());
  arg.u.ints = values.data();
  return arg;
}

const lb_op* find(const char* name, const char* overload) {
  const lb_op* op = nullptr;
  check(dispatch_api().find(name, overload, &op));
  return op;
}

at::Tensor call(const lb_op* op, const std::vector<lb_arg>& in) {
  lb_arg out = {};
  check(dispatch_api().call(op, in.data(), static_cast<uint32_t>(in.size()), &out, 1));
  REQUIRE(out.kind == LB_ARG_TENSOR);
  return take(out.u.tensor);
}

std::string failure(const lb_op* op, const std::vector<lb_arg>& in) {
  try {
    call(op, in);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("dispatch: an operator records history and takes defaults") {
  const auto x = at::arange(3, at::kFloat).set_requires_grad(true);

  const auto sum = call(find("aten::add", "Tensor"), {tensor_arg(x), tensor_arg(x)});
  sum.sum().backward();

  CHECK(at::equal(sum.detach(), x.detach() * 2));
  CHECK(at::equal(x.grad(), at::full({3}, 2.0F)));
}

TEST_CASE("dispatch: finding an operator twice gives the same one") {
  CHECK(find("aten::mul", "Tensor") == find("aten::mul", "Tensor"));
}

TEST_CASE("dispatch: an unknown operator is an error with its name") {
  const lb_op* op = nullptr;
  auto* status = dispatch_api().find("aten::no_such_thing", "", &op);
  REQUIRE(status != nullptr);
  CHECK(to_error(status).message().find("aten::no_such_thing") != std::string::npos);
  CHECK(op == nullptr);
}

TEST_CASE("dispatch: what an argument is given is checked against the schema") {
  const auto x = at::ones({2, 2});

  CHECK(failure(find("aten::add", "Tensor"), {tensor_arg(x), int_arg(1)}) ==
        "argument 1 'other' of aten::add.Tensor takes Tensor, got an integer");
  CHECK(failure(find("aten::view", ""), {tensor_arg(x), tensor_arg(x)}) ==
        "argument 1 'size' of aten::view takes int[], got a tensor");
  CHECK(failure(find("aten::add", "Tensor"), {tensor_arg(x)}) ==
        "argument 1 'other' of aten::add.Tensor is missing and has no default");
  CHECK(failure(find("aten::neg", ""), {tensor_arg(x), tensor_arg(x)}) ==
        "aten::neg takes 1 arguments, got 2");
}

TEST_CASE("dispatch: shapes that an operator refuses are invalid arguments") {
  const auto x = at::ones({2, 3});
  lb_arg out = {};
  const lb_arg in[] = {tensor_arg(x), tensor_arg(x)};
  auto* status = dispatch_api().call(find("aten::mm", ""), in, 2, &out, 1);

  REQUIRE(status != nullptr);
  CHECK(status->code == LB_INVALID_ARGUMENT);
  CHECK(status->message.find("backtrace") == std::string::npos);
  drop_status(status);
}

TEST_CASE("dispatch: a list that is the only result is spread") {
  const auto x = at::arange(6, at::kFloat);
  lb_arg out[3] = {};
  const lb_arg in[] = {tensor_arg(x), int_arg(3), int_arg(0)};
  check(dispatch_api().call(find("aten::chunk", ""), in, 3, out, 3));

  for (int64_t i = 0; i < 3; ++i) {
    CHECK(at::equal(take(out[i].u.tensor), x.narrow(0, 2 * i, 2)));
  }
}

TEST_CASE("dispatch: lists of tensors and of integers go in") {
  const auto x = at::ones({2});
  const std::vector<lb_tensor*> both = {lend(x), lend(x)};
  lb_arg list = {};
  list.kind = LB_ARG_TENSORS;
  list.count = 2;
  list.u.tensors = both.data();

  CHECK(call(find("aten::cat", ""), {list, int_arg(0)}).numel() == 4);
  const std::vector<int64_t> shape = {2, 1};
  CHECK(call(find("aten::view", ""), {tensor_arg(x), ints_arg(shape)}).dim() == 2);
}

TEST_CASE("tensor service: create, info, read") {
  const float values[] = {1, 2, 3, 4, 5, 6};
  const int64_t sizes[] = {2, 3};
  lb_tensor* handle = nullptr;
  check(tensor_api().create(LB_F32, sizes, 2, values, LB_DEVICE, &handle));

  lb_tensor_info info = {};
  info.struct_size = sizeof(info);
  check(tensor_api().info(handle, &info));
  CHECK(info.ndim == 2);
  CHECK(info.sizes[1] == 3);
  CHECK(info.dtype == LB_F32);
  CHECK(info.requires_grad == 0);

  double doubles[6] = {};
  check(tensor_api().read(handle, LB_F64, doubles, sizeof(doubles)));
  CHECK(doubles[5] == 6.0);
  auto* status = tensor_api().read(handle, LB_F64, doubles, 8);
  CHECK(status != nullptr);
  drop_status(status);
  tensor_api().release(handle);
}

namespace {

struct Square {
  int* released;
};

}  // namespace

TEST_CASE("tensor service: a plugin's own differentiable function") {
  int released = 0;
  auto* self = new Square{&released};
  lb_grad_fn fn = {};
  fn.struct_size = sizeof(fn);
  fn.self = self;
  fn.forward = [](void*, lb_tensor* const* in, uint32_t, lb_tensor** out, uint32_t) -> lb_status* {
    out[0] = give(tensor_of(in[0]).square());
    return nullptr;
  };
  fn.backward = [](void*, lb_tensor* const* in, uint32_t, lb_tensor* const* grad_out, uint32_t,
                   lb_tensor** grad_in) -> lb_status* {
    grad_in[0] = give(tensor_of(in[0]) * 2 * tensor_of(grad_out[0]));
    return nullptr;
  };
  fn.release = [](void* object) {
    auto* square = static_cast<Square*>(object);
    ++*square->released;
    delete square;
  };
  {
    const auto x = at::arange(4, at::kFloat).set_requires_grad(true);
    lb_tensor* in[] = {lend(x)};
    lb_tensor* out = nullptr;
    check(tensor_api().apply(&fn, in, 1, &out, 1));
    take(out).sum().backward();
    CHECK(at::equal(x.grad(), x.detach() * 2));
  }
  CHECK(released == 1);
}

TEST_CASE("tensor service: gradient leaves .grad alone") {
  const auto x = at::ones({3}).set_requires_grad(true);
  const auto y = (x * 3).sum();
  lb_tensor* outputs[] = {lend(y)};
  lb_tensor* inputs[] = {lend(x)};
  lb_tensor* grads[1] = {};
  check(tensor_api().gradient(outputs, nullptr, 1, inputs, 1, 0, grads));

  CHECK(at::equal(take(grads[0]), at::full({3}, 3.0F)));
  CHECK(!x.grad().defined());
}
