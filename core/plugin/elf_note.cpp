// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/elf_note.hpp"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <sstream>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
constexpr const char* kMachineName = "x86-64";
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
constexpr const char* kMachineName = "aarch64";
#endif

// No sound plugin comes near these; they bound the work that a hostile file can cause.
constexpr uint64_t kMaxSegments = 256;
constexpr uint64_t kMaxNoteBytes = 1 << 20;
constexpr uint64_t kMaxDynamic = 1 << 14;
constexpr uint64_t kMaxNeeded = 1024;
constexpr uint64_t kMaxNameBytes = 4096;

[[noreturn]] void refuse(const std::string& reason) { throw Error(Fault::kPlugin, reason); }

// Reads at places of a file, never past its end.
class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {
    struct stat status {};
    if (fstat(descriptor, &status) != 0) {
      refuse(cat("it cannot be read: ", std::strerror(errno)));
    }
    size_ = static_cast<uint64_t>(status.st_size);
  }

  uint64_t size() const { return size_; }

  void read(uint64_t offset, void* out, uint64_t bytes, const char* what) const {
    if (offset > size_ || bytes > size_ - offset) {
      refuse(cat("it is cut off: ", what, " would end at byte ", offset, " + ", bytes,
                 ", the file has ", size_, " bytes"));
    }
    auto* to = static_cast<char*>(out);
    while (bytes > 0) {
      const ssize_t got = pread(descriptor_, to, bytes, static_cast<off_t>(offset));
      if (got <= 0) {
        refuse(cat("it cannot be read: ", got == 0 ? "it became shorter" : std::strerror(errno)));
      }
      to += got;
      offset += static_cast<uint64_t>(got);
      bytes -= static_cast<uint64_t>(got);
    }
  }

  template <class T>
  T get(uint64_t offset, const char* what) const {
    T value;
    read(offset, &value, sizeof(T), what);
    return value;
  }

  // A NUL-terminated text.
  std::string text(uint64_t offset, const char* what) const {
    const uint64_t available = offset < size_ ? size_ - offset : 0;
    std::string buffer(std::min(available, kMaxNameBytes), '\0');
    read(offset, buffer.data(), buffer.size(), what);
    const auto end = buffer.find('\0');
    if (end == std::string::npos) {
      refuse(cat(what, " has no end"));
    }
    return buffer.substr(0, end);
  }

 private:
  int descriptor_;
  uint64_t size_ = 0;
};

void check_header(const File& file) {
  unsigned char ident[EI_NIDENT] = {};
  if (file.size() < sizeof(ident)) {
    refuse(cat("it is not a shared library: it has ", file.size(), " bytes"));
  }
  file.read(0, ident, sizeof(ident), "the ELF header");
  if (std::memcmp(ident, ELFMAG, SELFMAG) != 0) {
    refuse("it is not a shared library: it does not begin with the four bytes of ELF");
  }
  if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB) {
    refuse("it is built for another kind of machine: expected a 64-bit little-endian library");
  }
  const auto header = file.get<Elf64_Ehdr>(0, "the ELF header");
  if (header.e_machine != kMachine) {
    refuse(cat("it is built for another kind of machine: ELF machine ", header.e_machine,
               ", expected ", kMachine, " (", kMachineName, ")"));
  }
  if (header.e_type != ET_DYN) {
    refuse(cat("it is not a shared library: ELF type ", header.e_type, ", expected ", ET_DYN));
  }
}

std::vector<Elf64_Phdr> read_segments(const File& file) {
  const auto header = file.get<Elf64_Ehdr>(0, "the ELF header");
  if (header.e_phnum == 0 || header.e_phnum > kMaxSegments ||
      header.e_phentsize != sizeof(Elf64_Phdr)) {
    refuse(cat("its ELF header is damaged: ", header.e_phnum, " program headers of ",
               header.e_phentsize, " bytes"));
  }
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  file.read(header.e_phoff, segments.data(), segments.size() * sizeof(Elf64_Phdr),
            "the table of program headers");
  for (const auto& segment : segments) {
    if (segment.p_type == PT_LOAD &&
        (segment.p_offset > file.size() || segment.p_filesz > file.size() - segment.p_offset)) {
      refuse(cat("it is cut off: a segment would end at byte ", segment.p_offset, " + ",
                 segment.p_filesz, ", the file has ", file.size(), " bytes"));
    }
  }
  return segments;
}

