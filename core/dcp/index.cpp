// SPDX-License-Identifier: Apache-2.0
#include "core/dcp/index.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "core/dcp/geometry.hpp"
#include "core/dcp/pickle.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;
using Kind = PickleNode::Kind;

constexpr std::array kTypes = {
    DcpType{"float64", "DoubleStorage", "F64", 8},
    DcpType{"float32", "FloatStorage", "F32", 4},
    DcpType{"float16", "HalfStorage", "F16", 2},
    DcpType{"bfloat16", "BFloat16Storage", "BF16", 2},
    DcpType{"float8_e4m3fn", nullptr, "F8_E4M3", 1},
    DcpType{"float8_e5m2", nullptr, "F8_E5M2", 1},
    DcpType{"float8_e4m3fnuz", nullptr, nullptr, 1},
    DcpType{"float8_e5m2fnuz", nullptr, nullptr, 1},
    DcpType{"float8_e8m0fnu", nullptr, "F8_E8M0", 1},
    DcpType{"complex128", "ComplexDoubleStorage", nullptr, 16},
    DcpType{"complex64", "ComplexFloatStorage", "C64", 8},
    DcpType{"int64", "LongStorage", "I64", 8},
    DcpType{"int32", "IntStorage", "I32", 4},
    DcpType{"int16", "ShortStorage", "I16", 2},
    DcpType{"int8", "CharStorage", "I8", 1},
    DcpType{"uint64", nullptr, "U64", 8},
    DcpType{"uint32", nullptr, "U32", 4},
    DcpType{"uint16", nullptr, "U16", 2},
    DcpType{"uint8", "ByteStorage", "U8", 1},
    DcpType{"bool", "BoolStorage", "BOOL", 1},
};

// Longer ones would make comparing them take more than time in proportion to the file.
constexpr size_t kMaxName = 4096;
constexpr size_t kMaxAttributes = 64;

const char kMetadata[] = "torch.distributed.checkpoint.metadata";
const char kFileSystem[] = "torch.distributed.checkpoint.filesystem";
const char* const kDamaged = "the file is damaged or was not written completely";

// What is wrong with an index, "" if nothing is. For a reader and for a writer.
std::string fault_of_item(const DcpItem& item) {
  const bool is_plain = !item.file.empty() && item.file.size() <= 255 && item.file != "." &&
                        item.file != ".." && item.file != kDcpIndexFile &&
                        item.file.find('/') == std::string::npos &&
                        item.file.find('\0') == std::string::npos;
  if (!is_plain) {
    return cat("is in '", item.file, "', which is not the name of a data file in the same folder");
  }
  const uint64_t limit = std::numeric_limits<int64_t>::max();
  if (item.length == 0 || item.length > limit || item.offset > limit - item.length) {
    return cat("is at byte ", item.offset, " of ", item.file, " and has ", item.length, " bytes");
  }
  return "";
}

std::string fault_of_tensor(const DcpTensor& tensor) {
  const auto numel = tensor.sizes.size() > kMaxDcpDims
                         ? std::nullopt
                         : checked_numel(tensor.sizes, tensor.type->bytes);
  if (!numel) {
    return cat("has the sizes ", show(tensor.sizes));
  }
  std::vector<const DcpBox*> boxes;
  std::set<std::vector<int64_t>> offsets;
  double covered = 0;
  for (const DcpChunk& chunk : tensor.chunks) {
    if (!is_inside(chunk.box, tensor.sizes)) {
      return cat("has a chunk at ", show(chunk.box.offsets), " of sizes ", show(chunk.box.sizes),
                 ", which does not lie in its sizes ", show(tensor.sizes));
    }
    if (!offsets.insert(chunk.box.offsets).second) {
      return cat("has two chunks at ", show(chunk.box.offsets));
    }
    if (const auto fault = fault_of_item(chunk.item); !fault.empty()) {
      return cat("has a chunk that ", fault);
    }
    covered += static_cast<double>(chunk.box.numel());
    boxes.push_back(&chunk.box);
  }
  if (*numel != 0 && !is_tiling(boxes, tensor.sizes)) {
    const auto expected = static_cast<double>(*numel);
    return cat("has chunks that ",
               covered < expected   ? "leave gaps"
               : covered > expected ? "overlap"
                                    : "overlap and leave gaps",
               ": they hold ", covered, " elements, and its sizes ", show(tensor.sizes), " are ",
               expected);
  }
  return "";
}

// ---- reading

class IndexParser {
 public:
  IndexParser(std::string_view bytes, const fs::path& path)
      : path_(path), graph_(bytes, path.string()) {}

