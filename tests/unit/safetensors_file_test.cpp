// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/safetensors.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "error_message.hpp"

#include <doctest/doctest.h>

#include "core/base/error.hpp"

namespace limbeck {
namespace {

using testing::has;
using testing::message_of;

namespace fs = std::filesystem;

// A folder of its own, removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "limbeck-safetensors-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    ::chmod(path_.c_str(), 0755);
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }
  size_t count() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string length_prefix(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes += static_cast<char>(length >> (8 * i));
  }
  return bytes;
}

// A file of this header and so many bytes of data.
std::string file_bytes(const std::string& header, size_t data) {
  return length_prefix(header.size()) + header + std::string(data, '\1');
}

bool equal_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto left = a.contiguous(), right = b.contiguous();
  return left.scalar_type() == right.scalar_type() && left.sizes() == right.sizes() &&
         (left.nbytes() == 0 ||
          std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0);
}

// [2, 3] with every kind of bits that the type has.
at::Tensor example(at::ScalarType type) {
  if (type == at::kBool) {
    return at::tensor(std::vector<int64_t>{1, 0, 0, 1, 1, 0}).reshape({2, 3}).to(at::kBool);
  }
  const auto bytes = at::arange(6 * static_cast<int64_t>(c10::elementSize(type)), at::kByte) * 41;
  return bytes.view({2, -1}).view(type);
}

const std::vector<at::ScalarType> kTypes = {
    at::kDouble, at::kFloat,  at::kHalf,   at::kBFloat16,      at::kLong,
    at::kInt,    at::kShort,  at::kChar,   at::kByte,          at::kBool,
    at::kUInt16, at::kUInt32, at::kUInt64, at::kFloat8_e4m3fn, at::kFloat8_e5m2};

TEST_CASE("every dtype comes back with its bits, shape and alignment") {
  const Folder folder;
  NamedTensors tensors;
  for (const auto type : kTypes) {
    tensors.emplace_back(std::string("t.") + c10::toString(type), example(type));
  }
  tensors.emplace_back("odd", at::ones({3}, at::kByte));
  tensors.emplace_back("scalar", at::scalar_tensor(2.5, at::kDouble));
  tensors.emplace_back("empty", at::empty({0, 4}, at::kFloat));
  write_safetensors(folder / "a.safetensors", tensors,
                    {{"format", "pt"}, {"made by", "a \"test\""}});

  const SafetensorsFile file(folder / "a.safetensors");
  CHECK(file.tensors().size() == tensors.size());
  CHECK(file.metadata().at("made by") == "a \"test\"");
  for (const auto& [name, tensor] : tensors) {
    const auto read = file.tensor(name);
    CHECK(equal_bits(read, tensor));
    CHECK(reinterpret_cast<uintptr_t>(file.data(name)) % tensor.element_size() == 0);
    CHECK(file.info(name).bytes() == tensor.nbytes());
    if (tensor.nbytes() > 1) {
      auto changed = tensor.contiguous().clone();
      static_cast<char*>(changed.mutable_data_ptr())[tensor.nbytes() - 1] ^= 1;
      CHECK_FALSE(equal_bits(read, changed));
    }
  }
}

// What safetensors 0.8.0 for Python writes for these tensors.
TEST_CASE("the bytes of a file are pinned") {
  const Folder folder;
  write_safetensors(folder / "a.safetensors",
                    {{"b", at::tensor(std::vector<int64_t>{7, 8, 9}).to(at::kByte)},
                     {"w", at::tensor(std::vector<float>{1.0F, -2.0F}).reshape({1, 2})},
                     {"a", at::tensor(std::vector<float>{0.5F}).reshape({})}});
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                             R"("w":{"dtype":"F32","shape":[1,2],"data_offsets":[4,12]},)"
                             R"("b":{"dtype":"U8","shape":[3],"data_offsets":[12,15]}})";
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  const std::string data("\0\0\0\x3f\0\0\x80\x3f\0\0\0\xc0\x07\x08\x09", 15);
  CHECK(bytes_of(folder / "a.safetensors") ==
        length_prefix(header.size() + padding.size()) + header + padding + data);
  CHECK(padding.size() > 0);

  write_safetensors(folder / "none.safetensors", {}, {});
  CHECK(bytes_of(folder / "none.safetensors") == length_prefix(8) + "{}      ");
  CHECK(SafetensorsFile(folder / "none.safetensors").tensors().empty());
}