PluginNote parse_note(std::string_view text) {
  PluginNote note;
  std::istringstream lines{std::string(text.substr(0, text.find('\0')))};
  for (std::string line; std::getline(lines, line);) {
    const auto equals = line.find('=');
    if (equals == std::string::npos) {
      continue;
    }
    const std::string key = line.substr(0, equals);
    const std::string value = line.substr(equals + 1);
    if (key == "abi") {
      note.abi = value;
    } else if (key == "id") {
      note.id = value;
    } else if (key == "version") {
      note.version = value;
    } else if (key == "torch") {
      note.torch = value;
    }
  }
  return note;
}

// Looks for our note among those of one segment.
bool find_note(const std::string& bytes, uint64_t align, PluginNote& out) {
  const auto padded = [align](uint64_t size) { return (size + align - 1) / align * align; };
  uint64_t at = 0;
  while (at <= bytes.size() && bytes.size() - at >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr header;
    std::memcpy(&header, bytes.data() + at, sizeof(header));
    const uint64_t name_at = at + sizeof(header);
    const uint64_t text_at = name_at + padded(header.n_namesz);
    const uint64_t end = text_at + header.n_descsz;  // 32-bit sizes: no overflow
    if (end > bytes.size()) {
      return false;
    }
    const std::string_view all(bytes);
    const std::string_view owner("limbeck\0", 8);
    if (header.n_type == 1 && all.substr(name_at, header.n_namesz) == owner) {
      out = parse_note(all.substr(text_at, header.n_descsz));
      return true;
    }
    at = text_at + padded(header.n_descsz);
  }
  return false;
}

bool read_note(const File& file, const std::vector<Elf64_Phdr>& segments, PluginNote& out) {
  for (const auto& segment : segments) {
    if (segment.p_type != PT_NOTE) {
      continue;
    }
    if (segment.p_filesz > kMaxNoteBytes) {
      refuse(
          cat("its notes have ", segment.p_filesz, " bytes, at most ", kMaxNoteBytes, " are read"));
    }
    std::string bytes(segment.p_filesz, '\0');
    file.read(segment.p_offset, bytes.data(), bytes.size(), "a segment of notes");
    if (find_note(bytes, segment.p_align == 8 ? 8 : 4, out)) {
      return true;
    }
  }
  return false;
}

// Where a virtual address lies in the file.
uint64_t offset_of(uint64_t address, const std::vector<Elf64_Phdr>& segments) {
  for (const auto& segment : segments) {
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        address - segment.p_vaddr < segment.p_filesz) {
      return segment.p_offset + (address - segment.p_vaddr);
    }
  }
  refuse(cat("its dynamic section is damaged: address ", address, " is in no segment"));
}

std::vector<std::string> read_needed(const File& file, const std::vector<Elf64_Phdr>& segments) {
  const auto dynamic = std::find_if(segments.begin(), segments.end(), [](const auto& segment) {
    return segment.p_type == PT_DYNAMIC;
  });
  if (dynamic == segments.end()) {
    refuse("it is not a shared library: it has no dynamic section");
  }
  const uint64_t count = std::min(dynamic->p_filesz / sizeof(Elf64_Dyn), kMaxDynamic);
  std::vector<Elf64_Dyn> entries(count);
  file.read(dynamic->p_offset, entries.data(), count * sizeof(Elf64_Dyn), "the dynamic section");

  std::vector<uint64_t> names;
  uint64_t strings = 0;
  for (const auto& entry : entries) {
    if (entry.d_tag == DT_NULL) {
      break;
    }
    if (entry.d_tag == DT_NEEDED && names.size() < kMaxNeeded) {
      names.push_back(entry.d_un.d_val);
    } else if (entry.d_tag == DT_STRTAB) {
      strings = entry.d_un.d_ptr;
    }
  }
  std::vector<std::string> needed;
  for (const uint64_t name : names) {
    if (name > std::numeric_limits<uint64_t>::max() - strings) {
      refuse("its dynamic section is damaged: a name lies outside of the address space");
    }
    needed.push_back(file.text(offset_of(strings + name, segments), "the name of a library"));
  }
  return needed;
}

}  // namespace

ElfFacts read_elf(int descriptor) {
  const File file(descriptor);
  check_header(file);
  const auto segments = read_segments(file);

  ElfFacts facts;
  facts.has_note = read_note(file, segments, facts.note);
  facts.needed = read_needed(file, segments);
  return facts;
}

}  // namespace limbeck
