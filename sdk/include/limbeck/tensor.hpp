// SPDX-License-Identifier: Apache-2.0
// lb::Tensor: a libtorch tensor without torch headers. Every operation goes through the host's
// dispatcher, so autograd, autocast and profiling apply; it costs about 0.1 µs more than a direct
// call. Semantics (broadcasting, type promotion, views) are those of the ATen operator of that
// name. A wrong shape or type throws StatusError.
//
// All functions here may be called on any thread; one Tensor object is used on one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <limbeck/error.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {

class Tensor;

// A lent list; made from a vector or from braces. Valid for the call it is passed to.
template <class T>
class List {
 public:
  List(const std::vector<T>& items) : data_(items.data()), size_(items.size()) {}
  List(std::initializer_list<T> items) : data_(std::data(items)), size_(items.size()) {}
  List(const T* items, size_t count) : data_(items), size_(count) {}

  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T& operator[](size_t index) const { return data_[index]; }

 private:
  const T* data_;
  size_t size_;
};
using Ints = List<int64_t>;
using Tensors = List<Tensor>;

// The lb_dtype of a C++ type: float, double, int64_t, int32_t, uint8_t.
template <class T>
constexpr lb_dtype dtype_of() {
  if constexpr (std::is_same_v<T, float>) {
    return LB_F32;
  } else if constexpr (std::is_same_v<T, double>) {
    return LB_F64;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return LB_I64;
  } else if constexpr (std::is_same_v<T, int32_t>) {
    return LB_I32;
  } else {
    static_assert(std::is_same_v<T, uint8_t>, "float, double, int64_t, int32_t or uint8_t");
    return LB_U8;
  }
}

// A number as operand: integers stay integers, so that `indices + 1` does not become a float.
class Scalar {
 public:
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Scalar(T value) {
    if constexpr (std::is_integral_v<T>) {
      arg_.kind = LB_ARG_INT;
      arg_.u.i = static_cast<int64_t>(value);
    } else {
      arg_.kind = LB_ARG_FLOAT;
      arg_.u.f = static_cast<double>(value);
    }
  }
  const lb_arg& arg() const { return arg_; }

 private:
  lb_arg arg_{};
};

