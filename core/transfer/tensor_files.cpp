// SPDX-License-Identifier: Apache-2.0
#include "core/transfer/tensor_files.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/dcp/reader.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

class OpenTensorFile {
 public:
  explicit OpenTensorFile(const fs::path& path)
      : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) {
      const int code = errno;
      throw Error(Fault::kData,
                  cat(path.string(), ": cannot open: ", std::generic_category().message(code)));
    }
  }
  ~OpenTensorFile() { ::close(descriptor_); }
  OpenTensorFile(const OpenTensorFile&) = delete;
  OpenTensorFile& operator=(const OpenTensorFile&) = delete;

  void read(uint64_t offset, uint64_t bytes, std::byte* out) const {
    while (bytes > 0) {
      const auto count = ::pread(descriptor_, out, bytes, static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count <= 0) {
        const int code = errno;
        throw Error(Fault::kData, cat(path_.string(), ": cannot read: ",
                                      count == 0 ? "the file has become shorter"
                                                 : std::generic_category().message(code)));
      }
      offset += static_cast<uint64_t>(count);
      bytes -= static_cast<uint64_t>(count);
      out += count;
    }
  }

 private:
  fs::path path_;
  int descriptor_;
};

class SafetensorsTensors : public TensorFiles {
 public:
  SafetensorsTensors(const WeightFiles& found, const fs::path& path) {
    path_ = path;
    std::vector<std::vector<std::string>> names;
    std::vector<SafetensorsHeader> headers;
    for (const auto& file : found.files) {
      headers.push_back(read_safetensors_header(file));
      files_.push_back(std::make_unique<OpenTensorFile>(file));
      names.emplace_back();
      for (const auto& [name, entry] : headers.back().tensors) {
        names.back().push_back(name);
      }
    }
    for (const auto& [name, file] : place_tensors(found, names)) {
      const auto& entry = headers[file].tensors.at(name);
      tensors_.emplace(name, TensorShape{entry.type, entry.sizes});
      places_.emplace(name, Place{files_[file].get(), headers[file].data_offset + entry.begin});
    }
  }

  void read(const std::string& name,
            uint64_t first,
            uint64_t bytes,
            std::byte* out) const override {
    shape(name);
    const auto& place = places_.at(name);
    place.file->read(place.offset + first, bytes, out);
  }

 private:
  struct Place {
    const OpenTensorFile* file;
    uint64_t offset;
  };

  std::vector<std::unique_ptr<OpenTensorFile>> files_;
  std::map<std::string, Place> places_;
};

class DcpTensors : public TensorFiles {
 public:
  explicit DcpTensors(const fs::path& folder) : reader_(folder) {
    path_ = folder;
    for (const auto& [name, tensor] : reader_.index().tensors) {
      const auto* name_there = tensor.type->weights_name;
      const auto* type = name_there == nullptr ? nullptr : find_weight_type(name_there);
      if (type == nullptr) {
        throw Error(Fault::kData, cat(folder.string(), ": tensor '", name,
                                      "': limbeck cannot read ", tensor.type->name));
      }
      tensors_.emplace(name, TensorShape{type, tensor.sizes});
    }
  }

  void read(const std::string& name,
            uint64_t first,
            uint64_t bytes,
            std::byte* out) const override {
    const auto& whole = shape(name);
    if (first == 0 && bytes == whole.bytes()) {
      return reader_.read(name, out);
    }
    const uint64_t width = whole.type->bits / 8;
    if (first == 0) {
      check_sums(name, width);
    }
    const auto begin = static_cast<int64_t>(first / width);
    const auto end = static_cast<int64_t>((first + bytes) / width);
    for (const auto& box : boxes_of_range(whole.sizes, begin, end)) {
      reader_.read(name, box, out, false);
      out += static_cast<uint64_t>(box.numel()) * width;
    }
  }

