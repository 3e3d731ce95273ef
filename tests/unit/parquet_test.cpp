// SPDX-License-Identifier: Apache-2.0
// Samples written to Parquet files and read back, number formats, caching, and what damaged or
// foreign files are told.
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/writer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <limbeck/error.hpp>

#include "sample_files.hpp"
#include "sample_writer.hpp"
#include "sources.hpp"

#include <doctest/doctest.h>

namespace fs = std::filesystem;
using parquet_data::Columns;
using parquet_data::SampleFiles;
using parquet_data::Values;

namespace {

constexpr int64_t kPlenty = int64_t{1} << 30;

// A folder that is removed at the end of the test.
class Folder {
 public:
  Folder() {
    static int count = 0;
    path_ = fs::temp_directory_path() /
            ("limbeck-parquet-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    fs::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string text() const { return path_.string(); }

 private:
  fs::path path_;
};

float latent_value(int64_t row, size_t i) {
  return static_cast<float>(row) + 0.001F * static_cast<float>(i);
}

// Rows 0 ... count - 1 with latents [2, 1, 2, 3] and text of 1 + row mod 3 tokens of width 4.
void write_rows(const std::string& folder, int64_t count, parquet_data::Layout layout) {
  parquet_data::SampleWriter writer(folder, layout);
  for (int64_t row = 0; row < count; ++row) {
    std::vector<float> latent(12);
    for (size_t i = 0; i < latent.size(); ++i) {
      latent[i] = latent_value(row, i);
    }
    const int64_t tokens = 1 + row % 3;
    const std::vector<float> text(static_cast<size_t>(4 * tokens), -static_cast<float>(row));
    parquet_data::VideoRow data;
    data.id = "sample_" + std::to_string(row);
    data.latent = {{2, 1, 2, 3}, latent.data()};
    data.text = {{tokens, 4}, text.data()};
    data.caption = "caption " + std::to_string(row);
    data.width = 16;
    writer.add(data);
  }
  writer.finish();
}

Columns video_columns() { return {{"vae_latent", "text_embedding"}, {"caption"}, {"id"}}; }

std::vector<std::string> files_of(const std::string& path) {
  return parquet_data::list_files(parquet_data::parse_sources({path})).paths();
}

std::vector<float> floats(const Values& values) {
  int64_t count = 1;
  for (const auto size : values.sizes) {
    count *= size;
  }
  std::vector<float> copy(static_cast<size_t>(count));
  std::memcpy(copy.data(), values.data, copy.size() * sizeof(float));
  return copy;
}

// A file with one tensor column, made by hand.
struct Cell {
  std::string bytes;
  std::vector<int64_t> shape;
  std::string dtype;
};
template <class T>
std::string raw(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
void write_cells(const std::string& path,
                 const std::vector<Cell>& cells,
                 const std::string& prefix = "x_") {
  arrow::BinaryBuilder bytes;
  auto sizes = std::make_shared<arrow::Int64Builder>();
  arrow::ListBuilder shape(arrow::default_memory_pool(), sizes);
  arrow::StringBuilder dtype;
  for (const auto& cell : cells) {
    REQUIRE(bytes.Append(cell.bytes).ok());
    REQUIRE(shape.Append().ok());
    REQUIRE(sizes->AppendValues(cell.shape).ok());
    REQUIRE(dtype.Append(cell.dtype).ok());
  }
  const auto schema = arrow::schema({arrow::field(prefix + "bytes", arrow::binary()),
                                     arrow::field(prefix + "shape", arrow::list(arrow::int64())),
                                     arrow::field(prefix + "dtype", arrow::utf8())});
  const auto table =
      arrow::Table::Make(schema, {*bytes.Finish(), *shape.Finish(), *dtype.Finish()});
  const auto sink = *arrow::io::FileOutputStream::Open(path);
  REQUIRE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), sink, 64).ok());
  REQUIRE(sink->Close().ok());
}
Columns one_tensor() { return {{"x"}, {}, {}}; }

// The message of the error that reading row 0 of a file with this cell gives.
std::string fault_of(const Cell& cell) {
  const Folder folder;
  write_cells(folder / "a.parquet", {{raw<float>({1}), {1}, "float32"}, cell});
  SampleFiles files({folder / "a.parquet"}, one_tensor(), kPlenty);
  CHECK_NOTHROW(files.read(0));
  try {
    files.read(1);
  } catch (const lb::Error& error) {
    CHECK(error.code == LB_DATA_LOSS);
    const std::string message = error.what();
    const auto place = "'" + (folder / "a.parquet") + "', row 1, column ";
    CHECK(message.starts_with(place));
    return message.substr(std::min(place.size(), message.size()));
  }
  return "";
}

}  // namespace

