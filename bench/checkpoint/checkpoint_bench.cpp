// SPDX-License-Identifier: Apache-2.0
// How fast a checkpoint gets to disk, hashes and flush included, beside dd of as many bytes; and
// how fast one is verified and read. What was written is verified before a time is printed.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include <boost/program_options.hpp>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/folders.hpp"
#include "core/checkpoint/write.hpp"
#include "core/dcp/reader.hpp"

using namespace limbeck;

namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

struct Settings {
  int64_t megabytes = 0;
  int64_t tensors = 0;
  int64_t rounds = 0;
  fs::path folder;
  std::string json;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  po::options_description options("scripts/bench checkpoint [options]");
  options.add_options()("help", "this text")(
      "megabytes", po::value(&settings.megabytes)->default_value(1024), "of state")(
      "tensors", po::value(&settings.tensors)->default_value(200), "that share them")(
      "rounds", po::value(&settings.rounds)->default_value(3), "of dd and checkpoint in turn")(
      "folder", po::value(&settings.folder)->default_value("build/bench-checkpoint"),
      "on the disk to measure; must not exist")("json", po::value(&settings.json), "file to write");
  po::variables_map values;
  po::store(po::parse_command_line(argc, argv, options), values);
  if (values.count("help") != 0) {
    std::cout << options;
    std::exit(0);
  }
  po::notify(values);
  if (settings.megabytes < 1 || settings.tensors < 1 || settings.rounds < 1) {
    throw Error(Fault::kUsage, "expected positive numbers");
  }
  return settings;
}

// Numbers that no disk or file system can make small.
Snapshot snapshot_of(const Settings& settings) {
  const int64_t each = settings.megabytes * 1'000'000 / settings.tensors / 4;
  Snapshot snapshot;
  uint64_t state = 1;
  for (int64_t i = 0; i < settings.tensors; ++i) {
    const auto numbers = std::make_shared<std::vector<uint32_t>>(static_cast<size_t>(each));
    for (auto& number : *numbers) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      number = static_cast<uint32_t>(state >> 32);
    }
    SavedTensor tensor;
    tensor.name = cat("state.", i);
    tensor.type = find_dcp_type("float32");
    tensor.sizes = {each};
    tensor.box = {{0}, {each}};
    tensor.data = {numbers, reinterpret_cast<const std::byte*>(numbers->data())};
    snapshot.tensors.push_back(std::move(tensor));
  }
  return snapshot;
}

template <class Work>
double seconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void dd(const fs::path& path, uint64_t bytes) {
  const auto command =
      cat("dd if=/dev/zero of='", path.string(), "' bs=1M count=", (bytes + (1 << 20) - 1) >> 20,
          " conv=fsync status=none");
  if (std::system(command.c_str()) != 0) {
    throw Error(Fault::kData, "dd failed: " + command);
  }
}

void check(const fs::path& checkpoint, const Snapshot& snapshot) {
  verify_checkpoint(checkpoint);
  const DcpReader reader(checkpoint / kDcpFolder);
  for (const auto& tensor : snapshot.tensors) {
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.box.numel()) * tensor.type->bytes);
    reader.read(tensor.name, bytes.data());
    if (std::memcmp(bytes.data(), tensor.data.get(), bytes.size()) != 0) {
      throw Error(Fault::kInternal, cat(tensor.name, " was not written as it is"));
    }
  }
}

void run(const Settings& settings) {
  if (fs::exists(settings.folder)) {
    throw Error(Fault::kUsage, settings.folder.string() + " exists already");
  }
  fs::create_directories(settings.folder);
  const auto snapshot = snapshot_of(settings);
  std::vector<double> plain, written, verified, read;
  uint64_t bytes = 0;
  for (int64_t round = 0; round < settings.rounds; ++round) {
    const auto file = settings.folder / "dd";
    plain.push_back(seconds([&] { dd(file, snapshot.bytes()); }));
    fs::remove(file);
    fs::path checkpoint;
    written.push_back(seconds([&] {
      CheckpointText text;
      text.record.step = round;
      checkpoint = write_checkpoint(settings.folder, snapshot, text);
    }));
    bytes = fs::file_size(checkpoint / kDcpFolder / "__0_0.distcp");
    verified.push_back(seconds([&] { verify_checkpoint(checkpoint); }));
    read.push_back(seconds([&] { check(checkpoint, snapshot); }));
    fs::remove_all(checkpoint);
  }
  fs::remove_all(settings.folder);
  const auto rate = [&](const std::vector<double>& times) {
    return static_cast<double>(bytes) / 1e6 / *std::min_element(times.begin(), times.end());
  };
  std::cout << "checkpoint: " << static_cast<double>(bytes) / 1e6 << " MB in " << settings.tensors
            << " tensors, best of " << settings.rounds << "\nwritten " << rate(written)
            << " MB/s, dd conv=fsync " << rate(plain) << " MB/s, ratio "
            << rate(written) / rate(plain) << "\nverified " << rate(verified)
            << " MB/s, verified and read with checksums " << rate(read) << " MB/s\n";
  for (size_t i = 0; i < plain.size(); ++i) {
    std::cout << "  round " << i + 1 << ": written in " << written[i] << " s, dd in " << plain[i]
              << " s\n";
  }
  if (!settings.json.empty()) {
    std::ofstream(settings.json) << "{\"megabytes\": " << static_cast<double>(bytes) / 1e6
                                 << ", \"written_mb_s\": " << rate(written)
                                 << ", \"dd_mb_s\": " << rate(plain)
                                 << ", \"verified_mb_s\": " << rate(verified)
                                 << ", \"read_mb_s\": " << rate(read) << "}\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "checkpoint_bench: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