TEST_CASE("tensors that are not contiguous or share memory are written as their values") {
  const Folder folder;
  const auto base = at::arange(6, at::kFloat).reshape({2, 3});
  write_safetensors(folder / "a.safetensors", {{"t", base.t()},
                                               {"row", base[1]},
                                               {"same", base},
                                               {"wide", base[0].expand({2, 3})},
                                               {"leaf", base.clone().set_requires_grad(true)}});
  const SafetensorsFile file(folder / "a.safetensors");
  CHECK(equal_bits(file.tensor("t"), base.t()));
  CHECK_FALSE(equal_bits(file.tensor("t"), base.reshape({3, 2})));
  CHECK(equal_bits(file.tensor("row"), base[1]));
  CHECK(equal_bits(file.tensor("same"), base));
  CHECK(equal_bits(file.tensor("wide"), base[0].expand({2, 3})));
  CHECK(equal_bits(file.tensor("leaf"), base));
}

TEST_CASE("a tensor keeps the mapping alive, and writing to it does not change the file") {
  const Folder folder;
  const auto path = folder / "a.safetensors";
  write_safetensors(path, {{"x", at::ones({1000})}});
  const auto before = bytes_of(path);
  at::Tensor tensor;
  {
    auto file = std::make_unique<SafetensorsFile>(path);
    tensor = file->tensor("x");
    CHECK(tensor.const_data_ptr() == static_cast<const void*>(file->data("x")));  // no copy
  }
  fs::remove(path);
  CHECK(at::equal(tensor, at::ones({1000})));
  put_bytes(path, before);
  at::Tensor view = SafetensorsFile(path).tensor("x");
  view.zero_();
  CHECK(bytes_of(path) == before);
}

TEST_CASE("a file of another writer may align its data badly and order its tensors freely") {
  const Folder folder;
  const std::string header =
      R"({"z":{"shape":[2],"data_offsets":[1,9],"dtype":"F32"},"a":{"dtype":"U8","shape":[1],)"
      R"("data_offsets":[0,1]}, "none":{"dtype":"F32","shape":[0],"data_offsets":[9,9]}})";
  put_bytes(folder / "a.safetensors", file_bytes(header, 9));
  const SafetensorsFile file(folder / "a.safetensors");
  const auto z = file.tensor("z");
  CHECK(reinterpret_cast<uintptr_t>(z.const_data_ptr()) % 4 == 0);
  CHECK(equal_bits(z, at::full({8}, 1, at::kByte).view(at::kFloat)));
  CHECK(file.tensor("none").numel() == 0);
}

struct Corruption {
  std::string title;
  std::string bytes;
  std::string expected;
};

std::string one(const std::string& entry) { return "{\"x\":" + entry + "}"; }