// A handle with value semantics: copying shares the tensor, it never copies elements. Undefined
// when default-constructed; operations on an undefined tensor are errors.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other)
      : handle_(other.handle_ != nullptr ? services.tensor->retain(other.handle_) : nullptr) {}
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(const Tensor& other) {
    if (this != &other) {
      *this = Tensor(other);
    }
    return *this;
  }
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_ != nullptr) {
      services.tensor->release(handle_);
    }
  }

  // Takes over one reference of the ABI; NULL gives an undefined tensor.
  static Tensor take(lb_tensor* taken) {
    Tensor tensor;
    tensor.handle_ = taken;
    return tensor;
  }
  // Shares a lent handle; NULL gives an undefined tensor.
  static Tensor share(const lb_tensor* lent) {
    return take(lent != nullptr ? services.tensor->retain(lent) : nullptr);
  }
  // A lent array of handles seen as tensors, without touching reference counts. The references
  // live as long as the array; copy a Tensor to keep it.
  static const Tensor* view(lb_tensor* const* lent) {
    return reinterpret_cast<const Tensor*>(lent);
  }
  // The handle, lent: valid as long as this object.
  lb_tensor* raw() const { return handle_; }
  // The handle, handed over; this becomes undefined.
  lb_tensor* release() { return std::exchange(handle_, nullptr); }

  bool defined() const { return handle_ != nullptr; }
  // Everything about it in one call. Throws Error for an undefined tensor.
  lb_tensor_info info() const {
    if (handle_ == nullptr) {
      throw Error(LB_INTERNAL, "an undefined tensor was used");
    }
    lb_tensor_info info{};
    info.struct_size = sizeof(info);
    check(services.tensor->info(handle_, &info));
    return info;
  }
  int64_t dim() const { return info().ndim; }
  // `d` may be negative and counts from the end then.
  int64_t size(int64_t d) const {
    const auto about = info();
    const auto at = d < 0 ? d + about.ndim : d;
    if (at < 0 || at >= about.ndim) {
      throw Error(LB_INVALID_ARGUMENT, "dimension " + std::to_string(d) + " of a tensor with " +
                                           std::to_string(about.ndim) + " dimensions");
    }
    return about.sizes[at];
  }
  std::vector<int64_t> sizes() const {
    const auto about = info();
    return {about.sizes, about.sizes + about.ndim};
  }
  int64_t numel() const {
    int64_t count = 1;
    const auto about = info();
    for (uint32_t d = 0; d < about.ndim; ++d) {
      count *= about.sizes[d];
    }
    return count;
  }
  lb_dtype dtype() const { return info().dtype; }
  bool requires_grad() const { return info().requires_grad != 0; }
  // "[2, 4, 8]", for messages.
  std::string shape() const {
    std::string text = "[";
    const auto about = info();
    for (uint32_t d = 0; d < about.ndim; ++d) {
      text += (d == 0 ? "" : ", ") + std::to_string(about.sizes[d]);
    }
    return text + "]";
  }

  // The value of a tensor with one element. Waits for the device.
  double item() const {
    if (numel() != 1) {
      throw Error(LB_INVALID_ARGUMENT, "item() of a tensor of shape " + shape());
    }
    double value = 0;
    check(services.tensor->read(handle_, LB_F64, &value, sizeof(value)));
    return value;
  }
  // All elements in row-major order, converted to T. Waits for the device.
  template <class T>
  std::vector<T> to_vector() const {
    std::vector<T> values(static_cast<size_t>(numel()));
    check(services.tensor->read(handle_, dtype_of<T>(), values.data(), values.size() * sizeof(T)));
    return values;
  }

  // Shape. -1 stands for the size that follows from the others.
  Tensor view(Ints sizes) const;
  Tensor reshape(Ints sizes) const;
  Tensor expand(Ints sizes) const;
  Tensor permute(Ints order) const;
  Tensor transpose(int64_t a, int64_t b) const;
  Tensor flatten(int64_t from = 0, int64_t to = -1) const;
  Tensor unflatten(int64_t dim, Ints sizes) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor squeeze(int64_t dim) const;
  Tensor contiguous() const;

  // Parts. narrow, select, chunk and unbind are views.
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor select(int64_t dim, int64_t index) const;
  Tensor index_select(int64_t dim, const Tensor& index) const;
  Tensor gather(int64_t dim, const Tensor& index) const;
  Tensor flip(Ints dims) const;
  Tensor roll(int64_t shift, int64_t dim) const;
  Tensor repeat_interleave(int64_t times, int64_t dim) const;
  // At most `count` pieces of equal size, the last may be shorter.
  std::vector<Tensor> chunk(int64_t count, int64_t dim) const;
  std::vector<Tensor> unbind(int64_t dim) const;

  // Without history; shares the elements.
  Tensor detach() const;
  // A copy of the elements, with history.
  Tensor clone() const;
  // This tensor itself when it already has the type.
  Tensor to(lb_dtype dtype) const;
  // On the given place; itself when it is there already.
  Tensor to_place(lb_place place) const;

  Tensor exp() const;
  Tensor log() const;
  Tensor sqrt() const;
  Tensor rsqrt() const;
  Tensor square() const;
  Tensor pow(double exponent) const;
  Tensor abs() const;
  Tensor sign() const;
  Tensor sin() const;
  Tensor cos() const;
  Tensor tanh() const;
  Tensor sigmoid() const;
  Tensor round() const;
  Tensor floor() const;
  Tensor clamp(Scalar low, Scalar high) const;
  Tensor isfinite() const;
  Tensor logical_not() const;

  // Reductions over everything, or over `dims`.
  Tensor sum() const;
  Tensor sum(Ints dims, bool keep = false) const;
  Tensor mean() const;
  Tensor mean(Ints dims, bool keep = false) const;
  Tensor max() const;
  Tensor min() const;
  Tensor all() const;
  Tensor any() const;
  Tensor argmax(int64_t dim) const;
  Tensor cumsum(int64_t dim) const;

  // Comparisons give LB_MASK.
  Tensor le(const Tensor& other) const;
  Tensor lt(const Tensor& other) const;
  Tensor ge(const Tensor& other) const;
  Tensor gt(const Tensor& other) const;
  Tensor eq(const Tensor& other) const;
  Tensor ne(const Tensor& other) const;
  Tensor le(Scalar other) const;
  Tensor lt(Scalar other) const;
  Tensor ge(Scalar other) const;
  Tensor gt(Scalar other) const;
  Tensor eq(Scalar other) const;
  Tensor ne(Scalar other) const;

 private:
  lb_tensor* handle_ = nullptr;
};
static_assert(sizeof(Tensor) == sizeof(lb_tensor*) && std::is_standard_layout_v<Tensor>,
              "Tensor::view relies on it");