  DcpIndex parse() {
    const PickleNode& root = graph_.root();
    if (graph_.class_of(root) != cat(kMetadata, ".Metadata")) {
      refuse("is not the index of a PyTorch distributed checkpoint");
    }
    check_version(root);
    read_items(need(root, "storage_data"));
    DcpIndex index;
    const PickleNode& entries = need(root, "state_dict_metadata");
    check(entries.kind == Kind::kDict, "state_dict_metadata is no dict");
    for (size_t i = 0; i < entries.items.size(); i += 2) {
      const std::string name(text(graph_.at(entries.items[i]), "the name of an entry"));
      if (index.has(name)) {
        refuse(cat("has the entry '", name, "' twice"));
      }
      read_entry(name, graph_.at(entries.items[i + 1]), index);
    }
    if (!items_.empty()) {
      refuse(cat("says where a part of '", items_.begin()->first.first,
                 "' is, but not what that part is"));
    }
    return index;
  }

 private:
  // Beginning of a chunk; nothing for a value.
  using Place = std::optional<std::vector<int64_t>>;

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(Fault::kData, cat(path_.string(), ": ", what), kDamaged);
  }
  void check(bool holds, const char* what) const {
    if (!holds) {
      refuse(what);
    }
  }

  // An attribute of an object; nullptr if it has none of that name, or None.
  const PickleNode* attribute(const PickleNode& object, std::string_view name) const {
    if (object.kind != Kind::kObject || object.items.size() < 3) {
      return nullptr;
    }
    const PickleNode& state = graph_.at(object.items[2]);
    if (state.kind != Kind::kDict || state.items.size() > 2 * kMaxAttributes) {
      return nullptr;
    }
    for (size_t i = 0; i < state.items.size(); i += 2) {
      const PickleNode& key = graph_.at(state.items[i]);
      const PickleNode& value = graph_.at(state.items[i + 1]);
      if (key.kind == Kind::kText && key.text == name) {
        return value.kind == Kind::kNone ? nullptr : &value;
      }
    }
    return nullptr;
  }
  const PickleNode& need(const PickleNode& object, const char* name) const {
    const PickleNode* found = attribute(object, name);
    if (found == nullptr) {
      refuse(cat("an object of class ", graph_.class_of(object), " has no ", name));
    }
    return *found;
  }

  std::string_view text(const PickleNode& node, const char* what) const {
    if (node.kind != Kind::kText || node.text.size() > kMaxName) {
      refuse(cat(what, " is no text of at most ", kMaxName, " bytes"));
    }
    return node.text;
  }
  uint64_t count(const PickleNode& node, const char* what) const {
    if (node.kind != Kind::kInt || node.number < 0) {
      refuse(cat(what, " is no integer of at least 0"));
    }
    return static_cast<uint64_t>(node.number);
  }
  std::vector<int64_t> counts(const PickleNode& node, const char* what) const {
    if (node.kind != Kind::kTuple || node.items.size() > kMaxDcpDims) {
      refuse(cat(what, " are no tuple of at most ", kMaxDcpDims, " integers"));
    }
    std::vector<int64_t> values;
    for (const uint32_t item : node.items) {
      values.push_back(static_cast<int64_t>(count(graph_.at(item), what)));
    }
    return values;
  }

  void check_version(const PickleNode& root) const {
    const PickleNode* version = attribute(root, "version");
    if (version != nullptr && (version->kind != Kind::kText || !version->text.starts_with("1."))) {
      throw Error(Fault::kData,
                  cat(path_.string(), ": is of version '", version->text.substr(0, 20),
                      "' of the format; limbeck knows versions 1.x"));
    }
  }

  void read_items(const PickleNode& node) {
    check(node.kind == Kind::kDict, "storage_data is no dict");
    for (size_t i = 0; i < node.items.size(); i += 2) {
      const PickleNode& key = graph_.at(node.items[i]);
      const PickleNode& info = graph_.at(node.items[i + 1]);
      const std::string_view name = text(need(key, "fqn"), "fqn");
      const PickleNode* offset = attribute(key, "offset");
      Place place;
      if (offset != nullptr) {
        place = counts(*offset, "the offsets of a chunk");
      }
      if (!items_.emplace(std::make_pair(name, std::move(place)), read_item(name, info)).second) {
        refuse(cat("says twice where a part of '", name, "' is"));
      }
    }
  }

  DcpItem read_item(std::string_view name, const PickleNode& info) const {
    const PickleNode* transforms = attribute(info, "transform_descriptors");
    if (transforms != nullptr && !transforms->items.empty()) {
      throw Error(Fault::kData,
                  cat(path_.string(), ": '", name,
                      "' was transformed when it was saved; limbeck reads only plain items"),
                  "save it without stream extensions such as compression");
    }
    DcpItem item;
    item.file = text(need(info, "relative_path"), "relative_path");
    item.offset = count(need(info, "offset"), "offset");
    item.length = count(need(info, "length"), "length");
    if (const auto fault = fault_of_item(item); !fault.empty()) {
      refuse(cat("'", name, "' ", fault));
    }
    return item;
  }

  DcpItem take_item(const std::string& name, const Place& place) {
    const auto found = items_.find({name, place});
    if (found == items_.end()) {
      refuse(
          cat("does not say where ",
              place ? cat("the chunk at ", show(*place), " of '", name, "'") : cat("'", name, "'"),
              " is"));
    }
    DcpItem item = std::move(found->second);
    items_.erase(found);
    return item;
  }

  void read_entry(const std::string& name, const PickleNode& node, DcpIndex& index) {
    const std::string class_name = graph_.class_of(node);
    if (class_name == cat(kMetadata, ".BytesStorageMetadata")) {
      index.values.emplace(name, take_item(name, std::nullopt));
    } else if (class_name == cat(kMetadata, ".TensorStorageMetadata")) {
      index.tensors.emplace(name, read_tensor(name, node));
    } else {
      refuse(cat("'", name, "' is a ", class_name.empty() ? "plain value" : class_name,
                 ", expected a tensor or bytes"));
    }
  }

  DcpTensor read_tensor(const std::string& name, const PickleNode& node) {
    DcpTensor tensor;
    tensor.type = read_type(name, need(node, "properties"));
    tensor.sizes = counts(need(node, "size"), "the sizes of a tensor");
    const PickleNode& chunks = need(node, "chunks");
    check(chunks.kind == Kind::kList, "the chunks of a tensor are no list");
    for (const uint32_t index : chunks.items) {
      const PickleNode& chunk = graph_.at(index);
      DcpBox box = {counts(need(chunk, "offsets"), "the offsets of a chunk"),
                    counts(need(chunk, "sizes"), "the sizes of a chunk")};
      DcpItem item = take_item(name, box.offsets);
      tensor.chunks.push_back({std::move(box), std::move(item)});
    }
    if (const auto fault = fault_of_tensor(tensor); !fault.empty()) {
      refuse(cat("'", name, "' ", fault));
    }
    return tensor;
  }

  const DcpType* read_type(const std::string& name, const PickleNode& properties) const {
    const bool has_state = properties.kind == Kind::kObject && properties.items.size() == 3;
    const PickleNode* state = has_state ? &graph_.at(properties.items[2]) : nullptr;
    if (state == nullptr || state->kind != Kind::kTuple || state->items.size() < 2) {
      refuse(cat("'", name, "' has no properties"));
    }
    const std::string class_name = graph_.class_of(graph_.at(state->items[0]));
    const DcpType* type =
        class_name.starts_with("torch.") ? find_dcp_type(class_name.substr(6)) : nullptr;
    if (type == nullptr) {
      throw Error(Fault::kData, cat(path_.string(), ": '", name,
                                    "' has numbers of a type that limbeck does not know: ",
                                    class_name.empty() ? "none" : class_name));
    }
    return type;
  }

  const fs::path& path_;
  PickleGraph graph_;
  std::map<std::pair<std::string_view, Place>, DcpItem> items_;  // not yet given to their entry
};