TEST_CASE("every kind of damage is refused with a message of its own") {
  const Folder folder;
  const std::string good = one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})");
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const auto whole = file_bytes(good, 8);
  const std::vector<Corruption> corruptions = {
      {"empty", "", "it has only 0 bytes"},
      {"shorter than the length", whole.substr(0, 7), "it has only 7 bytes"},
      {"header cut", whole.substr(0, 30),
       "is cut short: its header has " + std::to_string(good.size()) + " bytes, the file 30"},
      {"data cut", whole.substr(0, whole.size() - 1),
       "tensor 'x': its data end at byte 8, but the file has 7 bytes of data"},
      {"trailing bytes", whole + "!", "has 9 bytes of data, but its tensors need 8"},
      {"huge length", length_prefix(UINT64_MAX) + good, "would have 18446744073709551615 bytes"},
      {"zero length", length_prefix(0) + good, "does not begin with '{'"},
      {"a list", file_bytes("[1]", 0), "does not begin with '{'"},
      {"another format", "PK\3\4" + std::string(100, 'x'), "is not a safetensors file"},
      {"bad JSON", file_bytes("{\"x\":", 0), "its header is not valid JSON"},
      {"text after the JSON", file_bytes("{} {}", 0), "its header is not valid JSON"},
      {"not UTF-8", file_bytes("{\"\xff\":{}}", 0), "its header is not valid JSON"},
      {"name twice", file_bytes("{" + a + "," + a + "}", 4), "the name 'a' occurs twice"},
      {"key twice",
       file_bytes(one(R"({"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]})"), 1),
       "the name 'dtype' occurs twice"},
      {"entry not an object", file_bytes(one("3"), 0), "tensor 'x': its entry is number"},
      {"unknown key", file_bytes(one(R"({"dtype":"U8","shape":[],"data_offsets":[0,1],"s":1})"), 1),
       "unknown key 's'"},
      {"no dtype", file_bytes(one(R"({"shape":[1],"data_offsets":[0,1]})"), 1), "has no 'dtype'"},
      {"no shape", file_bytes(one(R"({"dtype":"U8","data_offsets":[0,1]})"), 1), "has no 'shape'"},
      {"no offsets", file_bytes(one(R"({"dtype":"U8","shape":[1]})"), 1), "has no 'data_offsets'"},
      {"dtype unknown", file_bytes(one(R"({"dtype":"C63","shape":[1],"data_offsets":[0,8]})"), 8),
       "dtype \"C63\" is unknown"},
      {"half a byte", file_bytes(one(R"({"dtype":"F4","shape":[3],"data_offsets":[0,1]})"), 1),
       "ends inside a byte"},
      {"dtype a number", file_bytes(one(R"({"dtype":1,"shape":[1],"data_offsets":[0,8]})"), 8),
       "dtype 1 is unknown"},
      {"shape a number", file_bytes(one(R"({"dtype":"U8","shape":1,"data_offsets":[0,1]})"), 1),
       "its shape must be a list"},
      {"shape negative", file_bytes(one(R"({"dtype":"U8","shape":[-1],"data_offsets":[0,1]})"), 1),
       "its shape holds -1"},
      {"shape fractional",
       file_bytes(one(R"({"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})"), 1),
       "its shape holds 1.0"},
      {"shape overflows",
       file_bytes(one(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})"), 0),
       "is too large"},
      {"shape beyond 64 bits",
       file_bytes(one(R"({"dtype":"U8","shape":[0,99999999999999999999],"data_offsets":[0,0]})"),
                  0),
       "expected an integer"},
      {"one offset", file_bytes(one(R"({"dtype":"U8","shape":[1],"data_offsets":[0]})"), 1),
       "must be a list of two integers"},
      {"offset text", file_bytes(one(R"({"dtype":"U8","shape":[1],"data_offsets":["0",1]})"), 1),
       "data_offsets holds \"0\""},
      {"offsets reversed", file_bytes(one(R"({"dtype":"U8","shape":[1],"data_offsets":[1,0]})"), 1),
       "end before they begin"},
      {"size differs", file_bytes(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), 8),
       "need 12 bytes, but data_offsets [0,8] give 8"},
      {"empty shape with data",
       file_bytes(one(R"({"dtype":"F32","shape":[0],"data_offsets":[0,8]})"), 8), "need 0 bytes"},
      {"gap at the start", file_bytes(one(R"({"dtype":"U8","shape":[1],"data_offsets":[1,2]})"), 2),
       "leaves a gap after byte 0"},
      {"gap inside",
       file_bytes("{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[5,6]}})", 6),
       "tensor 'b': its data begin at byte 5, which leaves a gap after byte 4"},
      {"overlap",
       file_bytes("{" + a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", 5),
       "tensor 'b': its data begin at byte 3 and overlap"},
      {"metadata a list", file_bytes(R"({"__metadata__":[]})", 0), "__metadata__ is array"},
      {"metadata not text", file_bytes(R"({"__metadata__":{"k":1}})", 0),
       "__metadata__ 'k' is number"},
  };
  CHECK(corruptions.size() == 37);
  const auto path = folder / "a.safetensors";
  for (const auto& corruption : corruptions) {
    CAPTURE(corruption.title);
    put_bytes(path, corruption.bytes);
    const auto text = message_of([&] { SafetensorsFile file(path); });
    CHECK(has(text, corruption.expected));
    CHECK(has(text, path.string()));
  }
  // The same file without damage is accepted.
  put_bytes(path, whole);
  CHECK(SafetensorsFile(path).tensors().size() == 1);
}

TEST_CASE("a file cut at any byte, or with any byte of its header changed, never crashes") {
  const Folder folder;
  const auto path = folder / "a.safetensors";
  write_safetensors(path, {{"x", at::ones({2})}, {"y", at::ones({3}, at::kByte)}});
  const auto whole = bytes_of(path);
  for (size_t length = 0; length < whole.size(); ++length) {
    put_bytes(path, whole.substr(0, length));
    message_of([&] { SafetensorsFile file(path); });
  }
  int accepted = 0;
  for (size_t i = 0; i < whole.size() - 11; ++i) {
    for (const char bit : {1, 4, 32}) {
      auto changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ bit);
      put_bytes(path, changed);
      try {
        const SafetensorsFile file(path);
        for (const auto& [name, info] : file.tensors()) {
          file.tensor(name);
        }
        ++accepted;  // another letter in a name or in the metadata
      } catch (const Error& error) {
        CHECK(error.fault() == Fault::kData);
      }
    }
  }
  CHECK(accepted > 0);
}

TEST_CASE(
    "a type of the format that limbeck does not read is named when a tensor of it is asked for") {
  const Folder folder;
  const auto path = folder / "a.safetensors";
  const std::string header = R"({"c":{"dtype":"C64","shape":[1],"data_offsets":[4,12]},)"
                             R"("x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  put_bytes(path, file_bytes(header, 12));
  const SafetensorsFile file(path);
  CHECK(file.tensor("x").numel() == 1);
  CHECK(file.info("c").type == "C64");
  const auto text = message_of([&] { file.tensor("c"); });
  CHECK(has(text, "tensor 'c': limbeck cannot read dtype C64"));
  CHECK(has(text, "BF16"));
}