TEST_CASE("rows come back as they were written") {
  const Folder folder;
  write_rows(folder.text(), 10, {4, 3, false, "f"});
  const auto list = files_of(folder.text());
  REQUIRE(list.size() == 3);
  CHECK(list[0].ends_with("/worker_0/data_chunk_0.parquet"));
  SampleFiles files(list, video_columns(), kPlenty);
  CHECK(files.rows() == 10);
  CHECK(files.ends() == std::vector<int64_t>{3, 4, 7, 8, 10});
  CHECK(files.end_of_files(2) == 8);
  REQUIRE(files.shapes(0).size() == 1);
  CHECK(files.shapes(0).at({2, 1, 2, 3}).rows == 10);
  REQUIRE(files.shapes(1).size() == 3);
  CHECK(files.shapes(1).at({3, 4}).rows == 3);
  CHECK(files.shapes(1).at({3, 4}).first_row == 2);
  CHECK(files.place_of(8) == "'" + list[2] + "', row 0");
  for (const int64_t row : {9, 0, 3, 4, 8, 5, 1, 2, 7, 6}) {
    const auto sample = files.read(row);
    CHECK(sample.texts.at(0) == "caption " + std::to_string(row));
    CHECK(sample.optional_texts.at(0) == "sample_" + std::to_string(row));
    CHECK(sample.tensors.at(0).sizes == std::vector<int64_t>{2, 1, 2, 3});
    const auto latent = floats(sample.tensors[0]);
    for (size_t i = 0; i < latent.size(); ++i) {
      CHECK(latent[i] == latent_value(row, i));
      CHECK(latent[i] != latent_value(row + 1, i));
    }
    CHECK(sample.tensors.at(1).sizes == std::vector<int64_t>{1 + row % 3, 4});
    CHECK(floats(sample.tensors[1]).back() == -static_cast<float>(row));
  }
}

TEST_CASE("compressed files hold the same rows") {
  const Folder folder;
  write_rows(folder.text(), 5, {8, 8, true, "f"});
  SampleFiles files(files_of(folder.text()), video_columns(), kPlenty);
  CHECK(floats(files.read(4).tensors[0])[11] == latent_value(4, 11));
}

TEST_CASE("a row group is decoded once while it is in the cache") {
  const Folder folder;
  write_rows(folder.text(), 12, {12, 4, false, "f"});
  SampleFiles cached(files_of(folder.text()), video_columns(), kPlenty);
  for (int64_t row = 0; row < 24; ++row) {
    cached.read((row * 5) % 12);
  }
  CHECK(cached.reads() == 3);
  SampleFiles uncached(files_of(folder.text()), video_columns(), 0);
  for (const int64_t row : {0, 1, 2, 3, 4, 0, 1}) {
    uncached.read(row);
  }
  CHECK(uncached.reads() == 3);
}