// ---- writing

class IndexWriter {
 public:
  std::string write(const DcpIndex& index) {
    begin_object(kMetadata, "Metadata");
    out_.shared_text("state_dict_metadata");
    out_.empty_dict();
    out_.mark();
    for (const auto& [name, tensor] : index.tensors) {
      out_.shared_text(name);
      add_tensor(tensor);
    }
    for (const auto& [name, item] : index.values) {
      out_.shared_text(name);
      out_.global(kMetadata, "BytesStorageMetadata");
      out_.empty_tuple();
      out_.new_object();
    }
    out_.set_all();

    // The path of an entry in the state dict: names are not taken apart.
    out_.shared_text("planner_data");
    out_.empty_dict();
    out_.mark();
    const auto add_path = [&](const std::string& name) {
      out_.shared_text(name);
      out_.mark();
      out_.shared_text(name);
      out_.tuple();
    };
    for (const auto& [name, tensor] : index.tensors) {
      add_path(name);
    }
    for (const auto& [name, item] : index.values) {
      add_path(name);
    }
    out_.set_all();

    out_.shared_text("storage_data");
    out_.empty_dict();
    out_.mark();
    for (const auto& [name, tensor] : index.tensors) {
      for (const DcpChunk& chunk : tensor.chunks) {
        add_item(name, &chunk.box.offsets, chunk.item);
      }
    }
    for (const auto& [name, item] : index.values) {
      add_item(name, nullptr, item);
    }
    out_.set_all();

    out_.shared_text("storage_meta");
    out_.none();
    out_.shared_text("version");
    out_.shared_text("1.0.0");
    end_object();
    return out_.finish();
  }