TEST_CASE("a BOOL tensor with another byte is refused when it is read") {
  const Folder folder;
  const auto path = folder / "a.safetensors";
  const std::string header = one(R"({"dtype":"BOOL","shape":[2],"data_offsets":[0,2]})");
  put_bytes(path, length_prefix(header.size()) + header + "\1\2");
  const SafetensorsFile file(path);
  CHECK(has(message_of([&] { file.tensor("x"); }), "neither 0 nor 1"));
}

TEST_CASE("files that are missing, folders, and unknown names are named") {
  const Folder folder;
  CHECK(has(message_of([&] { SafetensorsFile file(folder / "none"); }), "No such file"));
  CHECK(has(message_of([&] { SafetensorsFile file(folder.path()); }), "not a regular file"));
  write_safetensors(folder / "a.safetensors", {{"blocks.0.weight", at::ones({2})}});
  const SafetensorsFile file(folder / "a.safetensors");
  const auto text = message_of([&] { file.tensor("blocks.0.wieght"); });
  CHECK(has(text, "has no tensor 'blocks.0.wieght'"));
  CHECK(has(text, "nearest name is 'blocks.0.weight'"));
}

TEST_CASE("what the format cannot hold is refused before anything is written") {
  const Folder folder;
  const auto path = folder / "a.safetensors";
  write_safetensors(path, {{"x", at::ones({2})}});
  const auto before = bytes_of(path);
  const auto x = at::ones({2});
  CHECK(has(message_of([&] { write_safetensors(path, {{"x", x}, {"x", x}}); }), "used twice"));
  CHECK(has(message_of([&] { write_safetensors(path, {{"__metadata__", x}}); }), "reserved"));
  CHECK(has(message_of([&] { write_safetensors(path, {{"x", at::Tensor()}}); }), "undefined"));
  CHECK(has(message_of([&] {
              write_safetensors(path, {{"x", x.to(at::kComplexFloat)}});
            }),
            "tensor 'x' cannot be written"));
  CHECK(has(message_of([&] { write_safetensors(path, {{"x", x.to_sparse()}}); }), "Sparse"));
  CHECK(has(message_of([&] { write_safetensors(path, {{"\xff", x}}); }), "not valid UTF-8"));
  CHECK(bytes_of(path) == before);
  CHECK(folder.count() == 1);
}

TEST_CASE("a write that fails keeps the old file and leaves nothing behind") {
  const Folder folder;
  CHECK(has(message_of([&] { write_safetensors(folder / "no" / "a", {}); }), "cannot create"));
  // A folder stands where the file should go: the rename is what fails.
  fs::create_directory(folder / "taken");
  CHECK(has(message_of([&] { write_safetensors(folder / "taken", {}); }), "cannot replace"));
  CHECK(folder.count() == 1);
  CHECK(fs::is_directory(folder / "taken"));

  if (::geteuid() != 0) {  // root may write anywhere
    const auto path = folder / "a.safetensors";
    write_safetensors(path, {{"x", at::ones({2})}});
    const auto before = bytes_of(path);
    REQUIRE(::chmod(folder.path().c_str(), 0555) == 0);
    CHECK(has(message_of([&] { write_safetensors(path, {}); }), "Permission denied"));
    CHECK(bytes_of(path) == before);
  }
}

TEST_CASE("a disk that fills up in the middle of a write keeps the old file") {
  const Folder folder;
  const auto path = folder / "a.safetensors";
  write_safetensors(path, {{"x", at::ones({2})}});
  const auto before = bytes_of(path);

  // The system refuses to let a file grow beyond a limit, as it would on a full disk.
  struct rlimit old = {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {1000, old.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string text;
  try {
    write_safetensors(path, {{"x", at::ones({1000})}});
  } catch (const Error& error) {
    text = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);

  CHECK(has(text, "cannot write to this file: File too large"));
  CHECK(bytes_of(path) == before);
  CHECK(folder.count() == 1);
}

TEST_CASE("a new file replaces the old one at once; who has the old one open keeps it") {
  const Folder folder;
  const auto path = folder / "a.safetensors";
  write_safetensors(path, {{"x", at::ones({2})}});
  const SafetensorsFile old(path);
  write_safetensors(path, {{"x", at::zeros({3})}});
  CHECK(at::equal(old.tensor("x"), at::ones({2})));
  CHECK(at::equal(SafetensorsFile(path).tensor("x"), at::zeros({3})));
  CHECK(folder.count() == 1);
}

}  // namespace
}  // namespace limbeck
