// SPDX-License-Identifier: Apache-2.0
// Reads a shuffled epoch of a Parquet data set through the loader, and the same files from their
// first byte to their last, in turns. Every batch is checked in a first epoch that is not timed:
// each row comes once, with the values that were written.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <limbeck/dataset.hpp>

#include "core/data/loader.hpp"
#include "core/plugin/host_table.hpp"
#include "core/tensor/batch.hpp"
#include "core/tensor/tensor_api.hpp"
#include "plugins/parquet/sample_writer.hpp"
#include "plugins/parquet/video_rows.hpp"

namespace fs = std::filesystem;
using namespace limbeck;

namespace {

struct Settings {
  fs::path folder = fs::temp_directory_path() / "limbeck-data-bench";
  int64_t rows = 256;
  int64_t rows_per_group = 16;
  int64_t rows_per_file = 64;
  int64_t batch = 4;
  int64_t window = 4;
  int64_t rounds = 5;
  std::vector<int64_t> latent = {16, 20, 28, 52};
  bool is_cold = false;
  std::string json;

  int64_t row_bytes() const { return latent[0] * latent[1] * latent[2] * latent[3] * 4; }
};

[[noreturn]] void stop(const std::string& what) {
  std::cerr << "data_bench: " << what << '\n';
  std::exit(1);
}

Settings parse(int argc, char** argv) {
  Settings settings;
  const auto integer = [](const std::string& text) { return std::stoll(text); };
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--cold") {
      settings.is_cold = true;
      continue;
    }
    if (name == "--help" || i + 1 == argc) {
      std::cout << "usage: data_bench [--folder DIR] [--rows N] [--rows-per-group N] [--batch N]\n"
                   "                  [--window N] [--rounds N] [--json FILE] [--cold]\n"
                   "--cold drops the files from the page cache before every round.\n";
      std::exit(name == "--help" ? 0 : 64);
    }
    const std::string value = argv[++i];
    if (name == "--folder") {
      settings.folder = value;
    } else if (name == "--rows") {
      settings.rows = integer(value);
    } else if (name == "--rows-per-group") {
      settings.rows_per_group = integer(value);
    } else if (name == "--batch") {
      settings.batch = integer(value);
    } else if (name == "--window") {
      settings.window = integer(value);
    } else if (name == "--rounds") {
      settings.rounds = integer(value);
    } else if (name == "--json") {
      settings.json = value;
    } else {
      stop("unknown option " + name);
    }
  }
  return settings;
}

// Value i of row k; a few are enough to know a row.
float value_of(int64_t row, int64_t i) { return static_cast<float>(row * 31 + i % 8191); }

void write_rows(const Settings& settings) {
  const int64_t size = settings.row_bytes() / 4;
  std::vector<float> latent(static_cast<size_t>(size)), text(64 * 256, 0.5F);
  parquet_data::SampleWriter writer(
      settings.folder.string(), {settings.rows_per_file, settings.rows_per_group, false, "bench"});
  for (int64_t row = 0; row < settings.rows; ++row) {
    for (int64_t i = 0; i < size; ++i) {
      latent[static_cast<size_t>(i)] = value_of(row, i);
    }
    parquet_data::VideoRow data;
    data.id = std::to_string(row);
    data.caption = "caption " + std::to_string(row);
    data.latent = {settings.latent, latent.data()};
    data.text = {{64, 256}, text.data()};
    writer.add(data);
  }
  writer.finish();
}

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".parquet") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

void drop_from_cache(const std::vector<fs::path>& files) {
  for (const auto& file : files) {
    const int descriptor = ::open(file.c_str(), O_RDONLY);
    ::fsync(descriptor);
    ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    ::close(descriptor);
  }
}

template <class Work>
double seconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Every byte, through one block that stays in the processor's cache.
uint64_t read_sequentially(const std::vector<fs::path>& files) {
  uint64_t sum = 0;
  std::vector<char> block(1 << 20);
  for (const auto& file : files) {
    const int descriptor = ::open(file.c_str(), O_RDONLY);
    ssize_t count = 0;
    while ((count = ::read(descriptor, block.data(), block.size())) > 0) {
      sum += static_cast<uint64_t>(count) + static_cast<uint8_t>(block[0]);
    }
    ::close(descriptor);
  }
  return sum;
}

// Every byte into memory of its own, as whoever uses the values must at least do.
uint64_t read_and_keep(const std::vector<fs::path>& files) {
  uint64_t sum = 0;
  for (const auto& file : files) {
    const auto size = fs::file_size(file);
    const std::unique_ptr<char[]> bytes(new char[size]);  // not filled with zeros first
    const int descriptor = ::open(file.c_str(), O_RDONLY);
    for (size_t done = 0; done < size;) {
      const auto count = ::read(descriptor, bytes.get() + done, size - done);
      if (count <= 0) {
        stop("cannot read " + file.string());
      }
      done += static_cast<size_t>(count);
    }
    ::close(descriptor);
    sum += static_cast<uint8_t>(bytes[size - 1]);
  }
  return sum;
}

// The data set as a registry and a manifest would hold it.
struct DataSet {
  lb_config config;
  Library library;
  Component component;
  DataSpec spec;