// One argument of an operator; lent for the call. Implicit, so that call() reads like a call.
class Arg {
 public:
  Arg() = default;  // absent: the operator's default, or an absent optional
  Arg(std::nullptr_t) {}
  Arg(const Tensor& tensor) {
    if (tensor.defined()) {
      arg_.kind = LB_ARG_TENSOR;
      arg_.u.tensor = tensor.raw();
    }
  }
  Arg(Tensors tensors) {
    arg_.kind = LB_ARG_TENSORS;
    arg_.count = static_cast<uint32_t>(tensors.size());
    arg_.u.tensors = reinterpret_cast<lb_tensor* const*>(tensors.data());
  }
  Arg(const std::vector<Tensor>& tensors) : Arg(Tensors(tensors)) {}
  Arg(Ints ints) {
    arg_.kind = LB_ARG_INTS;
    arg_.count = static_cast<uint32_t>(ints.size());
    arg_.u.ints = ints.data();
  }
  Arg(const std::vector<int64_t>& ints) : Arg(Ints(ints)) {}
  Arg(List<double> floats) {
    arg_.kind = LB_ARG_FLOATS;
    arg_.count = static_cast<uint32_t>(floats.size());
    arg_.u.floats = floats.data();
  }
  Arg(const Scalar& number) : arg_(number.arg()) {}
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Arg(T number) : Arg(Scalar(number)) {
    if constexpr (std::is_same_v<T, bool>) {
      arg_.kind = LB_ARG_BOOL;
    }
  }
  Arg(const char* text) {
    arg_.kind = LB_ARG_STRING;
    arg_.u.string = text;
  }
  static Arg dtype(lb_dtype dtype) { return number(LB_ARG_DTYPE, dtype); }
  static Arg place(lb_place place) { return number(LB_ARG_PLACE, place); }

  const lb_arg& raw() const { return arg_; }

 private:
  static Arg number(lb_arg_kind kind, int64_t value) {
    Arg arg;
    arg.arg_.kind = kind;
    arg.arg_.u.i = value;
    return arg;
  }
  lb_arg arg_{};
};
static_assert(sizeof(Arg) == sizeof(lb_arg) && std::is_standard_layout_v<Arg>,
              "lists of Arg are passed as lists of lb_arg");

// A dispatcher operator. Looking one up takes a lock and a hash: keep it in a static.
class Op {
 public:
  // Throws StatusError(LB_NOT_FOUND) when libtorch has no such operator.
  explicit Op(const char* name, const char* overload = "") {
    check(services.dispatch->find(name, overload, &op_));
  }
  // Calls an operator that returns one tensor. `args` are positional, in the order of its schema.
  Tensor operator()(std::initializer_list<Arg> args) const {
    lb_arg out{};
    call(args, &out, 1);
    return Tensor::take(out.u.tensor);
  }
  // Calls one that returns `count` tensors, as a tuple or as a list.
  std::vector<Tensor> many(std::initializer_list<Arg> args, size_t count) const {
    std::vector<lb_arg> outs(count);
    call(args, outs.data(), count);
    std::vector<Tensor> tensors;
    tensors.reserve(count);
    for (const auto& out : outs) {
      tensors.push_back(Tensor::take(out.kind == LB_ARG_TENSOR ? out.u.tensor : nullptr));
    }
    return tensors;
  }

 private:
  void call(std::initializer_list<Arg> args, lb_arg* out, size_t n_out) const {
    check(services.dispatch->call(op_, reinterpret_cast<const lb_arg*>(args.begin()),
                                  static_cast<uint32_t>(args.size()), out,
                                  static_cast<uint32_t>(n_out)));
  }
  const lb_op* op_ = nullptr;
};