 private:
  void begin_object(const char* module, const char* name) {
    out_.global(module, name);
    out_.empty_tuple();
    out_.new_object();
    out_.empty_dict();
    out_.mark();
  }
  void end_object() {
    out_.set_all();
    out_.build();
  }

  void size(const std::vector<int64_t>& values) {
    out_.global("torch", "Size");
    out_.mark();
    out_.integers(values);
    out_.tuple();
    out_.reduce();
  }

  void add_tensor(const DcpTensor& tensor) {
    begin_object(kMetadata, "TensorStorageMetadata");
    out_.shared_text("properties");
    out_.global(kMetadata, "TensorProperties");
    out_.empty_tuple();
    out_.new_object();
    out_.mark();
    out_.global("torch", tensor.type->name);
    out_.global("torch.serialization", "_get_layout");
    out_.mark();
    out_.shared_text("torch.strided");
    out_.tuple();
    out_.reduce();
    out_.boolean(false);  // requires_grad
    out_.global(kMetadata, "_MEM_FORMAT_ENCODING");
    out_.integers({0});  // contiguous
    out_.reduce();
    out_.boolean(false);  // pin_memory
    out_.tuple();
    out_.build();
    out_.shared_text("size");
    size(tensor.sizes);
    out_.shared_text("chunks");
    out_.empty_list();
    out_.mark();
    for (const DcpChunk& chunk : tensor.chunks) {
      begin_object(kMetadata, "ChunkStorageMetadata");
      out_.shared_text("offsets");
      size(chunk.box.offsets);
      out_.shared_text("sizes");
      size(chunk.box.sizes);
      end_object();
    }
    out_.append_all();
    end_object();
  }

  void add_item(const std::string& name, const std::vector<int64_t>* offsets, const DcpItem& item) {
    begin_object(kMetadata, "MetadataIndex");
    out_.shared_text("fqn");
    out_.shared_text(name);
    out_.shared_text("index");
    out_.none();
    if (offsets != nullptr) {
      out_.shared_text("offset");
      size(*offsets);
    }
    end_object();
    begin_object(kFileSystem, "_StorageInfo");
    out_.shared_text("relative_path");
    out_.shared_text(item.file);
    out_.shared_text("offset");
    out_.integer(static_cast<int64_t>(item.offset));
    out_.shared_text("length");
    out_.integer(static_cast<int64_t>(item.length));
    end_object();
  }

  PickleWriter out_;
};

void check_writable(const std::string& name, const std::string& fault) {
  if (!fault.empty() || name.size() > kMaxName || !is_utf8(name)) {
    throw Error(Fault::kInternal,
                cat("the entry '", name, "' of a checkpoint ",
                    fault.empty() ? "has a name that is too long or not UTF-8" : fault));
  }
}

}  // namespace

const DcpType* find_dcp_type(std::string_view name) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                  [&](const DcpType& type) { return name == type.name; });
  return found == kTypes.end() ? nullptr : &*found;
}

const DcpType* find_dcp_storage(std::string_view storage) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const DcpType& type) {
    return type.storage != nullptr && storage == type.storage;
  });
  return found == kTypes.end() ? nullptr : &*found;
}

DcpIndex parse_dcp_index(std::string_view bytes, const fs::path& path) {
  return IndexParser(bytes, path).parse();
}

DcpIndex read_dcp_index(const fs::path& folder) {
  const fs::path path = folder / kDcpIndexFile;
  std::error_code failed;
  if (!fs::is_regular_file(path, failed)) {
    throw Error(
        Fault::kData,
        cat(folder.string(), ": is no complete PyTorch distributed checkpoint: it has no file ",
            kDcpIndexFile));
  }
  return parse_dcp_index(read_file(path), path);
}

std::string dcp_index_bytes(const DcpIndex& index) {
  for (const auto& [name, tensor] : index.tensors) {
    check_writable(name, tensor.type == nullptr          ? "has no type"
                         : index.values.count(name) != 0 ? "is a tensor and a value"
                                                         : fault_of_tensor(tensor));
  }
  for (const auto& [name, item] : index.values) {
    check_writable(name, fault_of_item(item));
  }
  return IndexWriter().write(index);
}

}  // namespace limbeck
