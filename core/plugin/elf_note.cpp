// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/elf_note.hpp"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>
#include <string_view>
#include <utility>

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
constexpr uint64_t kMaxSymbols = 1 << 20;

constexpr const char* kTakeAnother = "expected the '.so' file of a plugin";
constexpr const char* kBuildHere = "take a build of the plugin for this kind of machine";

[[noreturn]] void refuse(const std::string& reason, const char* hint = "copy or build it again") {
  throw Error(Fault::kPlugin, reason, hint);
}

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

  // Allocates nothing that the file could not fill.
  template <class T>
  std::vector<T> list(uint64_t offset, uint64_t count, const char* what) const {
    if (count > size_ / sizeof(T)) {
      refuse(cat("it is cut off: ", what, " would have ", count, " entries, the file has ", size_,
                 " bytes"));
    }
    std::vector<T> items(count);
    read(offset, items.data(), count * sizeof(T), what);
    return items;
  }

  template <class T>
  T get(uint64_t offset, const char* what) const {
    T value{};
    read(offset, &value, sizeof(T), what);
    return value;
  }

 private:
  int descriptor_;
  uint64_t size_ = 0;
};

void check_header(const File& file) {
  unsigned char ident[EI_NIDENT] = {};
  if (file.size() < sizeof(ident)) {
    refuse(cat("it is not a shared library: it has ", file.size(), " bytes"), kTakeAnother);
  }
  file.read(0, ident, sizeof(ident), "the ELF header");
  if (std::memcmp(ident, ELFMAG, SELFMAG) != 0) {
    refuse("it is not a shared library: it does not begin with the four bytes of ELF",
           kTakeAnother);
  }
  if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB) {
    refuse("it is built for another kind of machine: expected a 64-bit little-endian library",
           kBuildHere);
  }
  const auto header = file.get<Elf64_Ehdr>(0, "the ELF header");
  if (header.e_machine != kMachine) {
    refuse(cat("it is built for another kind of machine: ELF machine ", header.e_machine,
               ", expected ", kMachine, " (", kMachineName, ")"),
           kBuildHere);
  }
  if (header.e_type != ET_DYN) {
    refuse(cat("it is not a shared library: ELF type ", header.e_type, ", expected ", ET_DYN),
           kTakeAnother);
  }
}