// Any operator that returns one tensor, by name: call("aten::erf", "", {x}). Looks it up each time;
// use a static Op where that matters.
inline Tensor call(const char* name, const char* overload, std::initializer_list<Arg> args) {
  return Op(name, overload)(args);
}

// ---- Arithmetic, with broadcasting and type promotion

inline Tensor operator+(const Tensor& a, const Tensor& b) {
  static const Op op("aten::add", "Tensor");
  return op({a, b});
}
inline Tensor operator+(const Tensor& a, Scalar b) {
  static const Op op("aten::add", "Scalar");
  return op({a, b});
}
inline Tensor operator+(Scalar a, const Tensor& b) { return b + a; }
inline Tensor operator-(const Tensor& a, const Tensor& b) {
  static const Op op("aten::sub", "Tensor");
  return op({a, b});
}
inline Tensor operator-(const Tensor& a, Scalar b) {
  static const Op op("aten::sub", "Scalar");
  return op({a, b});
}
inline Tensor operator-(Scalar a, const Tensor& b) {
  static const Op op("aten::rsub", "Scalar");
  return op({b, a});
}
inline Tensor operator-(const Tensor& a) {
  static const Op op("aten::neg");
  return op({a});
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  static const Op op("aten::mul", "Tensor");
  return op({a, b});
}
inline Tensor operator*(const Tensor& a, Scalar b) {
  static const Op op("aten::mul", "Scalar");
  return op({a, b});
}
inline Tensor operator*(Scalar a, const Tensor& b) { return b * a; }
inline Tensor operator/(const Tensor& a, const Tensor& b) {
  static const Op op("aten::div", "Tensor");
  return op({a, b});
}
inline Tensor operator/(const Tensor& a, Scalar b) {
  static const Op op("aten::div", "Scalar");
  return op({a, b});
}
inline Tensor operator/(Scalar a, const Tensor& b) {
  static const Op op("aten::reciprocal");
  return op({b}) * a;
}
// a + scale * b in one operation.
inline Tensor add_scaled(const Tensor& a, const Tensor& b, Scalar scale) {
  static const Op op("aten::add", "Tensor");
  return op({a, b, scale});
}
// a + scale * b * c in one operation; a, b and c have one type.
inline Tensor addcmul(const Tensor& a, const Tensor& b, const Tensor& c, Scalar scale = 1) {
  static const Op op("aten::addcmul");
  return op({a, b, c, scale});
}
inline Tensor maximum(const Tensor& a, const Tensor& b) {
  static const Op op("aten::maximum");
  return op({a, b});
}
inline Tensor minimum(const Tensor& a, const Tensor& b) {
  static const Op op("aten::minimum");
  return op({a, b});
}
inline Tensor logical_and(const Tensor& a, const Tensor& b) {
  static const Op op("aten::logical_and");
  return op({a, b});
}

// ---- Members