  DataSet(const Settings& settings, int64_t workers) {
    config.key = "training.data";
    const auto add = [&](const char* name, auto value) {
      ConfigValue item;
      item.value = std::move(value);
      config.table.push_back({name, std::move(item)});
    };
    add("data_path", settings.folder.string());
    add("data_paths", ConfigValue::List{});
    add("mix", std::string("repeat"));
    add("sample_type", std::string("t2v"));
    add("num_latent_t", int64_t{0});
    // Room for the row groups of one window and the next one, not for the whole set.
    const auto group_bytes = settings.rows_per_group * (settings.row_bytes() + 66'000);
    add("cache_mb", (settings.window + 1) * group_bytes / (1 << 20) + 1);
    component.table = lb::dataset<parquet_data::VideoRows>("parquet", "Bench.");
    component.library = &library;
    spec.dataset.key = "training.data";
    spec.dataset.component = &component;
    spec.dataset.config = std::shared_ptr<const lb_config>(&config, [](const lb_config*) {});
    spec.workers = workers;
    spec.window = settings.window;
  }
};

// One epoch; `check` sees every batch.
template <class Check>
int64_t read_shuffled(Loader& loader, const Settings& settings, const Check& check) {
  int64_t rows = 0;
  for (int64_t i = 0; i < settings.rows / settings.batch; ++i) {
    const auto batch = loader.next();
    rows += batch->tensor("raw_latents").size(0);
    check(*batch);
  }
  return rows;
}

void verify(Loader& loader, const Settings& settings) {
  std::vector<int> seen(static_cast<size_t>(settings.rows), 0);
  read_shuffled(loader, settings, [&](const lb_batch& batch) {
    const auto row = batch.tensor("row");
    const auto latents = batch.tensor("raw_latents").flatten(1);
    for (int64_t i = 0; i < row.size(0); ++i) {
      const auto k = row[i].item<int64_t>();
      ++seen[static_cast<size_t>(k)];
      const auto* values = latents[i].const_data_ptr<float>();
      for (int64_t at = 0; at < latents.size(1); at += 97) {
        if (values[at] != value_of(k, at)) {
          stop("row " + std::to_string(k) + " has other values than were written");
        }
      }
    }
  });
  for (const int count : seen) {
    if (count != 1) {
      stop("an epoch does not visit every row once");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto settings = parse(argc, argv);
  at::set_num_threads(1);
  provide("limbeck.tensor/1", &tensor_api());
  provide("limbeck.dispatch/1", &dispatch_api());
  provide("limbeck.batch/1", &batch_api());
  if (lb::bind(&host_table()) != nullptr) {
    stop("the SDK cannot be bound");
  }
  if (fs::exists(settings.folder)) {
    stop(settings.folder.string() + " exists already");
  }
  write_rows(settings);
  const auto files = files_of(settings.folder);
  uint64_t bytes = 0;
  for (const auto& file : files) {
    bytes += fs::file_size(file);
  }
  const double megabytes = static_cast<double>(bytes) / 1e6;
  std::cout << "data: " << settings.rows << " rows, " << files.size() << " files, " << megabytes
            << " MB, groups of " << settings.rows_per_group << " rows, window " << settings.window
            << ", batches of " << settings.batch
            << (settings.is_cold ? ", cold" : ", in the page cache") << '\n';

  std::string json = "{\"megabytes\": " + std::to_string(megabytes) + ", \"results\": [";
  for (const int64_t workers : {0, 1, 2}) {
    const DataSet set(settings, workers);
    Loader loader(set.spec, {"raw_latents", "context", "caption"}, {}, 7, settings.batch, {});
    verify(loader, settings);
    std::vector<double> shuffled, sequential, kept;
    const auto time = [&](std::vector<double>& times, const auto& work) {
      if (settings.is_cold) {
        drop_from_cache(files);
      }
      times.push_back(seconds(work));
    };
    for (int64_t round = 0; round < settings.rounds; ++round) {
      time(sequential, [&] { read_sequentially(files); });
      time(kept, [&] { read_and_keep(files); });
      time(shuffled, [&] { read_shuffled(loader, settings, [](const lb_batch&) {}); });
    }
    const auto rate = [&](const std::vector<double>& times) {
      return megabytes / *std::min_element(times.begin(), times.end());
    };
    std::cout << "workers " << workers << ": shuffled batches " << rate(shuffled)
              << " MB/s; sequential read " << rate(sequential) << " MB/s, ratio "
              << rate(shuffled) / rate(sequential) << "; sequential read into memory " << rate(kept)
              << " MB/s, ratio " << rate(shuffled) / rate(kept) << '\n';
    json += std::string(workers == 0 ? "" : ", ") + "{\"workers\": " + std::to_string(workers) +
            ", \"shuffled_mb_s\": " + std::to_string(rate(shuffled)) +
            ", \"sequential_mb_s\": " + std::to_string(rate(sequential)) +
            ", \"kept_mb_s\": " + std::to_string(rate(kept)) + "}";
  }
  json += "]}\n";
  if (!settings.json.empty()) {
    std::ofstream(settings.json) << json;
  }
  fs::remove_all(settings.folder);
  return 0;
}