std::vector<Elf64_Phdr> read_segments(const File& file) {
  const auto header = file.get<Elf64_Ehdr>(0, "the ELF header");
  if (header.e_phnum == 0 || header.e_phnum > kMaxSegments ||
      header.e_phentsize != sizeof(Elf64_Phdr)) {
    refuse(cat("its ELF header is damaged: ", header.e_phnum, " program headers of ",
               header.e_phentsize, " bytes"));
  }
  auto segments =
      file.list<Elf64_Phdr>(header.e_phoff, header.e_phnum, "the table of program headers");
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

// The dynamic section: what the dynamic linker reads.
struct Dynamic {
  std::vector<uint64_t> needed;  // offsets into the names
  uint64_t names = 0;            // addresses; 0: there is none
  uint64_t names_bytes = 0;
  uint64_t symbols = 0;
  uint64_t hash = 0;
  uint64_t gnu_hash = 0;
  uint64_t flags = 0;
  uint64_t flags_1 = 0;
  bool has_bind_now = false;
  bool has_text_relocations = false;
};

void read_entry(const Elf64_Dyn& entry, Dynamic& out) {
  switch (entry.d_tag) {
    case DT_NEEDED:
      if (out.needed.size() < kMaxNeeded) {
        out.needed.push_back(entry.d_un.d_val);
      }
      break;
    case DT_STRTAB:
      out.names = entry.d_un.d_ptr;
      break;
    case DT_STRSZ:
      out.names_bytes = entry.d_un.d_val;
      break;
    case DT_SYMTAB:
      out.symbols = entry.d_un.d_ptr;
      break;
    case DT_HASH:
      out.hash = entry.d_un.d_ptr;
      break;
    case DT_GNU_HASH:
      out.gnu_hash = entry.d_un.d_ptr;
      break;
    case DT_FLAGS:
      out.flags = entry.d_un.d_val;
      break;
    case DT_FLAGS_1:
      out.flags_1 = entry.d_un.d_val;
      break;
    case DT_BIND_NOW:
      out.has_bind_now = true;
      break;
    case DT_TEXTREL:
      out.has_text_relocations = true;
      break;
    default:
      break;
  }
}

Dynamic read_dynamic(const File& file, const std::vector<Elf64_Phdr>& segments) {
  const auto segment = std::find_if(segments.begin(), segments.end(),
                                    [](const auto& one) { return one.p_type == PT_DYNAMIC; });
  if (segment == segments.end()) {
    refuse("it is not a shared library: it has no dynamic section", kTakeAnother);
  }
  const uint64_t count = std::min(segment->p_filesz / sizeof(Elf64_Dyn), kMaxDynamic);
  const auto entries = file.list<Elf64_Dyn>(segment->p_offset, count, "the dynamic section");
  Dynamic dynamic;
  for (const auto& entry : entries) {
    if (entry.d_tag == DT_NULL) {
      break;
    }
    read_entry(entry, dynamic);
  }
  return dynamic;
}

// All names of a file: NUL-terminated texts at offsets.
class Names {
 public:
  Names(const File& file, const std::vector<Elf64_Phdr>& segments, const Dynamic& dynamic) {
    if (dynamic.names_bytes != 0) {
      bytes_ = file.list<char>(offset_of(dynamic.names, segments), dynamic.names_bytes,
                               "the table of names");
    }
  }

  std::string at(uint64_t offset) const {
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(std::min(offset, size()));
    const auto end = std::find(begin, bytes_.end(), '\0');
    if (end == bytes_.end()) {
      refuse(cat("its dynamic section is damaged: no name at ", offset, " of ", size()));
    }
    return {begin, end};
  }

 private:
  uint64_t size() const { return bytes_.size(); }

  std::vector<char> bytes_;
};

// The number of symbols, which only the hash tables tell.
uint64_t count_by_gnu_hash(const File& file, uint64_t at) {
  struct Header {
    uint32_t buckets, first_hashed, bloom_words, bloom_shift;
  };
  const auto header = file.get<Header>(at, "the hash table");
  const uint64_t buckets_at = at + sizeof(Header) + uint64_t{header.bloom_words} * 8;
  if (header.first_hashed > kMaxSymbols) {
    refuse(cat("its hash table is damaged: it begins with symbol ", header.first_hashed));
  }
  const auto buckets = file.list<uint32_t>(buckets_at, header.buckets, "the hash table");
  uint64_t last = 0;
  for (const uint32_t first : buckets) {
    last = std::max<uint64_t>(last, first);
  }
  if (last < header.first_hashed) {
    return header.first_hashed;
  }
  // The end of the last chain is marked by an odd hash.
  for (const uint64_t chains_at = buckets_at + buckets.size() * 4; last < kMaxSymbols; ++last) {
    const uint64_t chain = chains_at + (last - header.first_hashed) * 4;
    if ((file.get<uint32_t>(chain, "the hash table") & 1U) != 0) {
      return last + 1;
    }
  }
  refuse("its hash table is damaged: a chain has no end");
}

uint64_t count_symbols(const File& file,
                       const std::vector<Elf64_Phdr>& segments,
                       const Dynamic& dynamic) {
  uint64_t count = 0;
  if (dynamic.gnu_hash != 0) {
    count = count_by_gnu_hash(file, offset_of(dynamic.gnu_hash, segments));
  } else if (dynamic.hash != 0) {
    // Numbers of buckets and of symbols.
    count =
        file.get<std::array<uint32_t, 2>>(offset_of(dynamic.hash, segments), "the hash table")[1];
  }
  return count;
}

// What linkers add to every library they make.
bool is_of_linker(const std::string& name) {
  return name == "_init" || name == "_fini" || name == "_edata" || name == "_end" ||
         name == "__bss_start";
}

void read_symbols(const File& file,
                  const std::vector<Elf64_Phdr>& segments,
                  const Dynamic& dynamic,
                  const Names& names,
                  ElfFacts& facts) {
  const uint64_t count = count_symbols(file, segments, dynamic);
  if (count == 0 || dynamic.symbols == 0) {
    return;
  }
  for (const auto& symbol :
       file.list<Elf64_Sym>(offset_of(dynamic.symbols, segments), count, "the table of symbols")) {
    const auto binding = ELF64_ST_BIND(symbol.st_info);
    const auto visibility = ELF64_ST_VISIBILITY(symbol.st_other);
    if (binding == STB_LOCAL || visibility == STV_HIDDEN || visibility == STV_INTERNAL) {
      continue;
    }
    std::string name = names.at(symbol.st_name);
    if (symbol.st_shndx == SHN_UNDEF) {
      facts.imported.push_back(std::move(name));
    } else if (!is_of_linker(name)) {
      const auto type = ELF64_ST_TYPE(symbol.st_info);
      facts.exported.push_back({std::move(name), type == STT_FUNC || type == STT_GNU_IFUNC});
    }
  }
}

bool has_executable_stack(const std::vector<Elf64_Phdr>& segments) {
  return std::any_of(segments.begin(), segments.end(), [](const auto& segment) {
    return segment.p_type == PT_GNU_STACK && (segment.p_flags & PF_X) != 0;
  });
}

}  // namespace

ElfFacts read_elf(int descriptor) {
  const File file(descriptor);
  check_header(file);
  const auto segments = read_segments(file);

  ElfFacts facts;
  facts.has_note = read_note(file, segments, facts.note);
  const Dynamic dynamic = read_dynamic(file, segments);
  const Names names(file, segments, dynamic);
  for (const uint64_t offset : dynamic.needed) {
    facts.needed.push_back(names.at(offset));
  }
  read_symbols(file, segments, dynamic, names, facts);
  facts.is_bound_at_load = dynamic.has_bind_now || (dynamic.flags & DF_BIND_NOW) != 0 ||
                           (dynamic.flags_1 & DF_1_NOW) != 0;
  facts.is_never_unloaded = (dynamic.flags_1 & DF_1_NODELETE) != 0;
  facts.has_executable_stack = has_executable_stack(segments);
  facts.has_text_relocations = dynamic.has_text_relocations || (dynamic.flags & DF_TEXTREL) != 0;
  return facts;
}

}  // namespace limbeck