inline Tensor Tensor::view(Ints sizes) const {
  static const Op op("aten::view");
  return op({*this, sizes});
}
inline Tensor Tensor::reshape(Ints sizes) const {
  static const Op op("aten::reshape");
  return op({*this, sizes});
}
inline Tensor Tensor::expand(Ints sizes) const {
  static const Op op("aten::expand");
  return op({*this, sizes});
}
inline Tensor Tensor::permute(Ints order) const {
  static const Op op("aten::permute");
  return op({*this, order});
}
inline Tensor Tensor::transpose(int64_t a, int64_t b) const {
  static const Op op("aten::transpose", "int");
  return op({*this, a, b});
}
inline Tensor Tensor::flatten(int64_t from, int64_t to) const {
  static const Op op("aten::flatten", "using_ints");
  return op({*this, from, to});
}
inline Tensor Tensor::unflatten(int64_t dim, Ints sizes) const {
  static const Op op("aten::unflatten", "int");
  return op({*this, dim, sizes});
}
inline Tensor Tensor::unsqueeze(int64_t dim) const {
  static const Op op("aten::unsqueeze");
  return op({*this, dim});
}
inline Tensor Tensor::squeeze(int64_t dim) const {
  static const Op op("aten::squeeze", "dim");
  return op({*this, dim});
}
inline Tensor Tensor::contiguous() const {
  static const Op op("aten::contiguous");
  return op({*this});
}
inline Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const {
  static const Op op("aten::narrow");
  return op({*this, dim, start, length});
}
inline Tensor Tensor::select(int64_t dim, int64_t index) const {
  static const Op op("aten::select", "int");
  return op({*this, dim, index});
}
inline Tensor Tensor::index_select(int64_t dim, const Tensor& index) const {
  static const Op op("aten::index_select");
  return op({*this, dim, index});
}
inline Tensor Tensor::gather(int64_t dim, const Tensor& index) const {
  static const Op op("aten::gather");
  return op({*this, dim, index});
}
inline Tensor Tensor::flip(Ints dims) const {
  static const Op op("aten::flip");
  return op({*this, dims});
}
inline Tensor Tensor::roll(int64_t shift, int64_t dim) const {
  static const Op op("aten::roll");
  return op({*this, Ints{shift}, Ints{dim}});
}
inline Tensor Tensor::repeat_interleave(int64_t times, int64_t dim) const {
  static const Op op("aten::repeat_interleave", "self_int");
  return op({*this, times, dim});
}
inline std::vector<Tensor> Tensor::chunk(int64_t count, int64_t dim) const {
  static const Op op("aten::split", "Tensor");
  const auto length = size(dim);
  if (count < 1) {
    throw Error(LB_INVALID_ARGUMENT, "chunk() into " + std::to_string(count) + " pieces");
  }
  const auto piece = length == 0 ? 1 : (length + count - 1) / count;
  const auto pieces = length == 0 ? 1 : (length + piece - 1) / piece;
  return op.many({*this, piece, dim}, static_cast<size_t>(pieces));
}
inline std::vector<Tensor> Tensor::unbind(int64_t dim) const {
  static const Op op("aten::unbind", "int");
  return op.many({*this, dim}, static_cast<size_t>(size(dim)));
}
inline Tensor Tensor::detach() const {
  static const Op op("aten::detach");
  return op({*this});
}
inline Tensor Tensor::clone() const {
  static const Op op("aten::clone");
  return op({*this});
}
inline Tensor Tensor::to(lb_dtype wanted) const {
  static const Op op("aten::to", "dtype");
  return dtype() == wanted ? *this : op({*this, Arg::dtype(wanted)});
}
inline Tensor Tensor::to_place(lb_place place) const {
  static const Op op("aten::to", "dtype_layout");
  return op({*this, nullptr, nullptr, Arg::place(place)});
}
inline Tensor Tensor::exp() const {
  static const Op op("aten::exp");
  return op({*this});
}
inline Tensor Tensor::log() const {
  static const Op op("aten::log");
  return op({*this});
}
inline Tensor Tensor::sqrt() const {
  static const Op op("aten::sqrt");
  return op({*this});
}
inline Tensor Tensor::rsqrt() const {
  static const Op op("aten::rsqrt");
  return op({*this});
}
inline Tensor Tensor::square() const {
  static const Op op("aten::square");
  return op({*this});
}
inline Tensor Tensor::pow(double exponent) const {
  static const Op op("aten::pow", "Tensor_Scalar");
  return op({*this, exponent});
}
inline Tensor Tensor::abs() const {
  static const Op op("aten::abs");
  return op({*this});
}
inline Tensor Tensor::sign() const {
  static const Op op("aten::sign");
  return op({*this});
}
inline Tensor Tensor::sin() const {
  static const Op op("aten::sin");
  return op({*this});
}
inline Tensor Tensor::cos() const {
  static const Op op("aten::cos");
  return op({*this});
}
inline Tensor Tensor::tanh() const {
  static const Op op("aten::tanh");
  return op({*this});
}
inline Tensor Tensor::sigmoid() const {
  static const Op op("aten::sigmoid");
  return op({*this});
}
inline Tensor Tensor::round() const {
  static const Op op("aten::round");
  return op({*this});
}
inline Tensor Tensor::floor() const {
  static const Op op("aten::floor");
  return op({*this});
}
inline Tensor Tensor::clamp(Scalar low, Scalar high) const {
  static const Op op("aten::clamp");
  return op({*this, low, high});
}
inline Tensor Tensor::isfinite() const {
  static const Op op("aten::isfinite");
  return op({*this});
}
inline Tensor Tensor::logical_not() const {
  static const Op op("aten::logical_not");
  return op({*this});
}
inline Tensor Tensor::sum() const {
  static const Op op("aten::sum");
  return op({*this});
}
inline Tensor Tensor::sum(Ints dims, bool keep) const {
  static const Op op("aten::sum", "dim_IntList");
  return op({*this, dims, keep});
}
inline Tensor Tensor::mean() const {
  static const Op op("aten::mean");
  return op({*this});
}
inline Tensor Tensor::mean(Ints dims, bool keep) const {
  static const Op op("aten::mean", "dim");
  return op({*this, dims, keep});
}
inline Tensor Tensor::max() const {
  static const Op op("aten::max");
  return op({*this});
}
inline Tensor Tensor::min() const {
  static const Op op("aten::min");
  return op({*this});
}
inline Tensor Tensor::all() const {
  static const Op op("aten::all");
  return op({*this});
}
inline Tensor Tensor::any() const {
  static const Op op("aten::any");
  return op({*this});
}
inline Tensor Tensor::argmax(int64_t dim) const {
  static const Op op("aten::argmax");
  return op({*this, dim});
}
inline Tensor Tensor::cumsum(int64_t dim) const {
  static const Op op("aten::cumsum");
  return op({*this, dim});
}
inline Tensor Tensor::le(const Tensor& other) const {
  static const Op op("aten::le", "Tensor");
  return op({*this, other});
}
inline Tensor Tensor::lt(const Tensor& other) const {
  static const Op op("aten::lt", "Tensor");
  return op({*this, other});
}
inline Tensor Tensor::ge(const Tensor& other) const {
  static const Op op("aten::ge", "Tensor");
  return op({*this, other});
}
inline Tensor Tensor::gt(const Tensor& other) const {
  static const Op op("aten::gt", "Tensor");
  return op({*this, other});
}
inline Tensor Tensor::eq(const Tensor& other) const {
  static const Op op("aten::eq", "Tensor");
  return op({*this, other});
}
inline Tensor Tensor::ne(const Tensor& other) const {
  static const Op op("aten::ne", "Tensor");
  return op({*this, other});
}
inline Tensor Tensor::le(Scalar other) const {
  static const Op op("aten::le", "Scalar");
  return op({*this, other});
}
inline Tensor Tensor::lt(Scalar other) const {
  static const Op op("aten::lt", "Scalar");
  return op({*this, other});
}
inline Tensor Tensor::ge(Scalar other) const {
  static const Op op("aten::ge", "Scalar");
  return op({*this, other});
}
inline Tensor Tensor::gt(Scalar other) const {
  static const Op op("aten::gt", "Scalar");
  return op({*this, other});
}
inline Tensor Tensor::eq(Scalar other) const {
  static const Op op("aten::eq", "Scalar");
  return op({*this, other});
}
inline Tensor Tensor::ne(Scalar other) const {
  static const Op op("aten::ne", "Scalar");
  return op({*this, other});
}

