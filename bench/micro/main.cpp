// SPDX-License-Identifier: Apache-2.0
// limbeck_bench ops|optimizer|boundary [--sizes LIST] [--threads N] [--json FILE]
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>
#include <torch/version.h>

#include "bench.hpp"
#include "core/ops/kernels/kernels.hpp"

namespace {

using limbeck::bench::Row;

struct Arguments {
  std::string bench;
  std::vector<std::string> sizes = {"quick", "tiny", "small"};
  int threads = 1;
  std::string json;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (++i >= argc) {
        throw std::invalid_argument(word + " needs a value");
      }
      return argv[i];
    };
    if (word == "--sizes") {
      arguments.sizes.clear();
      std::istringstream list(value());
      for (std::string item; std::getline(list, item, ',');) {
        arguments.sizes.push_back(item);
      }
    } else if (word == "--threads") {
      arguments.threads = std::stoi(value());
    } else if (word == "--json") {
      arguments.json = value();
    } else if (arguments.bench.empty() && word[0] != '-') {
      arguments.bench = word;
    } else {
      throw std::invalid_argument("unknown option '" + word + "'");
    }
  }
  return arguments;
}

std::vector<Row> run(const Arguments& arguments) {
  if (arguments.bench == "ops") {
    return limbeck::bench::ops(arguments.sizes);
  }
  if (arguments.bench == "optimizer") {
    return limbeck::bench::optimizer();
  }
  if (arguments.bench == "boundary") {
    return limbeck::bench::boundary();
  }
  throw std::invalid_argument("name a bench: ops, optimizer or boundary");
}

void print(const std::vector<Row>& rows) {
  std::printf("| %-30s | %-22s | %10s | %12s | %6s | %14s |\n", "what", "size", "us", "ATen us",
              "ratio", "rate");
  std::printf("|%s|%s|%s|%s|%s|%s|\n", std::string(32, '-').c_str(), std::string(24, '-').c_str(),
              std::string(12, '-').c_str(), std::string(14, '-').c_str(),
              std::string(8, '-').c_str(), std::string(16, '-').c_str());
  for (const auto& row : rows) {
    char baseline[32] = "";
    char ratio[32] = "";
    char rate[48] = "";
    if (row.baseline_seconds > 0) {
      std::snprintf(baseline, sizeof(baseline), "%.2f", row.baseline_seconds * 1e6);
      std::snprintf(ratio, sizeof(ratio), "%.2f", row.baseline_seconds / row.seconds);
    }
    if (row.rate > 0) {
      std::snprintf(rate, sizeof(rate), "%.1f %s", row.rate, row.unit.c_str());
    }
    std::printf("| %-30s | %-22s | %10.3f | %12s | %6s | %14s |\n", row.name.c_str(),
                row.size.c_str(), row.seconds * 1e6, baseline, ratio, rate);
  }
}

void write(const std::string& path, const Arguments& arguments, const std::vector<Row>& rows) {
  nlohmann::json report = {{"bench", arguments.bench}, {"threads", arguments.threads}};
  for (const auto& row : rows) {
    report["rows"].push_back({{"name", row.name},
                              {"size", row.size},
                              {"seconds", row.seconds},
                              {"baseline_seconds", row.baseline_seconds},
                              {"rate", row.rate},
                              {"unit", row.unit}});
  }
  std::ofstream file(path);
  file << report.dump(1) << '\n';
  if (!file) {
    throw std::runtime_error("cannot write " + path);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const auto arguments = parse(argc, argv);
  at::set_num_threads(arguments.threads);
  const auto rows = run(arguments);
  std::printf("%d thread%s, loops for %s, libtorch %s\n\n", arguments.threads,
              arguments.threads == 1 ? "" : "s",
              limbeck::kernels::name_of(limbeck::kernels::available().back()), TORCH_VERSION);
  print(rows);
  if (!arguments.json.empty()) {
    write(arguments.json, arguments, rows);
  }
  return 0;
} catch (const std::invalid_argument& error) {
  std::fprintf(stderr, "limbeck_bench: %s\n", error.what());
  return 64;
} catch (const std::exception& error) {
  std::fprintf(stderr, "limbeck_bench: %s\n", error.what());
  return 1;
}
