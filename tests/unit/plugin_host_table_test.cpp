// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/host_table.hpp"

#include <string>

#include <doctest/doctest.h>

#include "core/plugin/status.hpp"

using limbeck::host_table;

TEST_CASE("host table: has every function of the header") {
  const lb_host& host = host_table();

  CHECK(host.struct_size == sizeof(lb_host));
  CHECK(host.abi_major == LB_ABI_MAJOR);
  CHECK(host.abi_minor == LB_ABI_MINOR);
  CHECK(std::string(host.version) == limbeck::version());
  CHECK(std::string(host.torch_tag).starts_with("torch=2."));
  CHECK(LB_CAN(&host, get_service));
  CHECK(LB_CAN(&host, fail));
  CHECK(LB_CAN(&host, context));
  CHECK(LB_CAN(&host, code));
  CHECK(LB_CAN(&host, message));
  CHECK(LB_CAN(&host, drop));
  CHECK(LB_CAN(&host, log_enabled));
  CHECK(LB_CAN(&host, log));
  CHECK(LB_CAN(&host, progress));
  CHECK(LB_CAN(&host, poll_stop));
}

TEST_CASE("host table: a plugin's error keeps its text, its place and its context") {
  const lb_host& host = host_table();

  lb_status* status = host.fail(&host, LB_NONFINITE, "/far/away/net.cpp", 12, "loss is nan");
  CHECK(host.code(status) == LB_NONFINITE);
  CHECK(std::string(host.message(status)) == "loss is nan");
  CHECK(host.context(&host, status, "net.cpp", 30, "while running block 3") == status);
  const limbeck::Error error = limbeck::to_error(status);

  CHECK(error.frames() ==
        std::vector<std::string>{"at net.cpp:12", "while running block 3 (net.cpp:30)"});
}

TEST_CASE("host table: NULL where a status or a text may be missing does no harm") {
  const lb_host& host = host_table();

  CHECK(host.code(nullptr) == LB_OK);
  CHECK(std::string(host.message(nullptr)).empty());
  host.drop(nullptr);
  CHECK(host.context(&host, nullptr, nullptr, 0, nullptr) == nullptr);
  lb_status* status = host.fail(&host, LB_OK, nullptr, 0, nullptr);
  CHECK(host.code(status) == LB_UNKNOWN);
  host.drop(status);
  host.log(&host, LB_ERROR, nullptr, nullptr, 0, nullptr);
  CHECK(host.get_service(&host, nullptr) == nullptr);
}

TEST_CASE("host table: services are found by id, and the first table of an id stays") {
  const lb_host& host = host_table();
  const int one = 1;
  const int two = 2;

  CHECK(host.get_service(&host, "limbeck.config/1") != nullptr);
  CHECK(host.get_service(&host, "test.service/1") == nullptr);
  limbeck::provide("test.service/1", &one);
  limbeck::provide("test.service/1", &two);

  CHECK(host.get_service(&host, "test.service/1") == &one);
}

TEST_CASE("host table: a request to stop grows and never shrinks") {
  const lb_host& host = host_table();
  CHECK(host.poll_stop(&host) == LB_GO_ON);

  limbeck::request_stop(LB_STOP_NOW);
  limbeck::request_stop(LB_STOP_SOON);

  CHECK(host.poll_stop(&host) == LB_STOP_NOW);
  CHECK(limbeck::stop_requested() == LB_STOP_NOW);
  limbeck::forget_stop();
  CHECK(host.poll_stop(&host) == LB_GO_ON);
}