// ---- New tensors, on the run's device unless `place` says otherwise

// Copies `values` (row-major, as many as `sizes` says) into a new tensor of T's type.
template <class T>
Tensor tensor(const std::vector<T>& values, Ints sizes, lb_place place = LB_DEVICE) {
  uint64_t count = 1;
  for (const auto size : sizes) {
    count *= static_cast<uint64_t>(size);
  }
  if (count != values.size()) {
    throw Error(LB_INVALID_ARGUMENT, "a tensor of " + std::to_string(count) +
                                         " elements made from " + std::to_string(values.size()) +
                                         " values");
  }
  lb_tensor* out = nullptr;
  check(services.tensor->create(dtype_of<T>(), sizes.data(), static_cast<uint32_t>(sizes.size()),
                                values.data(), place, &out));
  return Tensor::take(out);
}
// Copies raw elements: `data` holds as many bytes as `dtype` and `sizes` say; nullptr leaves the
// elements uninitialised.
inline Tensor tensor_from(const void* data,
                          lb_dtype dtype,
                          Ints sizes,
                          lb_place place = LB_DEVICE) {
  lb_tensor* out = nullptr;
  check(services.tensor->create(dtype, sizes.data(), static_cast<uint32_t>(sizes.size()), data,
                                place, &out));
  return Tensor::take(out);
}
inline Tensor full(Ints sizes, Scalar value, lb_dtype dtype = LB_F32, lb_place place = LB_DEVICE) {
  static const Op op("aten::full");
  return op({sizes, value, Arg::dtype(dtype), nullptr, Arg::place(place)});
}
inline Tensor zeros(Ints sizes, lb_dtype dtype = LB_F32, lb_place place = LB_DEVICE) {
  static const Op op("aten::zeros");
  return op({sizes, Arg::dtype(dtype), nullptr, Arg::place(place)});
}
inline Tensor ones(Ints sizes, lb_dtype dtype = LB_F32, lb_place place = LB_DEVICE) {
  static const Op op("aten::ones");
  return op({sizes, Arg::dtype(dtype), nullptr, Arg::place(place)});
}
// 0, 1, ..., n - 1.
inline Tensor arange(int64_t n, lb_dtype dtype = LB_F32, lb_place place = LB_DEVICE) {
  static const Op op("aten::arange");
  return op({n, Arg::dtype(dtype), nullptr, Arg::place(place)});
}
inline Tensor zeros_like(const Tensor& like) {
  static const Op op("aten::zeros_like");
  return op({like});
}
inline Tensor ones_like(const Tensor& like) {
  static const Op op("aten::ones_like");
  return op({like});
}

