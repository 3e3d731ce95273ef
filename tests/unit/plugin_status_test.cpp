// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/status.hpp"

#include <new>
#include <stdexcept>

#include <doctest/doctest.h>

using limbeck::Error;
using limbeck::Fault;

namespace {

Error error_of(lb_status* status, const std::string& frame = "") {
  try {
    limbeck::check(status, frame);
  } catch (const Error& error) {
    return error;
  }
  throw std::logic_error("no error was thrown");
}

}  // namespace

TEST_CASE("status: an error that goes through a plugin comes back whole") {
  const Error error = Error(Fault::kData, "no such file", "look again").with("while opening");

  lb_status* status = limbeck::to_status(error);
  limbeck::add_frame(status, "while the plugin asked");
  const Error back = error_of(status, "while running step 3");

  CHECK(back.fault() == Fault::kData);
  CHECK(back.message() == "no such file");
  CHECK(back.hint() == "look again");
  CHECK(back.frames() == std::vector<std::string>{"while opening", "while the plugin asked",
                                                  "while running step 3"});
}

TEST_CASE("status: a call of a plugin that throws is an error with its frame, made only then") {
  int frames = 0;
  const auto frame = [&]() -> std::string {
    ++frames;
    return "in losses[0] 'x'";
  };
  limbeck::call_plugin([]() -> lb_status* { return nullptr; }, frame);
  CHECK(frames == 0);
  CHECK_THROWS_WITH_AS(
      limbeck::call_plugin([]() -> lb_status* { throw std::runtime_error("sunk"); }, frame),
      doctest::Contains("in losses[0] 'x'"), limbeck::Error);
  CHECK_THROWS_WITH_AS(
      limbeck::call_plugin([] { return limbeck::make_status(LB_INVALID_ARGUMENT, "refused"); },
                           frame),
      doctest::Contains("in losses[0] 'x'"), limbeck::Error);
  CHECK(frames == 2);
}

TEST_CASE("status: success throws nothing") {
  CHECK_NOTHROW(limbeck::check(nullptr, "while doing nothing"));
  CHECK(limbeck::guard([] {}) == nullptr);
}

TEST_CASE("status: the code of a plugin's own error decides the fault") {
  const auto fault = [](lb_code code) {
    return error_of(limbeck::make_status(code, "text")).fault();
  };

  CHECK(fault(LB_CANCELLED) == Fault::kCancelled);
  CHECK(fault(LB_INVALID_ARGUMENT) == Fault::kManifest);
  CHECK(fault(LB_NOT_FOUND) == Fault::kData);
  CHECK(fault(LB_DATA_LOSS) == Fault::kData);
  CHECK(fault(LB_DEVICE_OOM) == Fault::kMemory);
  CHECK(fault(LB_HOST_OOM) == Fault::kMemory);
  CHECK(fault(LB_NONFINITE) == Fault::kNumeric);
  CHECK(fault(LB_INTERNAL) == Fault::kPlugin);
  CHECK(fault(LB_FAILED_PRECONDITION) == Fault::kPlugin);
  CHECK(fault(12345) == Fault::kPlugin);
}

TEST_CASE("status: an I/O error of the host is never LB_UNAVAILABLE, which means to ask later") {
  lb_status* status = limbeck::to_status(Error(Fault::kData, "disk full"));

  CHECK(status->code == LB_DATA_LOSS);

  limbeck::drop_status(status);
}

TEST_CASE("status: no exception leaves a guarded body") {
  const auto code = [](auto body) {
    lb_status* status = limbeck::guard(body);
    const lb_code result = status->code;
    limbeck::drop_status(status);
    return result;
  };

  CHECK(code([] { throw Error(Fault::kManifest, "x"); }) == LB_INVALID_ARGUMENT);
  CHECK(code([] { throw std::runtime_error("x"); }) == LB_INTERNAL);
  CHECK(code([] { throw std::bad_alloc(); }) == LB_HOST_OOM);
  CHECK(code([] { throw 7; }) == LB_INTERNAL);
}

TEST_CASE("status: the status for a lack of memory can be used any number of times") {
  const auto fail = [] { return limbeck::guard([] { throw std::bad_alloc(); }); };
  lb_status* first = fail();
  lb_status* second = fail();

  CHECK(first == second);
  CHECK(limbeck::add_frame(first, "while full") == first);
  limbeck::drop_status(first);
  const Error error = error_of(second);
  CHECK(error.message() == "out of memory");
  CHECK(error.frames().empty());
  CHECK(error.fault() == Fault::kMemory);
}