TEST_CASE("instances of one data set share what they read") {
  const Folder folder;
  write_rows(folder.text(), 12, {12, 4, false, "f"});
  const auto list = files_of(folder.text());
  SampleFiles first(list, video_columns(), kPlenty), second(list, video_columns(), kPlenty);
  SampleFiles other(list, {{"vae_latent"}, {}, {}}, kPlenty);
  std::vector<std::thread> threads;
  for (auto* files : {&first, &second}) {
    threads.emplace_back([files] {
      for (int64_t row = 0; row < 60; ++row) {
        if (files->read((row * 7) % 12).texts[0] != "caption " + std::to_string((row * 7) % 12)) {
          throw std::runtime_error("another row");
        }
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  CHECK(first.reads() == 3);
  CHECK(second.reads() == 3);
  CHECK(other.reads() == 0);
}

TEST_CASE("the cache holds as many groups as it has room for, and at least one") {
  const Folder folder;
  write_rows(folder.text(), 12, {12, 4, false, "f"});
  const auto list = files_of(folder.text());
  CHECK(SampleFiles(list, video_columns(), 0).kept_groups() == 1);
  // A group has four latents of 48 bytes and some text.
  const auto kept = SampleFiles(list, video_columns(), 3000).kept_groups();
  CHECK(kept >= 3000 / 800);
  CHECK(kept <= 3000 / (4 * 48));
}

TEST_CASE("values outlive the cache") {
  const Folder folder;
  write_rows(folder.text(), 12, {12, 4, false, "f"});
  SampleFiles files(files_of(folder.text()), video_columns(), 0);
  const auto first = files.read(0);
  files.read(5);
  files.read(11);
  CHECK(floats(first.tensors[0])[3] == latent_value(0, 3));
}

TEST_CASE("only the columns asked for are needed") {
  const Folder folder;
  write_cells(folder / "a.parquet", {{raw<float>({1, 2}), {2}, "float32"}}, "vae_latent_");
  SampleFiles files({folder / "a.parquet"}, {{"vae_latent"}, {}, {"id"}}, kPlenty);
  const auto sample = files.read(0);
  CHECK(floats(sample.tensors[0]) == std::vector<float>{1, 2});
  CHECK_FALSE(sample.optional_texts[0].has_value());
}

TEST_CASE("every number format becomes the same floats") {
  const Folder folder;
  write_cells(folder / "a.parquet", {{raw<double>({0.5, -2.25}), {2}, "float64"},
                                     {raw<uint16_t>({0x3800, 0xC080}), {2}, "float16"},
                                     {raw<uint16_t>({0x3F00, 0xC010}), {1, 2}, "bfloat16"},
                                     {raw<float>({0.5F, -2.25F}), {2, 1}, "float32"}});
  SampleFiles files({folder / "a.parquet"}, one_tensor(), kPlenty);
  for (int64_t row = 0; row < 4; ++row) {
    CHECK(floats(files.read(row).tensors[0]) == std::vector<float>{0.5F, -2.25F});
  }
}

TEST_CASE("integers and truth values become the floats they are") {
  const Folder folder;
  write_cells(folder / "a.parquet", {{raw<int8_t>({-3, 127}), {2}, "int8"},
                                     {raw<uint8_t>({3, 255}), {2}, "uint8"},
                                     {raw<int16_t>({-30000, 4}), {2}, "int16"},
                                     {raw<uint16_t>({60000, 4}), {2}, "uint16"},
                                     {raw<int32_t>({-16777216, 1 << 30}), {2}, "int32"},
                                     {raw<uint32_t>({16777216, 3}), {2}, "uint32"},
                                     {raw<int64_t>({INT64_MIN, 5}), {2}, "int64"},
                                     {raw<uint64_t>({uint64_t{1} << 62, 5}), {2}, "uint64"},
                                     {raw<uint8_t>({0, 1}), {2}, "bool"},
                                     {raw<float>({0.25F, 5}), {2}, "torch.float32"}});
  const std::vector<std::vector<float>> expected = {
      {-3, 127},     {3, 255},      {-30000, 4},  {60000, 4}, {-16777216, 0x1p30F},
      {16777216, 3}, {-0x1p63F, 5}, {0x1p62F, 5}, {0, 1},     {0.25F, 5}};
  SampleFiles files({folder / "a.parquet"}, one_tensor(), kPlenty);
  for (size_t row = 0; row < expected.size(); ++row) {
    CHECK(floats(files.read(static_cast<int64_t>(row)).tensors[0]) == expected[row]);
  }
}

TEST_CASE("half precision covers zero, subnormal numbers, the largest one and infinity") {
  const Folder folder;
  write_cells(folder / "a.parquet",
              {{raw<uint16_t>({0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFC00, 0x7E00}),
                {8},
                "float16"}});
  SampleFiles files({folder / "a.parquet"}, one_tensor(), kPlenty);
  const auto values = floats(files.read(0).tensors[0]);
  CHECK(values[0] == 0);
  CHECK((values[1] == 0 && std::signbit(values[1])));
  CHECK(values[2] == 0x1p-24F);
  CHECK(values[3] == -1023 * 0x1p-24F);
  CHECK(values[4] == 0x1p-14F);
  CHECK(values[5] == 65504.0F);
  CHECK(values[6] == -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(values[7]));
}

TEST_CASE("floats at an odd address are read") {
  const Folder folder;
  write_cells(folder / "a.parquet", {{raw<uint16_t>({0x3F00}), {1}, "bfloat16"},
                                     {raw<float>({1.5F, 2.5F}), {2}, "float32"}});
  SampleFiles files({folder / "a.parquet"}, one_tensor(), kPlenty);
  CHECK(floats(files.read(1).tensors[0]) == std::vector<float>{1.5F, 2.5F});
}

TEST_CASE("a damaged row is named with file, row and column") {
  CHECK(fault_of({"", {}, ""}) == "'x_bytes': no data; this sample was stored without it");
  CHECK(fault_of({raw<float>({1, 2}), {3}, "float32"}) ==
        "'x_bytes': 8 bytes, but [3] of float32 needs 3 values of 4");
  CHECK(fault_of({raw<float>({1}) + "x", {1}, "float32"}) ==
        "'x_bytes': 5 bytes, but [1] of float32 needs 1 values of 4");
  CHECK(fault_of({raw<float>({1}), {1}, "complex64"}) ==
        "'x_dtype': 'complex64' is none of float32, float64, float16, bfloat16, int8, int16, "
        "int32, int64, uint8, uint16, uint32, uint64, bool");
  CHECK(fault_of({raw<int32_t>({16777217}), {1}, "int32"}) ==
        "'x_bytes': 16777217 of type int32 does not fit into a 32-bit float");
  CHECK(fault_of({raw<uint64_t>({UINT64_MAX}), {1}, "uint64"}) ==
        "'x_bytes': 18446744073709551615 of type uint64 does not fit into a 32-bit float");
  CHECK(fault_of({raw<uint8_t>({2}), {1}, "bool"}) ==
        "'x_bytes': byte 2 of type bool does not fit into a 32-bit float");
  CHECK(fault_of({raw<float>({1}), {}, "float32"}) == "'x_shape': [] is no shape");
  CHECK(fault_of({raw<float>({1}), {-1, -1}, "float32"}) == "'x_shape': [-1, -1] is no shape");
  CHECK(fault_of({raw<float>({1}), {int64_t{1} << 62, 4}, "float32"}) ==
        "'x_shape': [4611686018427387904, 4] is no shape");
}

TEST_CASE("a missing or wrong column is named when the data set is opened") {
  const Folder folder;
  write_cells(folder / "a.parquet", {{raw<float>({1}), {1}, "float32"}});
  const std::vector<std::string> files{folder / "a.parquet"};
  CHECK_THROWS_WITH_AS(SampleFiles(files, video_columns(), 0),
                       doctest::Contains("a.parquet' has no column 'vae_latent_bytes'; its "
                                         "columns are x_bytes, x_dtype, x_shape"),
                       lb::Error);
  CHECK_THROWS_WITH_AS(SampleFiles(files, Columns{{}, {"x_bytes"}, {}}, 0),
                       doctest::Contains("column 'x_bytes' is binary, expected string"), lb::Error);
}

TEST_CASE("a truncated or foreign file is named with Arrow's reason") {
  const Folder folder;
  write_rows(folder.text(), 10, {16, 5, false, "f"});
  const auto path = files_of(folder.text()).at(0);
  fs::resize_file(path, fs::file_size(path) / 2);
  CHECK_THROWS_WITH_AS(SampleFiles({path}, video_columns(), 0), doctest::Contains(path.c_str()),
                       lb::Error);
  std::ofstream(folder / "text.parquet") << "no parquet in here";
  CHECK_THROWS_WITH_AS(SampleFiles({folder / "text.parquet"}, video_columns(), 0),
                       doctest::Contains("magic bytes"), lb::Error);
  std::ofstream(folder / "empty.parquet").close();
  CHECK_THROWS_AS(SampleFiles({folder / "empty.parquet"}, video_columns(), 0), lb::Error);
}

TEST_CASE("a file that shrinks after it was opened is an error, not a crash") {
  const Folder folder;
  write_rows(folder.text(), 10, {16, 5, false, "f"});
  const auto path = files_of(folder.text()).at(0);
  SampleFiles files({path}, video_columns(), 0);
  fs::resize_file(path, 100);
  CHECK_THROWS_AS(files.read(7), lb::Error);
  write_rows(folder.text(), 4, {16, 4, false, "f"});
  CHECK_THROWS_WITH_AS(files.read(7), doctest::Contains("has changed"), lb::Error);
}

TEST_CASE("a file without rows adds none and a set without rows is an error") {
  const Folder folder;
  write_cells(folder / "a.parquet", {});
  write_cells(folder / "b.parquet", {{raw<float>({7}), {1}, "float32"}});
  SampleFiles both({folder / "a.parquet", folder / "b.parquet"}, one_tensor(), kPlenty);
  CHECK(both.rows() == 1);
  CHECK(floats(both.read(0).tensors[0])[0] == 7);
  CHECK_THROWS_WITH_AS(SampleFiles({folder / "a.parquet"}, one_tensor(), kPlenty),
                       doctest::Contains("no rows in"), lb::Error);
}

TEST_CASE("rows outside the set are refused") {
  const Folder folder;
  write_cells(folder / "a.parquet", {{raw<float>({7}), {1}, "float32"}});
  SampleFiles files({folder / "a.parquet"}, one_tensor(), kPlenty);
  CHECK_THROWS_AS(files.read(1), lb::Error);
  CHECK_THROWS_AS(files.read(-1), lb::Error);
}

TEST_CASE("sources are paths with an optional count") {
  const auto sources = parquet_data::parse_sources({"/a/b, /c:3", "/d:0", "/e:x"});
  REQUIRE(sources.size() == 3);
  CHECK(sources[0].path == "/a/b");
  CHECK(sources[0].factor == 1);
  CHECK(sources[1].path == "/c");
  CHECK(sources[1].factor == 3);
  CHECK(sources[2].path == "/e:x");
  CHECK_THROWS_AS(parquet_data::parse_sources({"/a:0"}), lb::Error);
  CHECK_THROWS_WITH_AS(parquet_data::parse_sources({"/a:-1,/b"}), doctest::Contains("at least 0"),
                       lb::Error);
  CHECK_THROWS_WITH_AS(parquet_data::parse_sources({"/a:1.5,/b"}),
                       doctest::Contains("mix = \"weight\""), lb::Error);
  CHECK_THROWS_WITH_AS(parquet_data::parse_sources({"/a:nan"}, parquet_data::Mix::kWeight),
                       doctest::Contains("at least 0"), lb::Error);
  CHECK_THROWS_AS(parquet_data::parse_sources({"/a,,/b"}), lb::Error);
  CHECK_THROWS_AS(parquet_data::parse_sources({}), lb::Error);
}

TEST_CASE("sources are paths with an optional weight") {
  const auto sources =
      parquet_data::parse_sources({"/a:0.25, /c:3", "/d:0", "/e"}, parquet_data::Mix::kWeight);
  REQUIRE(sources.size() == 3);
  CHECK(sources[0].factor == 0.25);
  CHECK(sources[1].factor == 3);
  CHECK(sources[2].path == "/e");
  CHECK(sources[2].factor == 1);
}

TEST_CASE("a path that exists is taken as it is written") {
  const Folder folder;
  fs::create_directories(folder / "odd,name:2");
  const auto sources = parquet_data::parse_sources({folder / "odd,name:2"});
  REQUIRE(sources.size() == 1);
  CHECK(sources[0].factor == 1);
  CHECK(sources[0].path == folder / "odd,name:2");
}

TEST_CASE("files are found below folders, sorted, and repeats are neighbours") {
  const Folder folder;
  fs::create_directories(folder / "b/deep");
  fs::create_directories(folder / "a");
  for (const char* name : {"b/deep/1.parquet", "b/2.parquet", "a/3.parquet", "a/4.parquet.tmp"}) {
    std::ofstream(folder / name) << "x";
  }
  const auto list = parquet_data::list_files({{folder / "b", 2}, {folder / "a", 1}});
  const auto files = list.paths();
  CHECK(list.ends.empty());
  CHECK(list.files[4].name == "deep/1.parquet");
  const auto real = fs::canonical(folder.text()).string();
  CHECK(files == std::vector<std::string>{real + "/a/3.parquet", real + "/b/2.parquet",
                                          real + "/b/2.parquet", real + "/b/deep/1.parquet",
                                          real + "/b/deep/1.parquet"});
  CHECK_THROWS_WITH_AS(parquet_data::list_files({{folder / "c", 1}}),
                       doctest::Contains("does not exist"), lb::Error);
  fs::create_directories(folder / "c");
  CHECK_THROWS_WITH_AS(parquet_data::list_files({{folder / "c", 1}}),
                       doctest::Contains("no *.parquet file"), lb::Error);
}

TEST_CASE("sources that are mixed by weight stay apart, each sorted") {
  const Folder folder;
  fs::create_directories(folder / "b");
  fs::create_directories(folder / "a");
  for (const char* name : {"b/2.parquet", "b/1.parquet", "a/3.parquet"}) {
    std::ofstream(folder / name) << "x";
  }
  const auto list = parquet_data::list_files({{folder / "b", 0.2}, {folder / "a", 0.8}},
                                             parquet_data::Mix::kWeight);
  REQUIRE(list.files.size() == 3);
  CHECK(list.files[0].name == "1.parquet");
  CHECK(list.files[1].name == "2.parquet");
  CHECK(list.files[2].name == "3.parquet");
  CHECK(list.ends == std::vector<size_t>{2, 3});
}

TEST_CASE("repeated files repeat their rows") {
  const Folder folder;
  write_rows(folder.text(), 3, {8, 8, false, "f"});
  const auto list = files_of(folder.text() + ":2");
  SampleFiles files(list, video_columns(), kPlenty);
  CHECK(files.rows() == 6);
  CHECK(files.read(4).texts[0] == "caption 1");
}

TEST_CASE("stored rows are known by their fingerprint") {
  const Folder folder;
  CHECK(parquet_data::find_stored(folder / "none", "f").rows == 0);
  write_rows(folder.text(), 10, {4, 4, false, "f"});
  CHECK(parquet_data::find_stored(folder.text(), "f").rows == 10);
  CHECK(parquet_data::find_stored(folder.text(), "f").foreign.empty());
  CHECK(parquet_data::find_stored(folder.text(), "g").rows == 0);
  CHECK(parquet_data::find_stored(folder.text(), "g").foreign.size() == 3);
  parquet_data::remove_stored(folder.text());
  CHECK(parquet_data::find_stored(folder.text(), "g").foreign.empty());
}

TEST_CASE("an unfinished file leaves nothing behind") {
  const Folder folder;
  {
    parquet_data::SampleWriter writer(folder.text(), {4, 4, false, "f"});
    const float value = 1;
    parquet_data::VideoRow row;
    row.latent = {{1}, &value};
    row.text = {{1}, &value};
    writer.add(row);
    CHECK(fs::exists(folder / "worker_0/data_chunk_0.parquet.tmp"));
  }
  CHECK(fs::is_empty(folder / "worker_0"));
}

TEST_CASE("a disk that fills up keeps the files that are complete, and leaves no other") {
  const Folder folder;
  write_rows(folder.text(), 4, {4, 4, false, "f"});
  const auto first = files_of(folder.text()).at(0);
  const auto bytes = fs::file_size(first);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit old = {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const struct rlimit small = {bytes + 200, old.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string text;
  try {
    // The second file has rows of longer latents and does not fit.
    parquet_data::SampleWriter writer(folder / "more", {4, 4, false, "f"});
    const std::vector<float> values(64, 1.0F);
    for (int64_t row = 0; row < 8; ++row) {
      parquet_data::VideoRow data;
      data.latent = {{row < 4 ? 1 : 64}, values.data()};
      data.text = {{1, 1}, values.data()};
      writer.add(data);
    }
    writer.finish();
  } catch (const lb::Error& error) {
    CHECK(error.code == LB_UNAVAILABLE);
    text = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);

  CHECK(text.find("File too large") != std::string::npos);
  CHECK(text.find("data_chunk_1.parquet") != std::string::npos);
  const auto left = files_of(folder / "more");
  REQUIRE(left.size() == 1);
  CHECK(SampleFiles(left, video_columns(), kPlenty).rows() == 4);
  int entries = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "more")) {
    entries += entry.is_regular_file() ? 1 : 0;
  }
  CHECK(entries == 1);
}

TEST_CASE("every number of rows comes from its source, as often as the manifest says") {
  const Folder folder;
  write_rows(folder / "a", 5, {8, 8, false, "f"});
  write_rows(folder / "b", 3, {8, 2, false, "f"});
  const auto rows_of = [&](const std::string& path) {
    return SampleFiles(files_of(path), video_columns(), kPlenty).rows();
  };
  CHECK(rows_of((folder / "a") + ":1," + (folder / "b") + ":2") == 5 + 2 * 3);
  CHECK(rows_of((folder / "a") + ":0," + (folder / "b")) == 3);
  CHECK(rows_of((folder / "a") + "," + (folder / "a")) == 10);  // a path twice counts twice
  CHECK_THROWS_WITH_AS(rows_of((folder / "a") + "," + (folder / "c")),
                       doctest::Contains("/c' does not exist"), lb::Error);
  CHECK_THROWS_AS(rows_of((folder / "a") + ":-1"), lb::Error);
}

TEST_CASE("a folder of other files has no data, and says so with its path") {
  const Folder folder;
  std::ofstream(folder / "clip.mp4") << "x";
  CHECK_THROWS_WITH_AS(files_of(folder.text()), doctest::Contains(folder.text().c_str()),
                       lb::Error);
}