// ---- Functions

inline Tensor cat(Tensors parts, int64_t dim) {
  static const Op op("aten::cat");
  return op({parts, dim});
}
inline Tensor stack(Tensors parts, int64_t dim) {
  static const Op op("aten::stack");
  return op({parts, dim});
}
inline Tensor matmul(const Tensor& a, const Tensor& b) {
  static const Op op("aten::matmul");
  return op({a, b});
}
// x [.., in], weight [out, in], bias [out] or undefined -> [.., out].
inline Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}) {
  static const Op op("aten::linear");
  return op({x, weight, bias});
}
// x [b, in, h, w], weight [out, in, kh, kw], bias [out] or undefined.
inline Tensor conv2d(const Tensor& x,
                     const Tensor& weight,
                     const Tensor& bias = {},
                     Ints stride = {1, 1},
                     Ints padding = {0, 0}) {
  static const Op op("aten::conv2d");
  return op({x, weight, bias, stride, padding});
}
// Over the last dimensions, which are `width`; biased variance, eps inside the root.
inline Tensor layer_norm(const Tensor& x,
                         Ints width,
                         const Tensor& weight = {},
                         const Tensor& bias = {},
                         double eps = 1e-5) {
  static const Op op("aten::layer_norm");
  return op({x, width, weight, bias, eps, false});
}
// x / sqrt(mean(x^2) + eps) * weight over the last dimensions, which are `width`.
inline Tensor rms_norm(const Tensor& x, Ints width, const Tensor& weight, double eps) {
  static const Op op("aten::rms_norm");
  return op({x, width, weight, eps});
}
inline Tensor relu(const Tensor& x) {
  static const Op op("aten::relu");
  return op({x});
}
inline Tensor silu(const Tensor& x) {
  static const Op op("aten::silu");
  return op({x});
}
// x Phi(x), exact.
inline Tensor gelu(const Tensor& x) {
  static const Op op("aten::gelu");
  return op({x, "none"});
}
// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
inline Tensor gelu_tanh(const Tensor& x) {
  static const Op op("limbeck::gelu_tanh");
  return op({x});
}
inline Tensor softmax(const Tensor& x, int64_t dim) {
  static const Op op("aten::softmax", "int");
  return op({x, dim});
}
inline Tensor log_softmax(const Tensor& x, int64_t dim) {
  static const Op op("aten::log_softmax", "int");
  return op({x, dim});
}
// logits [n, classes], labels LB_I64 [n] -> mean over n.
inline Tensor cross_entropy(const Tensor& logits,
                            const Tensor& labels,
                            double label_smoothing = 0) {
  static const Op op("aten::cross_entropy_loss");
  constexpr int64_t kMeanReduction = 1;
  constexpr int64_t kIgnoreNothing = -100;
  return op({logits, labels, nullptr, kMeanReduction, kIgnoreNothing, label_smoothing});
}
// Mean over all elements of (a - b)^2.
inline Tensor mse_loss(const Tensor& a, const Tensor& b) {
  static const Op op("aten::mse_loss");
  return op({a, b});
}
// Element by element: `a` where `condition` (LB_MASK) holds, else `b`.
inline Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  static const Op op("aten::where", "self");
  return op({condition, a, b});
}