 private:
  // Of every item once, so that the parts that follow need not do it each.
  void check_sums(const std::string& name, uint64_t width) const {
    std::vector<std::byte> number(width);
    for (const auto& chunk : reader_.index().tensors.at(name).chunks) {
      if (chunk.box.numel() > 0) {
        const DcpBox one{chunk.box.offsets, std::vector<int64_t>(chunk.box.sizes.size(), 1)};
        reader_.read(name, one, number.data());
      }
    }
  }

  DcpReader reader_;
};

bool has_tensor_files(const fs::path& folder) {
  const auto names = file_names(folder);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.ends_with(kWeightsExtension) || name.ends_with(kIndexExtension);
  });
}

// The folders of a pipeline that have weights, sorted.
std::vector<fs::path> parts_of(const fs::path& pipeline) {
  std::vector<fs::path> parts;
  std::error_code error;
  for (fs::directory_iterator it(pipeline, error), end; !error && it != end; it.increment(error)) {
    if (is_folder(it->path()) && has_tensor_files(it->path())) {
      parts.push_back(it->path());
    }
  }
  std::sort(parts.begin(), parts.end());
  return parts;
}

}  // namespace

uint64_t TensorShape::numel() const {
  uint64_t count = 1;
  for (const auto size : sizes) {
    count *= static_cast<uint64_t>(size);
  }
  return count;
}

std::string shape_text(const std::vector<int64_t>& sizes) {
  std::vector<std::string> items;
  for (const auto size : sizes) {
    items.push_back(std::to_string(size));
  }
  return "[" + join(items) + "]";
}

const TensorShape& TensorFiles::shape(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    std::vector<std::string> names;
    for (const auto& [known, shape] : tensors_) {
      names.push_back(known);
    }
    const auto close = nearest(name, names);
    throw Error(Fault::kData, cat(path_.string(), ": has no tensor '", name, "'"),
                close.empty() ? "" : cat("the nearest name is '", close, "'"));
  }
  return found->second;
}

void read_blocks(
    const TensorFiles& files,
    const std::string& name,
    const std::function<void(const std::byte* data, uint64_t first, uint64_t bytes)>& visit) {
  const uint64_t all = files.shape(name).bytes();
  std::vector<std::byte> block(std::min(all, kTensorBlock));
  for (uint64_t first = 0; first < all; first += kTensorBlock) {
    const auto bytes = std::min(kTensorBlock, all - first);
    files.read(name, first, bytes, block.data());
    visit(block.data(), first, bytes);
  }
}

std::unique_ptr<TensorFiles> open_weights(const fs::path& path) {
  return open_weights(find_weight_files(path, ""), path);
}

std::unique_ptr<TensorFiles> open_weights(const WeightFiles& found, const fs::path& path) {
  return std::make_unique<SafetensorsTensors>(found, path);
}

std::unique_ptr<TensorFiles> open_dcp_tensors(const fs::path& folder) {
  return std::make_unique<DcpTensors>(folder);
}

std::unique_ptr<TensorFiles> open_tensor_files(const fs::path& path, const std::string& part) {
  if (!is_there(path)) {
    throw Error(Fault::kData, cat(path.string(), " does not exist"));
  }
  if (!is_folder(path)) {
    return open_weights(path);
  }
  if (is_there(path / kDcpIndexFile)) {
    return open_dcp_tensors(path);
  }
  if (is_there(path / "dcp" / kDcpIndexFile)) {
    return open_dcp_tensors(path / "dcp");
  }
  if (!part.empty() && is_folder(path / part)) {
    return open_weights(path / part);
  }
  if (has_tensor_files(path)) {
    return open_weights(path);
  }
  const auto parts = parts_of(path);
  if (parts.size() == 1) {
    return open_weights(parts.front());
  }
  std::vector<std::string> names;
  for (const auto& folder : parts) {
    names.push_back(folder.filename().string());
  }
  throw Error(Fault::kData,
              parts.empty()
                  ? cat(path.string(), ": has no tensors: no *.safetensors and no ", kDcpIndexFile)
                  : cat(path.string(), ": has weights in several folders: ", join(names)),
              parts.empty() ? "" : "name one of them");
}

}  // namespace limbeck
