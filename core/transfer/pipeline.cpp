// SPDX-License-Identifier: Apache-2.0
#include "core/transfer/pipeline.hpp"

#include <algorithm>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_pipeline(const fs::path& path, const std::string& what) {
  throw Error(Fault::kData, cat(path.string(), ": ", what));
}

class PipelineCopier {
 public:
  PipelineCopier(const std::vector<std::string>& parts, const std::string& without)
      : parts_(parts), without_(without) {}

  void copy_folder(const fs::path& from, const fs::path& to, const fs::path& within) {
    std::error_code error;
    const auto real = fs::canonical(from, error);
    if (std::find(open_.begin(), open_.end(), real) != open_.end()) {
      refuse_pipeline(from, "is a link to a folder that it is in");
    }
    std::vector<fs::path> entries;
    for (fs::directory_iterator it(from, error), end; !error && it != end; it.increment(error)) {
      entries.push_back(it->path());
    }
    if (error) {
      refuse_pipeline(from, cat("cannot list this folder: ", error.message()));
    }
    std::sort(entries.begin(), entries.end());
    open_.push_back(real);
    for (const auto& entry : entries) {
      if (!is_left_out(entry.filename().string(), within)) {
        copy_entry(entry, to / entry.filename(), within / entry.filename());
      }
    }
    open_.pop_back();
  }

  PipelineCopy take() { return std::move(result_); }

 private:
  bool is_left_out(const std::string& name, const fs::path& within) {
    if (within.empty()) {
      return name.front() == '.' || name == without_;
    }
    if (std::find(parts_.begin(), parts_.end(), within.string()) == parts_.end()) {
      return false;
    }
    if (is_any_weights_file(name)) {
      result_.left_out.push_back((within / name).string());
      return true;
    }
    return name == "config.json";
  }

  void copy_entry(const fs::path& from, const fs::path& to, const fs::path& within) {
    std::error_code error;
    const auto real = fs::canonical(from, error);
    if (error) {
      refuse_pipeline(from, cat("cannot be followed: ", error.message()));
    }
    if (fs::is_directory(real, error)) {
      fs::create_directory(to, error);
      if (error) {
        refuse_pipeline(to, cat("cannot make this folder: ", error.message()));
      }
      return copy_folder(from, to, within);
    }
    if (!fs::is_regular_file(real, error)) {
      refuse_pipeline(from, "is neither a file nor a folder");
    }
    fs::create_hard_link(real, to, error);
    if (!error) {
      ++result_.linked;
      return;
    }
    // Another file system, or one that has no links, or a file of somebody else.
    fs::copy_file(real, to, error);
    if (error) {
      refuse_pipeline(to, cat("cannot copy ", real.string(), " to this: ", error.message()));
    }
    ++result_.copied;
    result_.copied_bytes += fs::file_size(to, error);
  }

  const std::vector<std::string>& parts_;
  const std::string& without_;
  std::vector<fs::path> open_;  // the folders on the way, as they are
  PipelineCopy result_;
};

}  // namespace

bool is_pipeline(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kPipelineFile, ignored);
}

bool is_any_weights_file(const std::string& name) {
  // Also "diffusion_pytorch_model.safetensors.index.fp16.json".
  static constexpr const char* kMarks[] = {".safetensors", ".bin.index."};
  static constexpr const char* kEnds[] = {".bin", ".pt", ".pth", ".ckpt", ".msgpack", ".gguf"};
  return std::any_of(std::begin(kMarks), std::end(kMarks),
                     [&](const char* mark) { return name.find(mark) != std::string::npos; }) ||
         std::any_of(std::begin(kEnds), std::end(kEnds),
                     [&](const char* end) { return name.ends_with(end); });
}

PipelineCopy copy_pipeline(const fs::path& base,
                           const fs::path& target,
                           const std::vector<std::string>& parts,
                           const std::string& without) {
  PipelineCopier copier(parts, without);
  copier.copy_folder(base, target, "");
  return copier.take();
}

}  // namespace limbeck