// ---- Autograd

// Turns recording of history off while it lives, on this thread. Prepare hooks and data sets run
// without history anyway.
class NoGrad {
 public:
  NoGrad() : before_(services.tensor->set_grad_mode(0)) {}
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
  ~NoGrad() { services.tensor->set_grad_mode(before_); }

 private:
  int32_t before_;
};

// d(sum outputs . grad_outputs)/d inputs, first order, without touching anybody's gradient.
// An input that no output depends on yields an undefined tensor. An undefined grad_output stands
// for ones of a scalar output.
inline std::vector<Tensor> gradient(Tensors outputs,
                                    Tensors grad_outputs,
                                    Tensors inputs,
                                    bool keep_graph = false) {
  if (outputs.size() != grad_outputs.size()) {
    throw Error(LB_INVALID_ARGUMENT, "gradient() needs one grad_output for each output");
  }
  std::vector<Tensor> grads(inputs.size());
  check(services.tensor->gradient(reinterpret_cast<lb_tensor* const*>(outputs.data()),
                                  reinterpret_cast<lb_tensor* const*>(grad_outputs.data()),
                                  static_cast<uint32_t>(outputs.size()),
                                  reinterpret_cast<lb_tensor* const*>(inputs.data()),
                                  static_cast<uint32_t>(inputs.size()), keep_graph ? 1 : 0,
                                  reinterpret_cast<lb_tensor**>(grads.data())));
  return grads;
}

// A differentiable function of the plugin's own. `forward` runs once, without history; `backward`
// gets the inputs and the gradients of the outputs (undefined: zero) and returns those of the
// inputs (undefined: zero). Both may run on an autograd thread and must not rely on thread-local
// state.
struct Differentiable {
  std::function<std::vector<Tensor>(const std::vector<Tensor>& in)> forward;
  std::function<std::vector<Tensor>(const std::vector<Tensor>& in,
                                    const std::vector<Tensor>& grad_out)>
      backward;
};
inline std::vector<Tensor> apply(Differentiable function, Tensors inputs, size_t n_out) {
  static const auto lent = [](lb_tensor* const* items, uint32_t count) {
    const auto* first = Tensor::view(items);
    return std::vector<Tensor>(first, first + count);
  };
  static const auto give = [](std::vector<Tensor> results, lb_tensor** out, uint32_t count) {
    if (results.size() != count) {
      throw Error(LB_INTERNAL, "a differentiable function returned " +
                                   std::to_string(results.size()) + " tensors instead of " +
                                   std::to_string(count));
    }
    for (uint32_t i = 0; i < count; ++i) {
      out[i] = results[i].release();
    }
  };
  lb_grad_fn fn{};
  fn.struct_size = sizeof(fn);
  fn.self = new Differentiable(std::move(function));
  fn.forward = [](void* self, lb_tensor* const* in, uint32_t n_in, lb_tensor** out,
                  uint32_t count) noexcept {
    return guard("forward()", nullptr, [&] {
      give(static_cast<Differentiable*>(self)->forward(lent(in, n_in)), out, count);
    });
  };
  fn.backward = [](void* self, lb_tensor* const* in, uint32_t n_in, lb_tensor* const* grad_out,
                   uint32_t count, lb_tensor** grad_in) noexcept {
    return guard("backward()", nullptr, [&] {
      give(static_cast<Differentiable*>(self)->backward(lent(in, n_in), lent(grad_out, count)),
           grad_in, n_in);
    });
  };
  fn.release = [](void* self) noexcept { delete static_cast<Differentiable*>(self); };
  std::vector<Tensor> out(n_out);
  check(services.tensor->apply(
      &fn, reinterpret_cast<lb_tensor* const*>(inputs.data()), static_cast<uint32_t>(inputs.size()),
      reinterpret_cast<lb_tensor**>(out.data()), static_cast<uint32_t>(n_out)));
  return out;
}

}  // namespace v1
}  // namespace lb
