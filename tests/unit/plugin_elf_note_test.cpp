// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/elf_note.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.hpp"
#include "core/base/files.hpp"

namespace {

const std::string kGood = LIMBECK_TEST_PLUGIN_DIR "/good_callback.so";

// An open file with this content, in memory.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& content) : descriptor_(memfd_create("elf", MFD_CLOEXEC)) {
    REQUIRE(write(descriptor_, content.data(), content.size()) ==
            static_cast<ssize_t>(content.size()));
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

limbeck::ElfFacts read_content(const std::string& content) {
  const MemoryFile file(content);
  return limbeck::read_elf(file.descriptor());
}

std::string message_of(const std::string& content) {
  try {
    read_content(content);
  } catch (const limbeck::Error& error) {
    return error.message();
  }
  return "";
}

template <class T>
std::string with(std::string content, size_t offset, T value) {
  content.replace(offset, sizeof(value),
                  std::string(reinterpret_cast<const char*>(&value), sizeof(value)));
  return content;
}

}  // namespace

TEST_CASE("elf: the note of a plugin is read") {
  const auto facts = read_content(limbeck::read_file(kGood));

  CHECK(facts.has_note);
  CHECK(facts.note.abi == "1.0");
  CHECK(facts.note.id == "org.limbeck.test.good_callback");
  CHECK(facts.note.version == "1.0.0");
  CHECK(facts.note.torch == "none");
}

TEST_CASE("elf: the libraries that a file needs are read, in its order") {
  const auto needed =
      read_content(limbeck::read_file(LIMBECK_TEST_PLUGIN_DIR "/bad_links_torch.so")).needed;

  // A sanitizer puts its own library in front.
  const auto torch = std::find(needed.begin(), needed.end(), "libtorch_cpu.so");
  REQUIRE(needed.end() - torch >= 2);
  CHECK(torch[1] == "libc10.so");
}

TEST_CASE("elf: symbols are read by either kind of hash table") {
  for (const char* seed : {"symbols", "symbols_gnu"}) {
    CAPTURE(seed);
    const auto facts = read_content(
        limbeck::read_file(std::string(LIMBECK_SOURCE_DIR "/tests/fuzz/corpus/elf/") + seed));
    REQUIRE(facts.exported.size() == 2);
    CHECK(facts.exported[0].name == "limbeck_plugin_v1");
    CHECK(facts.exported[0].is_function);
    CHECK(facts.exported[1].name == "other");
    CHECK_FALSE(facts.exported[1].is_function);
    CHECK(facts.imported == std::vector<std::string>{"abort"});
    CHECK(facts.is_never_unloaded);
    CHECK(facts.is_bound_at_load);
    CHECK_FALSE(facts.has_text_relocations);
  }
  const auto facts = read_content(limbeck::read_file(kGood));
  REQUIRE(facts.exported.size() == 1);
  CHECK(facts.exported[0].name == "limbeck_plugin_v1");
  CHECK_FALSE(facts.has_executable_stack);
}

TEST_CASE("elf: a library that is no plugin has no note") {
  CHECK_FALSE(read_content(limbeck::read_file(LIMBECK_TEST_PLUGIN_DIR "/bad_no_note.so")).has_note);
}

TEST_CASE("elf: what is not a library for this machine is refused with its reason") {
  const std::string good = limbeck::read_file(kGood);

  CHECK(message_of("") == "it is not a shared library: it has 0 bytes");
  CHECK(message_of("plugins = [\"wan\"] # a manifest") ==
        "it is not a shared library: it does not begin with the four bytes of ELF");
  CHECK(message_of(with(good, EI_CLASS, char{ELFCLASS32})) ==
        "it is built for another kind of machine: expected a 64-bit little-endian library");
  CHECK(message_of(with(good, offsetof(Elf64_Ehdr, e_machine), Elf64_Half{EM_RISCV}))
            .starts_with("it is built for another kind of machine: ELF machine 243, expected "));
  CHECK(message_of(with(good, offsetof(Elf64_Ehdr, e_type), Elf64_Half{ET_REL})) ==
        "it is not a shared library: ELF type 1, expected 3");
  CHECK(message_of(with(good, offsetof(Elf64_Ehdr, e_phnum), Elf64_Half{60000}))
            .starts_with("its ELF header is damaged: 60000 program headers"));
  CHECK(message_of(with(good, offsetof(Elf64_Ehdr, e_phoff), ~Elf64_Off{0}))
            .starts_with("it is cut off: the table of program headers would end"));
}

TEST_CASE("elf: a file that ends early anywhere is refused or read, never followed past its end") {
  const std::string good = limbeck::read_file(kGood);
  size_t n_refused = 0;
  for (size_t size = 0; size < good.size(); size += size < 1024 ? 1 : 61) {
    n_refused += message_of(good.substr(0, size)).empty() ? 0 : 1;
  }

  CHECK(n_refused > 1000);
  CHECK(message_of(good.substr(0, good.size() / 2)).starts_with("it is cut off: "));
}

TEST_CASE("elf: random damage gives an error or facts, never a crash") {
  const std::string good = limbeck::read_file(kGood);
  std::mt19937 random(17);
  for (int round = 0; round < 4000; ++round) {
    std::string damaged = good;
    for (int i = 0; i < 4; ++i) {
      // The headers and the notes lie in the first kilobyte.
      const size_t reach = round % 2 == 0 ? 1024 : good.size();
      damaged[random() % reach] = static_cast<char>(random());
    }
    CHECK_NOTHROW(message_of(damaged));
  }
}
